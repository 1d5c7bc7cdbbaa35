"""The commands that train: train, resume, and run_program() for a user's own program."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import fill
from types import MappingProxyType
from typing import Any, NoReturn

from proximo.callbacks import Callback, problems_of_callbacks
from proximo.catalog import VARIANTS, config_class, variant_of
from proximo.cli.flags import read_flags, take_flag, take_flags
from proximo.cli.messages import exit_code
from proximo.cli.suites import variant_listing
from proximo.cli.train_help import print_help
from proximo.config import Config
from proximo.envs.gym_source import ENV_FIELDS
from proximo.errors import UsageError, nearest
from proximo.facts import facts
from proximo.protocols import SetUp
from proximo.runs.command_line import pasted
from proximo.runs.custom_parts import NO_CUSTOM_PARTS, CustomParts, framework_of
from proximo.runs.folder.run import SWEEP
from proximo.runs.logs.announce import announce_preset, announce_variant, warn_of_unread
from proximo.runs.part_names import is_of_program, name_of, readers_among
from proximo.runs.presets import Preset, named_preset, preset_for, presets
from proximo.runs.restart import start_or_resume
from proximo.runs.settings.choice import check_given_id, choose_variant, config_of_env
from proximo.runs.settings.config_class import problems_of_class
from proximo.runs.settings.resolve import usage_errors, whole_paths
from proximo.runs.start import recorded_class, resume

TRAIN_HELP = """usage: proximo train [VARIANT] [--env-id ID] [--flag value ...]

Train an agent. The variant is a set of defaults. It may be left out: the preset of the environment is then used, or, if
there is none, the variant that suits its spaces.

  proximo train --env-id LunarLander-v3 --seed 1
  proximo train --env-id LunarLander-v3 --preset none --total-timesteps 1000000
  proximo train ppo_atari --env-id BreakoutNoFrameskip-v4
  proximo train --env-id my_package.envs:MyEnv-v0

{variants}

`proximo train VARIANT --help` explains the common flags of a variant, `--help-all` all of them. `proximo list presets`
lists the environments that have a preset."""
HELP_FLAGS = {"-h", "--help", "--help-all"}
NO_VALUES: Mapping[str, Any] = MappingProxyType({})
RESUME_HELP = """usage: proximo resume RUN [--flag value ...]

Continue a run from its newest checkpoint, bit for bit. Flags change hyper-parameters from here on, for example
--total-timesteps to train longer. RUN is the folder of a run, or of the runs of a --num-seeds command.

--allow-import MODULE (or FILE) allows importing what the run names, for example the module of its environment.

"""


def train_command(words: list[str]) -> int:
    """Train: `proximo train [VARIANT] [--flag value ...]`; return the exit code."""
    variant = words[0] if words and not words[0].startswith("-") else ""
    flags = words[1:] if variant else words
    if not variant and HELP_FLAGS & {*flags}:
        print(TRAIN_HELP.format(variants=variant_listing()))
        return 0
    try:
        variant, flags, defaults = chosen_defaults(variant, flags)
    except UsageError as error:
        raise UsageError("\n".join([str(error), *mistakes_of_any_variant(variant, flags)])) from error
    return train_variant(variant, flags, defaults=defaults)


def mistakes_of_any_variant(variant: str, flags: list[str]) -> list[str]:
    """Return what is wrong with flags whichever variant they are for; for those of one variant if it is known."""
    kinds = {one.config for name, one in VARIANTS.items() if variant in ("", name)}
    _, flags = take_flag(take_flag(flags, "preset")[1], "resume")
    found = [read_flags(kind, flags)[1] for kind in kinds]
    return [mistake for mistake in next(iter(found), []) if all(mistake in one for one in found)]


def chosen_defaults(variant: str, flags: list[str]) -> tuple[str, list[str], Mapping[str, Any]]:
    """Choose preset and variant, and log the choice.

    Args:
        variant: The variant that was named, or "".
        flags: The words after it.

    Returns:
        The variant, the flags without --preset, and the fields that differ from its defaults unless a flag sets them.
    """
    name, flags = take_flag(flags, "preset")
    preset = choose_preset(variant, name, flags)
    if preset is not None:
        announce_preset(preset, read_flags(type(preset.config), flags)[0])
        return preset.variant, flags, preset.values | {"env_id": preset.env_id}
    if variant:
        return variant, flags, NO_VALUES
    chosen, settings = variant_by_environment(flags)
    return chosen, flags, settings


def train_variant(variant: str, flags: list[str], custom: CustomParts = NO_CUSTOM_PARTS,
                  defaults: Mapping[str, Any] = NO_VALUES) -> int:
    """Train a variant, or custom parts, from flags; return the exit code.

    Args:
        variant: The name of the variant.
        flags: The words of the command line after it.
        custom: The custom parts.
        defaults: Fields of the configuration that differ from the variant's defaults unless a flag sets them.
    """
    kind = custom.config or named_class(variant)
    if found := HELP_FLAGS & {*flags}:
        program = pasted("python", sys.argv[0]) if custom.config else ""
        print_help(variant, kind, everything="--help-all" in found, program=program)
        return 0
    mode, flags = take_flag(flags, "resume")
    values, wrong = read_flags(kind, flags)
    wrong += usage_errors(partial(check_given_id, whole_paths(values)))
    cfg = kind(**{**defaults, **values})
    warn_of_unread(custom.readers, cfg)
    return start_or_resume(cfg, variant, custom, wrong, mode).train_to_end()


def named_class(variant: str, command: str = "train") -> type[Config]:
    """Return the configuration class of a variant that is the first word of a command; UsageError if it is none."""
    near = "" if variant in presets() else nearest(variant, presets())
    if variant.endswith(".toml"):
        advice = " Its runs are started by proximo bench, tune or pbt."
    else:
        flag = "--env-file" if variant.endswith(".py") else "--env-id"
        advice = f" To name an environment, write proximo {command} {flag} {variant}.{near}"
    return config_class(variant, advice)


def choose_preset(variant: str, name: str | None, flags: list[str]) -> Preset | None:
    """Return the preset that --preset names, or that of --env-id if neither a variant nor --preset was given.

    Arguments, wrappers and a file make another environment of the id, which has no preset.

    Raises:
        UsageError: There is no such preset, or it belongs to another variant.
    """
    if name == "none" or (name is None and variant):
        return None
    if name is None:
        given, _ = read_flags(Config, flags)
        return None if given.keys() & {*ENV_FIELDS} else preset_for(given.get("env_id", ""))
    preset = named_preset(name)
    if variant not in ("", preset.variant):
        raise UsageError(f"--preset {name} belongs to {preset.variant}, and {variant} was given. Leave the variant "
                         "out.")
    return preset


def resume_command(words: list[str], custom: CustomParts = NO_CUSTOM_PARTS) -> int:
    """Continue a run or a sweep: `proximo resume RUN [--flag value ...]`; return the exit code."""
    if HELP_FLAGS & {*words}:
        may = [name.replace("_", "-") for name, fact in facts(Config).items() if fact.resume == "free"]
        listed = f"A resume may change {', '.join(may)}, and such settings of other variants."
        print(RESUME_HELP + fill(listed, 110, break_on_hyphens=False))
        return 0
    line = pasted("python", sys.argv[0], "resume") if custom.resume_with else "proximo resume"
    if not words or not words[0]:
        raise UsageError(f"resume needs the folder of a run: `{line} RUN`.")
    if words[0].startswith("-"):
        raise UsageError(f"{words[0]} is not a run. Name one first: {line} RUN {pasted(*words)}")
    if len(words) > 1 and not words[1].startswith("-"):
        raise UsageError(f"resume continues one folder, and {words[0]} and {words[1]} were given. Resume one after the "
                         "other, or the folder of the runs of one command.")
    folder = Path(words[0])
    allowed, flags = take_flags(words[1:], "allow-import")
    values, wrong = read_flags(custom.config or recorded_class(folder), flags)
    session = resume(folder, values, custom, allowed, wrong)
    if not (folder / SWEEP).exists():
        return session.train_to_end()
    from proximo.cli.sweep_table import train_and_print  # a run does not need what it imports

    return train_and_print(session)


def variant_by_environment(flags: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the variant that suits --env-id or --env-file and its settings, and log it; `ppo` without these flags."""
    values = whole_paths(read_flags(Config, flags)[0])
    name = values.get("env_id") or values.get("env_file")
    if not name:
        return "ppo", {}
    check_given_id(values)
    choice = choose_variant(config_of_env(values))
    settings = choice.settings_beside(values)
    announce_variant(choice.variant, name, choice.why, settings)
    return choice.variant, settings


def run_program(config: type[Config], train: Callable[..., Any], make_envs: Callable[..., Any],
                make_agent: Callable[..., Any], loss_fn: Callable[..., Any] | None = None,
                callbacks: Sequence[Callback] = (), set_up: SetUp | None = None) -> NoReturn:
    """Run a program as a command: `python my_program.py --seed 2`, `python my_program.py resume RUN`; then exit.

    The run is recorded under the name of the variant that the configuration builds on.

    Args:
        config: The class of the configuration; its fields are the flags.
        train: The loop, such as proximo.on_torch.train.train.
        make_envs: (cfg, seeds) -> environments.
        make_agent: (spec, cfg) -> the network, with a proximo.protocols.Spec.
        loss_fn: (batch, cfg) -> the loss and named statistics, for a loop that takes `loss_fn`; None: that of the loop.
        callbacks: Called after every iteration, as in proximo.train.
        set_up: As in proximo.train, for a loop that takes `set_up`; None: that of the loop.
    """
    sys.exit(exit_code(partial(_run_program, config, train, {
        "make_envs": make_envs, "make_agent": make_agent, "loss_fn": loss_fn, "set_up": set_up}, callbacks)))


def _run_program(config: type[Config], train: Callable[..., Any], parts: dict[str, Any],
                 callbacks: Sequence[Callback]) -> int:
    """Train or resume, as the command line says; return the exit code. The arguments are those of run_program."""
    from proximo.runs.settings.arguments import not_functions

    variant = variant_of(config)
    if wrong := [*not_functions({"train": train} | parts).values(), *problems_of_callbacks(callbacks)]:
        raise UsageError("\n".join(wrong))
    names = {argument: name_of(part) for argument, part in parts.items() if part is not None and is_of_program(part)}
    custom = CustomParts(train=train, rows_per_game=getattr(parts["make_envs"], "rows_per_game", None), config=config,
                         readers=readers_among(parts), callbacks=tuple(callbacks),
                         wrong=tuple(problems_of_class(config)), **parts,
                         resume_with=f"python {sys.argv[0]} resume RUN",
                         names={"program": Path(sys.argv[0]).name} | names)
    words = sys.argv[1:]
    if words[:1] == ["resume"]:
        return resume_command(words[1:], custom)
    if framework_of(train) not in ("", config.framework):
        words = ["--framework", framework_of(train), *words]
    return train_variant(variant, words, custom)
