"""The five faults that end a command: each is one clear sentence and an exit code, never a bare traceback."""

import difflib
import os
import sys
from collections.abc import Iterable


class ProximoError(Exception):
    """A fault whose message says what was given, what was wanted and what to do."""

    exit_code = 1


class UsageError(ProximoError):
    """A flag, file or environment name that cannot work; all problems at once, one sentence a line."""

    exit_code = 2


class EnvError(ProximoError):
    """An environment broke its contract: raised, died, stalled, or returned what nobody can learn from."""

    exit_code = 3


class NumbersError(ProximoError):
    """A loss or gradient that is not finite; the weights are those before the step."""

    exit_code = 4


class FilesError(ProximoError):
    """A disk that is full, a folder that vanished, or a file that is damaged."""

    exit_code = 5


class PeerError(ProximoError):
    """Another of the processes that train as one has ended, or cannot be reached any more."""

    exit_code = 6


def nearest(given: str, known: Iterable[str]) -> str:
    """" did you mean X or Y?" where names are near, else nothing."""
    near = difflib.get_close_matches(given, list(known), 3, 0.6)
    return f" did you mean {' or '.join(near)}?" if near else ""


def notify(sentence: str) -> None:
    """One line on standard error, from the first process only: what was chosen, replaced or left out."""
    if os.environ.get("RANK", "0") == "0":
        print(f"proximo: {sentence}", file=sys.stderr, flush=True)
