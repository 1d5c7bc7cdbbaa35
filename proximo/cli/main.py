"""The command `proximo`: which function runs a command."""

import faulthandler
import gc
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn

from proximo.cli.messages import check_words, exit_code
from proximo.envs.workers.search_path import hide_matplotlibrc, remove_path_variable
from proximo.errors import UsageError, nearest
from proximo.runs.interrupts.unbroken import unbroken_imports
from proximo.runs.logs.output import exit_with

HELP = """usage: proximo COMMAND ...

  train [VARIANT] --env-id ID ...  train an agent; without a variant, with the preset or variant of the environment
  sweep [VARIANT] --FLAG V1 V2 ... train every combination of values at once, in one compiled function of JAX
  resume RUN [--flag value ...]    continue a run from its newest checkpoint, bit for bit
  eval RUN --episodes 100          play whole episodes with a trained model
  watch RUN                        record a video of a trained model
  export RUN --to onnx             write a trained agent to one file that acts without Proximo
  card RUN                         measure the score of a model and write its card;  verify DIR plays it again
  push RUN hub:USER/NAME|DIR       share a model with its card;  pull hub:USER/NAME|DIR RUN copies one here
  live RUN...|DIR                  follow runs while they train: a page with curves and warnings, or --text
  plot RUN...                      draw learning curves (PNG): mean and spread over seeds
  bench FILE                       train many runs from one small file;  report DIR writes their page
  compare OLD NEW                  compare two sets of runs, paired by seed
  tune FILE                        search hyper-parameters
  pbt FILE                         population-based training: rounds, after which the worst copy the best
  profile [VARIANT] [ENV...]       where the time of an iteration goes, and what may make it shorter
  rate RUN...                      rate the checkpoints of self-play runs
  eject VARIANT > my_ppo.py        print a variant as one standalone file
  list                             list variants and environments, and what is installed
  doctor                           find what is wrong with this installation, and how to fix it
  check-env ID                     test an environment of your own

`proximo COMMAND --help` explains a command, `proximo train VARIANT --help-all` every hyper-parameter.
`proximo --version` prints the version."""

COLLECT_EVERY = 10_000  # new objects between two garbage collections; 700, the default, makes starting an eighth longer

COMMANDS = ("train", "sweep", "resume", "eval", "watch", "export", "card", "push", "pull", "verify", "live", "plot",
            "bench", "report", "compare", "tune", "pbt", "profile", "rate", "eject", "list", "doctor", "check-env")


def main(argv: Sequence[object] | None = None) -> int:
    """Run one command.

    Args:
        argv: Its words, also paths and numbers; None: those of the command line.

    Returns:
        The exit code: 0, or 2 (usage), 3 (environment), 4 (numbers), 5 (files), 6 (another process of the run), 128
        plus the number of a signal that stopped it (130 for Ctrl-C, 143 for SIGTERM), 141 (nothing reads the output any
        more). `doctor`, `compare` and `verify` return 1 where they find a problem, `bench` where runs have
        failed, `tune` and `pbt` where all have.
    """
    with suppress(Exception):  # stderr is closed, or is no file
        faulthandler.enable()  # a crash of native code prints where it happened
    return exit_code(partial(first_word, sys.argv[1:] if argv is None else argv))


def run() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    remove_path_variable()
    hide_matplotlibrc()
    gc.set_threshold(COLLECT_EVERY)
    with unbroken_imports():
        code = main()
    exit_with(code)


def first_word(given: Sequence[object]) -> int:
    """Print the help or the version, or run the command that the first word names; return the exit code."""
    if isinstance(given, str):
        raise UsageError(f"main({given!r:.60}) is one text. Pass a list of words, such as main({given.split()!r:.80}).")
    words = [*map(str, given)]
    if not words or words[0] in ("-h", "--help", "help"):
        print(HELP)
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        from proximo import __version__

        print(f"proximo {__version__}")
        return 0
    name = "check-env" if words[0] == "check_env" else words[0]
    check_words(name, words[1:])
    return command(name, words[1:])


def command(name: str, words: list[str]) -> int:
    """Run a command and return its exit code; what the command needs is imported in its branch."""
    match name:
        case "train":
            from proximo.cli.commands import train_command

            return train_command(words)
        case "sweep":
            from proximo.cli.sweep_command import sweep_command

            return sweep_command(words)
        case "resume":
            from proximo.cli.commands import resume_command

            return resume_command(words)
        case "eval" | "watch" | "plot" | "check-env" | "rate":
            from proximo.cli.model_commands import model_command

            return model_command(name, words)
        case "export" | "card" | "push" | "pull" | "verify":
            from proximo.cli.deploy_commands import deploy_command

            return deploy_command(name, words)
        case "live":
            from proximo.cli.live_command import live_command

            return live_command(words)
        case "eject":
            from proximo.cli.eject_command import eject_command

            return eject_command(words)
        case "list" | "doctor":
            from proximo.cli.machine_commands import machine_command

            return machine_command(name, words)
        case "profile":
            from proximo.cli.profile_command import profile_command

            return profile_command(words)
        case "bench" | "report" | "compare" | "tune" | "pbt":
            from proximo.cli.bench_commands import bench_command

            return bench_command(name, words)
    raise UsageError(f"{name} is not a command.{nearest(name, COMMANDS)} `proximo --help` lists all of them.")
