"""The commands: train, resume, eval, watch, plot, bench, report, compare, tune, rate, list, doctor, check-env."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from proximo.api import load
from proximo.config import Config
from proximo.errors import ProximoError, UsageError, nearest, say
from proximo.evaluate import evaluate, frames
from proximo.flags import field_name, parse_flags, read_flags
from proximo.model import Model, model_from, models_over_time
from proximo.run import continued, follow, forget_run, read_config, run_folder, write_config, write_json
from proximo.streams import env_seeds
from proximo.wiring import (
    CLASSES,
    Recipe,
    choose_variant,
    config_class,
    problems_around,
    recipe_of,
    resolve,
    torch_twin,
)

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
    """Run one command; returns its exit code: 0, 2 (usage), 3 (environment), 4 (numbers), 5 (files)."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(HELP)
        return 0 if words else 2
    try:
        return command(words[0], words[1:])
    except ProximoError as error:
        for line in str(error).splitlines():
            print(f"proximo: {line}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("proximo: interrupted", file=sys.stderr)
        return 130


def command(name: str, words: list[str]) -> int:
    """One explicit branch for each command; what a command needs is imported in its branch."""
    match name:
        case "train":
            return train_command(words)
        case "resume":
            return resume_command(words)
        case "eval":
            return eval_command(arguments(EvalArguments, words, "eval"))
        case "watch":
            return watch_command(arguments(WatchArguments, words, "watch"))
        case "plot":
            return plot_command(arguments(PlotArguments, words, "plot"))
        case "list":
            from proximo.suites import listing

            print("Variants\n" + "\n".join(f"  {name:40}{_first_line(kind)}" for name, kind in CLASSES.items()) + "\n")
            print(listing())
            return 0
        case "doctor":
            from proximo.doctor import doctor, report

            findings = doctor()
            print(report(findings))
            return 0
        case "check-env" | "check_env":
            return check_command(arguments(CheckArguments, words, "check-env"))
        case "bench" | "report" | "compare" | "tune":
            from proximo.bench_commands import bench_command

            return bench_command(name, words)
        case "rate":
            return rate_command(arguments(RateArguments, words, "rate"))
    raise UsageError(f"{name} is no command;{nearest(name, COMMANDS)} `proximo --help` lists all")


def arguments(kind: type, words: list[str], name: str) -> Any:
    """The dataclass `kind` filled from the command line, by tyro."""
    return tyro.cli(kind, args=words, prog=f"proximo {name}")


# train and resume

def train_command(words: list[str]) -> int:
    variant = words[0] if words and not words[0].startswith("-") else ""
    flags = words[1:] if variant else words
    if "--help" in flags or "-h" in flags:
        tyro.cli(config_class(variant or "ppo"), args=["--help"], prog=f"proximo train {variant or 'ppo'}")
    if not variant:
        variant = variant_by_environment(flags)
    return train_variant(variant, flags, None)


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
    say(f"no variant named: {variant}, since {env_id} is {why}" if why.startswith(("a ", "an ")) else
        f"no variant named: {variant}, since {env_id} has {why}")
    return variant


def train_variant(variant: str, flags: Sequence[str], recipe: Recipe | None, kind: type[Config] | None = None) -> int:
    """Train a variant from words; a recipe run by path passes itself and its configuration's class."""
    kind = kind or config_class(variant)
    processes, local_processes = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    values, wrong = read_flags(kind, flags)
    cfg = resolve(kind(**values), variant, processes, local_processes)
    recipe = recipe or recipe_of(variant, cfg.framework)
    if wrong := wrong + cfg.problems():
        raise UsageError("\n".join(wrong + problems_around(cfg, recipe)))
    if processes == 1 and cfg.local_num_envs is not None:
        say("one process only: start several with `torchrun --standalone --nproc_per_node=2 -m proximo train ...`")
    return start_run(cfg, variant, recipe, processes)


def start_run(cfg: Config, variant: str, recipe: Recipe, processes: int = 1) -> int:
    """A new run from a resolved configuration without problems of its own."""
    folder = run_folder(cfg)
    announce(cfg, processes)
    if os.environ.get("RANK", "0") == "0":
        write_config(folder, cfg, variant)
    try:
        return follow_recipe(folder, cfg, variant, recipe, None)
    except UsageError as error:
        forget_run(folder)
        every = [*str(error).splitlines(), *problems_around(cfg, recipe)]
        raise UsageError("\n".join(dict.fromkeys(every))) from error


def follow_recipe(folder: Path, cfg: Config, variant: str, recipe: Recipe, kept: dict | None) -> int:
    """Train by a recipe until the end or a signal; returns the exit code."""
    def start(state: dict | None) -> Any:
        return recipe.train(cfg, recipe.make_envs, recipe.make_agent, state=state)

    code = follow(folder, cfg, variant, start, recorder(cfg, variant), kept)
    if code == 0:
        say(f"done: {folder}")
    return code


def announce(cfg: Config, processes: int) -> None:
    """What will run, and what of total_timesteps will not."""
    runs = cfg.num_iterations * cfg.batch_size
    text = f"{cfg.num_iterations} iterations of {cfg.num_envs} x {cfg.num_steps} = {cfg.batch_size} steps"
    if runs < cfg.total_timesteps:
        text += (f"; the last {cfg.total_timesteps - runs} of {cfg.total_timesteps} steps fill no iteration "
                 "and do not run")
    say(text)
    if processes > 1:
        say(f"{processes} processes: local_num_envs {cfg.num_envs // processes}, num_envs {cfg.num_envs}, "
            f"local_batch_size {cfg.batch_size // processes}, batch_size {cfg.batch_size}, local_minibatch_size "
            f"{cfg.minibatch_size // processes}, minibatch_size {cfg.minibatch_size}")


def resume_command(words: list[str]) -> int:
    if not words or words[0].startswith("-"):
        print("usage: proximo resume RUN [--flag value ...]  (flags change hyper-parameters from here on)")
        return 0 if words else 2
    folder = Path(words[0])
    before, variant = read_config(folder, config_class)
    cfg = replace(before, **parse_flags(type(before), words[1:]))
    if problems := cfg.problems():
        raise UsageError("\n".join(problems))
    kept = continued(folder, cfg)
    if kept is None:
        say(f"{folder} was ended before its first checkpoint: it starts from its first iteration")
    elif kept["state"]["iteration"] >= cfg.num_iterations:
        say(f"{folder} has run all of its {cfg.num_iterations} iterations; --total-timesteps N makes it longer")
        return 0
    else:
        (folder / "summary.json").unlink(missing_ok=True)
        say(f"{folder} goes on after iteration {kept['state']['iteration']} of {cfg.num_iterations}")
    if cfg != before and os.environ.get("RANK", "0") == "0":
        changed = [f"{name} {old} -> {new}" for (name, old), new in zip(asdict(before).items(), asdict(cfg).values())
                   if old != new]
        say("changed: " + ", ".join(changed))
        write_config(folder, cfg, variant)
    return follow_recipe(folder, cfg, variant, recipe_of(variant, cfg.framework), kept)


# what a trained model does

@dataclass
class EvalArguments:
    run: Annotated[Path, tyro.conf.Positional]
    """folder of a run or of a model"""
    episodes: int = 100
    """whole episodes to play"""
    deterministic: bool = False
    """take the likeliest action instead of sampling"""
    seed: int = 0
    """seed of environments and actions"""
    json: Path | None = None
    """also write the returns to this file"""


@dataclass
class WatchArguments:
    run: Annotated[Path, tyro.conf.Positional]
    """folder of a run or of a model"""
    out: Path | None = None
    """where the mp4 goes; default: RUN/videos/watch.mp4"""
    deterministic: bool = False
    """take the likeliest action instead of sampling"""
    seed: int = 0
    """seed of environment and actions"""
    max_frames: int = 2000
    """longest video"""


@dataclass
class PlotArguments:
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """folders of runs, or folders of such"""
    out: Path = Path("curves.png")
    """the picture"""
    window: int = 100
    """episodes that a point averages over"""


@dataclass
class CheckArguments:
    env_id: Annotated[str, tyro.conf.Positional]
    """id of the environment; `module:Env-v0` imports the module first"""


@dataclass
class RateArguments:
    run: Annotated[Path, tyro.conf.Positional]
    """folder of a self-play run"""
    rounds: int = 2
    """games of each pair from each side"""
    most: int = 8
    """checkpoints that play, evenly spread over training"""
    seed: int = 1
    """seed of the games"""


def loaded(path: Path) -> tuple[Model, Recipe]:
    """The model of a run or of a model folder, acting by torch whichever framework trained it, and its recipe."""
    model = load(path)
    return model, recipe_of(torch_twin(model.variant), "torch")


def play_envs(cfg: Config, recipe: Recipe, rows: int, seed: int) -> Any:
    """Environments to play in: raw observations (the model normalises), in this process."""
    raw = replace(cfg, norm_obs=False, norm_reward=False, env_workers=0, num_envs=rows, seed=seed)
    return recipe.make_envs(raw, env_seeds(seed, rows, stream="eval"))


def eval_command(args: EvalArguments) -> int:
    if args.episodes < 1:
        raise UsageError(f"--episodes {args.episodes} must be at least 1")
    model, recipe = loaded(args.run)
    envs = play_envs(model.cfg, recipe, 8, args.seed)
    try:
        found = evaluate(model, envs, args.episodes, args.deterministic, args.seed)
    finally:
        envs.close()
    how = "deterministic" if args.deterministic else "sampled"
    if not found.returns:
        print(f"{model.cfg.env_id}: no episode finished")
        return 0
    mean, std = float(np.mean(found.returns)), float(np.std(found.returns))
    print(f"{model.cfg.env_id}: {mean:.2f} +- {std:.2f} over {len(found.returns)} episodes ({how} actions, "
          f"mean length {np.mean(found.lengths):.1f})")
    if args.json:
        write_json(args.json, {"env_id": model.cfg.env_id, "deterministic": args.deterministic, "seed": args.seed,
                               "episodes": len(found.returns), "episodic_return_mean": mean,
                               "episodic_return_std": std, "returns": found.returns, "lengths": found.lengths})
    return 0


def watch_command(args: WatchArguments) -> int:
    model, recipe = loaded(args.run)
    out = args.out or args.run / "videos" / "watch.mp4"
    record_video(model, recipe, out, args.deterministic, args.seed, args.max_frames)
    print(out)
    return 0


def record_video(model: Model, recipe: Recipe, out: Path, deterministic: bool = False, seed: int = 0,
                 max_frames: int = 2000) -> None:
    """One whole episode as an mp4; UsageError where the environment draws no pictures."""
    from proximo.video import write_video

    rows = max(1, len(model_players(model)))
    envs = play_envs(model.cfg, recipe, rows, seed)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        pictures = frames(model, envs, deterministic, seed, max_frames)
        first = next(pictures, None)
        if first is None:
            raise UsageError(f"{model.cfg.env_id} draws no pictures (no render_mode rgb_array)")
        write_video(_chained(first, pictures), out)
    finally:
        envs.close()


def model_players(model: Model) -> Sequence[int]:
    """As many rows as one game has players (a multiple of them plays more games)."""
    return range(4) if model.variant == "ppo_pettingzoo_ma_atari" else range(1)


def _chained(first: np.ndarray, rest: Any) -> Any:
    yield first
    yield from rest


def recorder(cfg: Config, variant: str) -> Callable[[Path, int], None] | None:
    """What --capture-video does at each checkpoint; nothing without it."""
    if not cfg.capture_video:
        return None

    def record(folder: Path, step: int) -> None:
        model, recipe = loaded(folder)
        try:
            record_video(model, recipe, folder / "videos" / f"step-{step:09d}.mp4")
        except UsageError as error:
            say(f"no video: {error}")
    return record


def plot_command(args: PlotArguments) -> int:
    from proximo.plot import find_runs, plot

    print(plot(find_runs(args.runs), args.out, args.window))
    return 0


def check_command(args: CheckArguments) -> int:
    from proximo.check_env import check_env

    findings = check_env(args.env_id)
    for finding in findings:
        sign = {True: "ok   ", False: "WRONG", None: "note "}[finding.ok]
        print(f"{sign} {finding.what}" + (f"\n      {finding.advice}" if finding.advice else ""))
    return 2 if any(finding.ok is False for finding in findings) else 0


def rate_command(args: RateArguments) -> int:
    from proximo.rate import Contestant, play_selfplay, random_player, rate, write_ratings

    model, recipe = loaded(args.run)
    if model.variant != "ppo_pettingzoo_ma_atari":
        raise UsageError(f"{args.run} is a run of {model.variant}; only games of several players are rated")
    found = models_over_time(args.run)
    chosen = [found[i] for i in sorted({round(x) for x in np.linspace(0, len(found) - 1, args.most)})] if found else []
    players = [random_player(int(model.spec.action_space.n), args.seed)]
    for steps, tree in chosen:
        one = model_from(tree, model.cfg, recipe.make_actor)
        players.append(Contestant(f"{steps:,} steps", steps, partial(one.choose, first=None, mask=None)))
    raw = replace(model.cfg, norm_obs=False, norm_reward=False, env_workers=0)
    ratings, games = rate(players, play_selfplay(partial(recipe.make_envs, raw)), args.rounds, args.seed)
    write_ratings(ratings, games, args.run / "rating")
    for one in sorted(ratings, key=lambda rating: -rating.mu):
        print(f"{one.name:>20}  {one.mu:6.2f} +- {one.sigma:.2f}   won {one.won}, drawn {one.drawn}, lost {one.lost}")
    print(args.run / "rating" / "rating.png")
    return 0


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]
