"""The exceptions of the library, each with its exit code, and its log messages.

Messages go to the logger "proximo": INFO for what was chosen or done, WARNING for what was ignored, replaced or is not
exact. The command line prints both; from Python only warnings are shown unless the program configures logging.
"""

import difflib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

LOGGER = logging.getLogger("proximo")
COLUMNS = ("Use printable characters without comma and quotation mark, and no space at either end: names are columns "
           "of metrics.csv.")
SAVE_AS_UTF8 = ("PowerShell 5 writes it with >. Save the file as UTF-8, for example with `Get-Content OLD | "
                "Set-Content -Encoding utf8 NEW`.")
WITH_SEED = (". Gymnasium calls reset(seed=None, options=None). docs/other-environments.md has wrappers: jss.py for "
             "environments that take no seed, and one for environments of gym (The interface of gym)")
LOGGED = ("SPS", "learning_rate")  # charts of the log besides those of episodes
LIBRARIES = ("gymnasium", "numpy", "torch", "jax", "flax", "proximo")  # where place_of() does not look
COMMUNICATION = ("gloo", "nccl", "connection", "coordination")  # in lower case
OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "RESOURCE_EXHAUSTED")  # torch, CUDA, JAX


class ProximoError(Exception):
    """Base class of all exceptions of the library. Messages say what was given, what is allowed and what to do."""

    exit_code = 1


class UsageError(ProximoError, ValueError):
    """A flag, argument, file or environment name cannot work; lists all problems at once, one sentence a line."""

    exit_code = 2


class EnvError(ProximoError, RuntimeError):
    """An environment broke its contract: it raised, died, stalled, or returned values that cannot be learned from."""

    exit_code = 3


class AnswerError(ValueError):
    """An answer of an environment does not fit its spaces. The caller names the environment and the step."""


class NumbersError(ProximoError, ArithmeticError):
    """The loss or its gradient is not finite; the weights are those before the step.

    Args:
        message: What was not finite, and what to do.
        evidence: Returns what the update was computed from (runs/folder/repro.py).
    """

    exit_code = 4

    def __init__(self, message: str, evidence: Callable[[], dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.evidence = evidence


class FilesError(ProximoError, OSError):
    """The disk is full, a folder has vanished, or a file is damaged."""

    exit_code = 5


class PeerError(ProximoError, ConnectionError):
    """Another process of a distributed run has ended or cannot be reached."""

    exit_code = 6


def no_threads(error: BaseException) -> UsageError:
    """Return the error for a process that cannot start another thread."""
    return UsageError(f"No thread can be started ({error}). Raise the limit of processes (ulimit -u), which counts "
                      "threads, or end other programs.")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of Python, torch or JAX says that the memory of the machine or of a GPU is full."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in OUT_OF_MEMORY)


def metric_name_problem(name: str) -> str:
    """Return what is wrong with the name of a metric, which becomes the column charts/NAME, "" if nothing is."""
    if not is_column(name):
        return f"{name!r:.60}. {COLUMNS}"
    if name in LOGGED or name.startswith(("episodic_", "avg_episodic_")):
        return f"{name}, which the log writes itself. Use another name."
    return ""


def is_column(name: object) -> bool:
    """Return whether a name can be a column of metrics.csv."""
    text = str(name)
    return bool(text) and text.isprintable() and text == text.strip() and not {*text} & {*',"'}


def is_of_communication(error: BaseException) -> bool:
    """Return whether an error of torch or JAX says that communication between processes has failed."""
    return any(word in str(error).lower() for word in COMMUNICATION)


@contextmanager
def reading(problem: str, advice: str) -> Iterator[None]:
    """Turn errors that missing or malformed content causes into a FilesError, but not those of a full memory."""
    try:
        yield
    except ProximoError:
        raise
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise FilesError(f"{problem}: {type(error).__name__}: {str(error)[:300]}. {advice}") from error


def reading_checkpoint() -> Any:
    """Return a context manager, also a decorator, that turns errors of reading a snapshot into a FilesError."""
    return reading("The checkpoint does not fit this run",
                   "Resume with the environment, the network and the versions that the run was started with. If they "
                   "are the same, move the newest folder of checkpoints/ to another place, so that the one before it "
                   "is used.")


def nearest(given: str, known: Iterable[str], before: str = "") -> str:
    """Return " Did you mean X or Y?" for the names closest to `given`, each after `before`; "" if none is close."""
    near = [before + name for name in difflib.get_close_matches(given, list(known), 3, 0.6)]
    return f" Did you mean {' or '.join(near)}?" if near else ""


def names_text(names: Sequence[str], most: int) -> str:
    """Write the first `most` names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def first_line(error: BaseException) -> str:
    """Return the first line of a message that is not empty."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")


def one_line(text: object) -> str:
    """Return text with line breaks as Python writes them: a message has one problem a line."""
    return "".join(repr(one)[1:-1] if one.splitlines() == [""] else one for one in str(text))


def with_place(error: BaseException) -> str:
    """Return the type and the message of an exception on one line, and place_of(); a reset() without a seed is told."""
    place, message = place_of(error), one_line(error)
    seedless = isinstance(error, TypeError) and "reset() got an unexpected keyword argument 'seed'" in message
    return (f"{type(error).__name__}{f': {message}' if message else ''}{f' ({place})' if place else ''}"
            f"{WITH_SEED if seedless else ''}")


def what_failed(error: BaseException, call: str, where: str = "") -> str:
    """Return what the call of an environment has raised, or what Proximo's own checks have found in its answer.

    Args:
        error: The exception; a check raises an AnswerError.
        call: Begins the first kind of sentence, such as "reset raised".
        where: Ends the second kind.
    """
    return f"{one_line(error)}{where}" if isinstance(error, AnswerError) else f"{call} {with_place(error)}"


def place_of(error: BaseException) -> str:
    """Return the line of code that raised an exception.

    It is the innermost line outside of Python's own library and of LIBRARIES; "" without one.
    """
    place = ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__")).partition(".")[0]
        if module not in LIBRARIES and module not in sys.stdlib_module_names:
            place = f"{frame.f_code.co_filename}, line {number}"
    return place


def notify(sentence: str) -> None:
    """Log what was chosen or done, at INFO, from the first process only."""
    _log(logging.INFO, sentence)


def warn(sentence: str) -> None:
    """Log what was ignored or replaced, or is not exact, at WARNING, from the first process only."""
    _log(logging.WARNING, sentence)


@cache
def notify_once(sentence: str) -> None:
    """Log a message once in this process. A run makes a new pool at every checkpoint, and would repeat it."""
    notify(sentence)


@cache
def warn_once(sentence: str) -> None:
    """Log a warning once in this process."""
    warn(sentence)


def _log(level: int, sentence: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        LOGGER.log(level, "%s", sentence)


USES = {"train": "Pass a loop, such as train of proximo.on_torch.train.",
        "make_envs": "Pass (cfg, seeds) -> environments.", "callbacks": "Pass functions of an Iteration.",
        "make_agent": "Pass (spec, cfg) -> the network (docs/add-a-network.md).",
        "loss_fn": "Pass (batch, cfg) -> the loss and named statistics (docs/add-a-loss.md).",
        "set_up": "Pass (cfg, make_envs, make_agent, loss_fn, state) -> what set_up of proximo.on_torch.setup, or for "
                  "JAX of proximo.on_jax.setup, returns for them (docs/add-a-loss.md).",
        "change_learner": "Pass (learner) -> learner._replace(...), a Learner of proximo.on_jax.learner with other "
                          "functions (docs/add-a-loss.md).",
        "estimate": "Pass (rollout, cfg) -> the advantages, one per row (docs/add-a-loss.md).",
        "gradient": "Pass (learner, weights, batch, minibatch, coefficients) -> the gradient, as pack() of "
                    "proximo.on_jax.parameters returns it, and a dict of statistics (docs/add-a-loss.md).",
        "apply": "Pass (adam, gradient, learning_rate, eps, max_grad_norm, count) -> adam._replace(...), whose arrays "
                 "keep their shapes and dtypes, and the norm of the gradient (docs/add-a-loss.md).",
        "update": "Pass (learner, adam, batch, minibatches, learning_rate, coefficients) -> adam._replace(...), whose "
                  "arrays keep their shapes and dtypes, and a dict of statistics (docs/add-a-loss.md)."}


def call_part(name: str, part: Callable[..., Any], *arguments: Any) -> Any:
    """Call a custom function; errors are passed on.

    Raises:
        UsageError: It does not take these arguments, or reads a field that one of them, a NamedTuple, does not have.
    """
    try:
        return part(*arguments)
    except AttributeError as error:
        given: Any = error.obj
        if not any(given is one and hasattr(one, "_fields") for one in arguments):
            raise
        raise UsageError(f"{name} reads {error.name}, which {type(given).__name__} does not have. Its fields are "
                         f"{', '.join(given._fields)}. {USES[name]}") from error
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:  # raised inside
            raise
        count = f"{len(arguments)} argument{'s' * (len(arguments) > 1)}"
        raise UsageError(f"{name} cannot be called with {count}: {error}. {USES[name]}") from error
