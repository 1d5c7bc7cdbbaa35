"""The command check-env: its arguments, and how the findings are printed."""

from dataclasses import dataclass, fields
from typing import Annotated

import tyro

from proximo.catalog import VARIANTS
from proximo.cli.arguments import arguments
from proximo.cli.check_process import findings_of_process
from proximo.cli.flags import field_name, split_flags
from proximo.config import Config
from proximo.errors import EnvError, UsageError
from proximo.facts import facts_of_all
from proximo.runs.settings.resolve import whole_paths


@dataclass
class CheckArguments:
    """Play random steps in an environment, and print what breaks the contract of Gymnasium or of training."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[ID]", help_behavior_hint="")] = ""
    """id of the environment; `module:Env-v0` imports the module first"""
    env_id: Annotated[str, tyro.conf.arg(metavar="ID", help_behavior_hint="(default: none)")] = ""
    """the same, as `proximo train` takes it"""
    env_file: Annotated[str, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = ""
    """Python file with the environment: my_env.py or my_env.py:MyEnv, a class, a registered id or make_envs"""
    env_kwargs: Annotated[tuple[str, ...], tyro.conf.arg(
        metavar="KEY=VALUE ...", help_behavior_hint="(default: none)")] = ()
    """arguments of the environment, key=value"""
    env_wrappers: Annotated[tuple[str, ...], tyro.conf.arg(
        metavar="MODULE:WRAPPER ...", aliases=["--env-wrapper"], help_behavior_hint="(default: none)")] = ()
    """wrappers around the environment, module:Wrapper, the innermost first"""
    frame_skip: int = 1
    """steps for which an action is repeated"""
    grayscale: bool = False
    """one luminance channel per image"""
    resize: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: as they are)")] = None
    """resize images to squares with sides of this many pixels"""
    frame_stack: int = 1
    """observations stacked into one"""
    env_timeout: float = 60.0
    """seconds that one call of the environment may take"""


def check_command(words: list[str]) -> int:
    """Check an environment and print the findings; return 3 if it fails, and 2 if there is another fault."""
    refuse_training_flags(words)
    args = arguments(CheckArguments, words, "check-env")
    if args.name and args.env_id not in ("", args.name):
        raise UsageError(f"check-env checks one environment, and {args.name} and --env-id {args.env_id} were given. "
                         "Give one of them.")
    env_id = args.name or args.env_id
    if not env_id and not args.env_file:
        raise UsageError("check-env needs an environment: proximo check-env ID, or --env-file my_env.py.")
    values = {name: value for name, value in vars(args).items() if name not in ("name", "env_id")}
    values |= {"env_id": env_id} if env_id else {}
    code = 0
    for finding in findings_of_process(env_id or None, Config(**whole_paths(values))):
        sign = {True: "ok   ", False: "WRONG", None: "note "}[finding.ok]
        print(f"{sign} {finding.what}" + (f"\n      {finding.advice}" if finding.advice else ""), flush=True)
        if finding.ok is False:
            code = max(code, EnvError.exit_code if finding.ends else UsageError.exit_code)
    return code


def refuse_training_flags(words: list[str]) -> None:
    """Raise UsageError for flags of training, which a command that was copied has."""
    own = {field.name for field in fields(CheckArguments)}
    settings = facts_of_all(variant.config for variant in VARIANTS.values()).keys() - own
    given = [flag.word for flag in split_flags(words) if field_name(flag.word).removeprefix("no_") in settings]
    if given:
        many = len(given) > 1
        raise UsageError(f"{' and '.join(given)} {'are settings' if many else 'is a setting'} of training, which "
                         f"check-env does not take. Leave {'them' if many else 'it'} out.")
