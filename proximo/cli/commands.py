"""The commands that train: train, resume, and a program of the user's that is started by its path."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import tyro

from proximo.catalog import choose_variant, config_class, variant_of
from proximo.cli.flags import field_name, parse_flags, read_flags
from proximo.cli.messages import exit_code
from proximo.cli.suites import variant_listing
from proximo.config import Config
from proximo.runs.announce import announce_variant
from proximo.runs.own_parts import NO_OWN_PARTS, OwnParts
from proximo.runs.session import recorded_class, resume, start

TRAIN_HELP = """usage: proximo train [VARIANT] [--env-id ID] [--flag value ...]

Train an agent. The variant is a set of defaults. It may be left out: the environment then chooses it.

  proximo train --env-id LunarLander-v3 --total-timesteps 1000000 --seed 1
  proximo train ppo_atari --env-id BreakoutNoFrameskip-v4
  proximo train --env-id my_package.envs:MyEnv-v0

{variants}

`proximo train VARIANT --help` explains every flag of a variant."""
RESUME_HELP = """usage: proximo resume RUN [--flag value ...]

Continue a run from its newest checkpoint, bit for bit. Flags change hyper-parameters from here on, for example
--total-timesteps to train longer. RUN is the folder of a run, or of the runs of a --num-seeds command."""


def train_command(words: list[str]) -> int:
    """Train: `proximo train [VARIANT] [--flag value ...]`; return the exit code."""
    variant = words[0] if words and not words[0].startswith("-") else ""
    flags = words[1:] if variant else words
    if not variant and {"-h", "--help"} & {*flags}:
        print(TRAIN_HELP.format(variants=variant_listing()))
        return 0
    return train_variant(variant or variant_by_environment(flags), flags)


def train_variant(variant: str, flags: list[str], own: OwnParts = NO_OWN_PARTS) -> int:
    """Train a variant, or the parts of a program, from flags; return the exit code."""
    kind = own.config or config_class(variant)
    if {"-h", "--help"} & {*flags}:
        tyro.cli(kind, args=["--help"], prog=f"proximo train {variant}")
    values, wrong = read_flags(kind, flags)
    return start(kind(**values), variant, own, wrong).play()


def resume_command(words: list[str], own: OwnParts = NO_OWN_PARTS) -> int:
    """Continue a run: `proximo resume RUN [--flag value ...]`; return the exit code."""
    if not words or {"-h", "--help"} & {*words}:
        print(RESUME_HELP)
        return 0 if words else 2
    folder = Path(words[0])
    return resume(folder, parse_flags(own.config or recorded_class(folder), words[1:]), own).play()


def variant_by_environment(flags: list[str]) -> str:
    """Return the variant that suits --env-id, and say so; `ppo` without that flag."""
    given = {field_name(word): word.partition("=")[2] or following for word, following in zip(flags, [*flags[1:], ""])
             if word.startswith("--")}
    env_id = given.get("env_id", "")
    if not env_id or env_id.startswith("--"):
        return "ppo"
    variant, why = choose_variant(env_id, given.get("engine", "auto"))
    announce_variant(variant, env_id, why)
    return variant


def run_program(config: type[Config], train: Callable[..., Any], make_envs: Callable[..., Any],
                make_agent: Callable[..., Any]) -> NoReturn:
    """Run a program as a command: `python my_program.py --seed 2`, `python my_program.py resume RUN`; then exit.

    The run is recorded under the name of the variant that the configuration builds on.

    Args:
        config: The class of the configuration; its fields are the flags.
        train: The loop, such as proximo.on_torch.train.train.
        make_envs: (cfg, seeds) -> environments.
        make_agent: (envs, cfg) -> the network.
    """
    own = OwnParts(train=train, make_envs=make_envs, make_agent=make_agent, config=config,
                   resume_with=f"python {sys.argv[0]} resume RUN")
    words = sys.argv[1:]
    if words[:1] == ["resume"]:
        sys.exit(exit_code(lambda: resume_command(words[1:], own)))
    sys.exit(exit_code(lambda: train_variant(variant_of(config), words, own)))
