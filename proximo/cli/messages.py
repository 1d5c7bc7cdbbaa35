"""What every command shares: messages on standard error, and the exit code of each fault."""

import errno
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from proximo.cli.oldest import INSTALL_GYMNASIUM, OLDEST_GYMNASIUM, is_too_old
from proximo.errors import LOGGER, FilesError, PeerError, ProximoError, UsageError, is_out_of_memory, no_threads
from proximo.runs.folder.files import is_folder
from proximo.runs.folder.writing import FULL, READ_ONLY, reason, remedy
from proximo.runs.interrupts.sigterm import interrupt_on_sigterm, interrupted_code
from proximo.runs.logs.output import prepare_streams, silence, write_line

NEEDS = {  # what a command needs, and how it is written
    **dict.fromkeys(("resume", "eval", "watch", "export", "card"), ("the folder of a run", "RUN")),
    "push": ("the folder of a run and a place", "RUN hub:USER/NAME|DIR"),
    "pull": ("a place and a new folder", "hub:USER/NAME|DIR RUN"), "verify": ("the folder of a shared model", "DIR"),
    "live": ("folders of runs", "RUN...|DIR"), **dict.fromkeys(("plot", "rate"), ("folders of runs", "RUN...")),
    "report": ("the folder of a benchmark", "DIR"), "compare": ("two folders of runs", "OLD NEW"),
    "bench": ("a benchmark file, or --status DIR", "FILE"), "tune": ("a search file", "FILE"),
    "pbt": ("the file of a population", "FILE"), "eject": ("a variant", "VARIANT"),
    "sweep": ("values of a flag", "[VARIANT] --FLAG VALUE VALUE"),
    "profile": ("a variant or an environment", "[VARIANT] [ENV...]"), "check-env": ("an environment", "ID")}


class PrintedMessages(logging.Handler):
    """Print each message as `proximo: SENTENCE` on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print it; a stream that is full or has no reader is not used again."""
        for line in record.getMessage().splitlines():
            write_line(sys.stderr, f"proximo: {line}")


@contextmanager
def printed_messages() -> Iterator[None]:
    """Print the messages of the library, also those at INFO; leave the logger as it was."""
    if any(isinstance(handler, PrintedMessages) for handler in LOGGER.handlers):
        yield
        return
    handler, level, propagate = PrintedMessages(), LOGGER.level, LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False  # a library that gives the root logger a handler would print every message again
    try:
        yield
    finally:
        LOGGER.setLevel(level)
        LOGGER.propagate = propagate
        LOGGER.removeHandler(handler)


def exit_code(act: Callable[[], int]) -> int:
    """Return what `act` returns, or print its error and return the exit code of that error."""
    prepare_streams()
    try:
        with printed_messages(), interrupt_on_sigterm():  # environments are closed, and the engines of games end
            check_current_folder()
            code = act()
    except BrokenPipeError:  # the reader of the output has closed it (`proximo list | head`)
        silence(sys.stdout)
        return 141  # 128 + SIGPIPE
    except ProximoError as error:
        for line in str(error).splitlines():
            write_line(sys.stderr, f"proximo: {line}")
        if isinstance(error, PeerError):
            exit_at_once(error.exit_code)
        return error.exit_code
    except (MemoryError, RuntimeError) as error:
        return _of_memory(error)
    except ImportError as error:
        return _of_an_import(error)
    except OSError as error:
        return _of_a_file(error)
    except KeyboardInterrupt as error:
        write_line(sys.stderr, "proximo: interrupted")
        return interrupted_code(error)
    return _flushed(code)


def check_current_folder() -> None:
    """Raise FilesError if the current folder was removed: relative paths, and many libraries, need it."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise FilesError("The current folder was removed. Change to one that exists: cd FOLDER.") from error


def check_words(name: str, words: Sequence[str]) -> None:
    """Raise UsageError if a command that needs words was given none, or an empty one: no folder has an empty name."""
    if name in NEEDS and words[:1] in ([], [""]):
        what, usage = NEEDS[name]
        raise UsageError(f"{name} needs {what}: `proximo {name} {usage}`. `proximo {name} --help` explains it.")


def _of_memory(error: Exception) -> int:
    """Print that memory or threads are used up, and return UsageError's exit code; raise other errors."""
    if "can't start new thread" in str(error):
        write_line(sys.stderr, f"proximo: {no_threads(error)}")
        return UsageError.exit_code
    if not is_out_of_memory(error):
        raise error
    cause = next(iter(str(error).splitlines()), "no details are known")
    write_line(sys.stderr, f"proximo: The memory is full ({cause}). Use fewer environments, a smaller batch or smaller "
                           "layers.")
    return UsageError.exit_code


def _of_an_import(error: ImportError) -> int:
    """Print that memory or Gymnasium is the cause, if so, and return UsageError's exit code; raise other errors."""
    if "failed to map segment" in str(error):
        write_line(sys.stderr, f"proximo: The memory is full ({error}). Raise the limit of the address space "
                               "(ulimit -v, or that of the scheduler).")
        return UsageError.exit_code
    with suppress(PackageNotFoundError):
        if is_too_old(found := version("gymnasium")):
            write_line(sys.stderr, f"proximo: gymnasium {found} is installed, and Proximo needs {OLDEST_GYMNASIUM} or "
                                   f"newer: {INSTALL_GYMNASIUM}. If another package has replaced it, try that package "
                                   f"with the newer one: pip install --no-deps PACKAGE. ({error})")
            return UsageError.exit_code
    raise error


def _of_a_file(error: OSError) -> int:
    """Print an unexpected OSError, and return the exit code of FilesError."""
    if error.filename is None and not write_line(sys.stdout, ""):
        return _unwritten(error)
    named = (*FULL, errno.EMFILE)
    if error.filename is None and error.errno not in named:  # not the output's fault
        raise error
    of_the_name = isinstance(error, (FileExistsError, NotADirectoryError)) or (
        error.errno in READ_ONLY and not Path(error.filename or "/").exists())
    advice = f" {remedy(error)}, or choose another name." if of_the_name else ""
    advice = f" {remedy(error)}." if error.errno in named else advice
    place = error.filename or f"A file could not be {'opened' if error.errno == errno.EMFILE else 'written'}"
    write_line(sys.stderr, f"proximo: {place}: {reason(error)}.{advice}")
    return FilesError.exit_code


def _flushed(code: int) -> int:
    """Flush the output of a command that has ended, and return its exit code, or another one if that fails."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
        return 141
    except OSError as error:
        silence(sys.stdout)
        return _unwritten(error)
    return code


def _unwritten(error: OSError) -> int:
    write_line(sys.stderr, f"proximo: The output could not be written ({error.strerror}).")
    return FilesError.exit_code


def folder_problems(flag: str, path: str | Path | None, example: str) -> list[str]:
    """Return what is wrong with the file that a flag names for writing: it is a folder, in which `example` could be."""
    if not path or not is_folder(Path(path)):
        return []
    return [f"{flag} {path} is a folder. Name a file in it: {Path(path, example)}"]


def exit_at_once(code: int) -> None:
    """Exit without cleaning up: JAX and NCCL would wait there for processes that are gone, and then abort."""
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(code)
