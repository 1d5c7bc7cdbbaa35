"""The commands: train, resume, eval, watch, plot, bench, report, compare, tune, rate, list, doctor, check-env."""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

import tyro

from proximo.catalog import VARIANTS, Parts, choose_variant, config_class, parts_of
from proximo.cli.flags import field_name, parse_flags, read_flags
from proximo.cli.model_commands import model_command, recorder
from proximo.config import Config
from proximo.errors import LOGGER, PeerError, ProximoError, UsageError, nearest, notify
from proximo.runs.resolve import problems_of, problems_of_parts, resolve, with_changes
from proximo.runs.run import Watcher, continued, follow, forget_run, read_config, run_folder, singly, write_config
from proximo.runs.seed_runs import resume_seeds, say_if_one_of_several, seed_folders, start_seeds

HELP = """usage: proximo COMMAND ...

  train [VARIANT] --env-id ID ...  train an agent; without a variant the environment's spaces choose it
  resume RUN [--flag value ...]    go on from the newest checkpoint of a run, bit for bit
  eval RUN --episodes 100          play whole episodes with a trained model
  watch RUN                        a video (mp4) of a trained model
  plot RUN...                      learning curves (PNG): mean and spread over seeds
  bench FILE                       many runs from one small file;  report DIR makes its page
  compare A B                      two sets of runs, paired by seed
  tune FILE                        search hyper-parameters
  rate RUN                         a rating of a self-play run's checkpoints
  list                             variants, environments, what is installed
  doctor                           what is wrong with this installation, and what mends it
  check-env ID                     test an environment of your own

`proximo COMMAND --help` explains a command, `proximo train VARIANT --help` every hyper-parameter."""


COMMANDS = ("train", "resume", "eval", "watch", "plot", "bench", "report", "compare", "tune", "rate", "list", "doctor",
            "check-env")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code: 0, 2 (usage), 3 (environment), 4 (numbers), 5 (files),
    6 (another process of the run)."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(HELP)
        return 0 if words else 2
    return exit_code(partial(command, words[0], words[1:]))


class PrintedMessages(logging.Handler):
    """Print each message as `proximo: SENTENCE` on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Raise what printing raises: a reader that has left ends the command."""
        print(f"proximo: {record.getMessage()}", file=sys.stderr, flush=True)


@contextmanager
def printed_messages() -> Iterator[None]:
    """Print the messages of the library, also those at INFO; leave the logger as it was."""
    if any(isinstance(handler, PrintedMessages) for handler in LOGGER.handlers):
        yield
        return
    handler, level = PrintedMessages(), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOGGER.setLevel(level)
        LOGGER.removeHandler(handler)


def exit_code(act: Callable[[], int]) -> int:
    """What `act` returns, or the code of the fault that ended it, said in sentences."""
    try:
        with printed_messages():
            code = act()
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever read our output has seen enough (`proximo list | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # 128 + SIGPIPE
    except ProximoError as error:
        for line in str(error).splitlines():
            print(f"proximo: {line}", file=sys.stderr)
        if isinstance(error, PeerError):
            leave_at_once(error.exit_code)
        return error.exit_code
    except KeyboardInterrupt:
        print("proximo: interrupted", file=sys.stderr)
        return 130


def leave_at_once(code: int) -> None:
    """Without the farewells of libraries: JAX and NCCL wait there for processes that are gone, and then abort."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def command(name: str, words: list[str]) -> int:
    """One explicit branch for each command; what a command needs is imported in its branch."""
    match name:
        case "train":
            return train_command(words)
        case "resume":
            return resume_command(words)
        case "eval" | "watch" | "plot" | "check-env" | "check_env" | "rate":
            return model_command(name.replace("_", "-"), words)
        case "list":
            from proximo.cli.suites import listing

            rows = [f"  {name:40}{_first_line(variant.config)}" for name, variant in VARIANTS.items()]
            print("Variants\n" + "\n".join(rows) + "\n")
            print(listing())
            return 0
        case "doctor":
            from proximo.cli.doctor import doctor, report

            findings = doctor()
            print(report(findings))
            return 0
        case "bench" | "report" | "compare" | "tune":
            from proximo.cli.bench_commands import bench_command

            return bench_command(name, words)
    raise UsageError(f"{name} is not a command.{nearest(name, COMMANDS)} `proximo --help` lists all of them.")


def train_command(words: list[str]) -> int:
    variant = words[0] if words and not words[0].startswith("-") else ""
    flags = words[1:] if variant else words
    if not variant and "--help" not in flags and "-h" not in flags:
        variant = variant_by_environment(flags)
    return train_variant(variant or "ppo", flags)


def run_recipe(kind: type[Config], train: Callable, make_envs: Callable, make_agent: Callable) -> None:
    """Train by a recipe that is run by path (`python my_recipe.py --seed 2`), as `proximo train` does, or go on with
    its run (`python my_recipe.py resume RUN`), and exit. The run is recorded under the name of the variant that its
    configuration builds on."""
    names = {known: name for name, (known, *_) in VARIANTS.items()}
    variant = next(names[base] for base in kind.__mro__ if base in names)
    recipe, words = Parts(train, make_envs, make_agent, None), sys.argv[1:]
    if words[:1] == ["resume"]:
        sys.exit(exit_code(lambda: resume_command(words[1:], recipe, kind)))
    sys.exit(exit_code(lambda: train_variant(variant, words, recipe, kind)))


def variant_by_environment(flags: list[str]) -> str:
    """The variant that suits --env-id, said aloud."""
    names = [field_name(word) if word.startswith("--") else "" for word in flags]
    if "env_id" not in names:
        return "ppo"
    position = names.index("env_id")
    env_id = flags[position].partition("=")[2] or (flags[position + 1] if position + 1 < len(flags) else "")
    if not env_id or env_id.startswith("--"):
        return "ppo"
    variant, why = choose_variant(env_id)
    notify(f"no variant named: {variant}, since {env_id} is {why}" if why.startswith(("a ", "an ")) else
        f"no variant named: {variant}, since {env_id} has {why}")
    return variant


def train_variant(variant: str, flags: Sequence[str], recipe: Parts | None = None,
                  kind: type[Config] | None = None) -> int:
    """Train a variant from words; a recipe run by path passes itself and its configuration's class."""
    resume_with = f"python {sys.argv[0]} resume RUN" if recipe else ""
    kind = kind or config_class(variant)
    if "--help" in flags or "-h" in flags:
        tyro.cli(kind, args=["--help"], prog=f"proximo train {variant}")
    processes, local_processes = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    values, wrong = read_flags(kind, flags)
    cfg = resolve(kind(**values), variant, processes, local_processes)
    share_cores(cfg)
    recipe = recipe or parts_of(variant, cfg.framework)
    if wrong := wrong + problems_of(cfg, processes):
        raise UsageError("\n".join(wrong + problems_of_parts(cfg, recipe)))
    if processes == 1 and cfg.local_num_envs is not None:
        notify("one process only: start several with `torchrun --standalone --nproc_per_node=2 -m proximo train ...`")
    if cfg.num_seeds > 1:
        announce(cfg, 1)
        return start_seeds(cfg, variant, recipe)
    return start_run(cfg, variant, recipe, processes, resume_with)


def share_cores(cfg: Config) -> None:
    """Before torch is imported: its threads sleep between two products where worker processes want the cores, instead
    of spinning (docs/performance.md)."""
    if cfg.env_workers and cfg.threads > 1:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def start_run(cfg: Config, variant: str, recipe: Parts, processes: int, resume_with: str) -> int:
    """A new run from a resolved configuration without problems of its own."""
    folder = run_folder(cfg)
    announce(cfg, processes)
    write_config(folder, cfg, variant, resume_with)
    try:
        return follow_recipe(folder, cfg, variant, recipe, None)
    except UsageError as error:
        forget_run(folder)
        every = [*str(error).splitlines(), *problems_of_parts(cfg, recipe)]
        raise UsageError("\n".join(dict.fromkeys(every))) from error


def follow_recipe(folder: Path, cfg: Config, variant: str, recipe: Parts, kept: dict | None,
                  begin: Callable[[], None] | None = None) -> int:
    """Train by a recipe until the end or a signal; returns the exit code. `begin`: see Watcher."""
    iterations = recipe.train(cfg, recipe.make_envs, recipe.make_agent, state=kept["state"] if kept else None)
    code = follow([Watcher(folder, cfg, variant, recorder(cfg, variant), kept, begin)], singly(iterations))
    if code == 0:
        notify(f"done: {folder}")
    return code


def announce(cfg: Config, processes: int) -> None:
    """What will run, and what of total_timesteps will not."""
    runs = cfg.num_iterations * cfg.batch_size
    text = f"{cfg.num_iterations} iterations of {cfg.num_envs} x {cfg.num_steps} = {cfg.batch_size} steps"
    if runs < cfg.total_timesteps:
        text += (f"; the last {cfg.total_timesteps - runs} of {cfg.total_timesteps} steps fill no iteration "
                 "and do not run")
    notify(text)
    if processes > 1:
        notify(f"{processes} processes: local_num_envs {cfg.num_envs // processes}, num_envs {cfg.num_envs}, "
            f"local_batch_size {cfg.batch_size // processes}, batch_size {cfg.batch_size}, local_minibatch_size "
            f"{cfg.minibatch_size // processes}, minibatch_size {cfg.minibatch_size}")


def resume_command(words: list[str], recipe: Parts | None = None, kind: type[Config] | None = None) -> int:
    """Go on with a run; a recipe run by path passes itself and its configuration's class."""
    if not words or words[0].startswith("-"):
        print("usage: proximo resume RUN [--flag value ...]  (flags change hyper-parameters from here on)")
        return 0 if words else 2
    folder = Path(words[0])
    if seeds := seed_folders(folder):
        variant = read_config(seeds[0], config_class).variant
        return resume_seeds(seeds, parse_flags(config_class(variant), words[1:]))
    say_if_one_of_several(folder)
    before, variant, resume_with, processes = read_config(folder, (lambda _: kind) if kind else config_class)
    if resume_with and recipe is None:
        raise UsageError(f"{folder} has an environment, network or loss of its own; continue it with: "
                         f"{resume_with.replace('RUN', str(folder))}")
    cfg = with_changes(before, parse_flags(type(before), words[1:]))
    if problems := problems_of(cfg):
        raise UsageError("\n".join(problems))
    kept = continued(folder, cfg, processes)
    if kept is None:
        notify(f"{folder} was ended before its first checkpoint: it starts from its first iteration")
    elif kept["state"]["iteration"] >= cfg.num_iterations:
        notify(f"{folder} has run all of its {cfg.num_iterations} iterations; --total-timesteps N makes it longer")
        return 0
    else:
        notify(f"{folder} goes on after iteration {kept['state']['iteration']} of {cfg.num_iterations}")
    begin = None
    if cfg != before:
        begin = partial(write_config, folder, cfg, variant, resume_with)
        changed = [f"{name} {old} -> {new}" for (name, old), new in zip(asdict(before).items(), asdict(cfg).values())
                   if old != new]
        notify("changed: " + ", ".join(changed))
    share_cores(cfg)
    return follow_recipe(folder, cfg, variant, recipe or parts_of(variant, cfg.framework), kept, begin)


def _first_line(kind: type) -> str:
    line = (kind.__doc__ or "").strip().splitlines()[0]
    return line.partition(": ")[2] or line
