"""Standard streams that are closed, full, without a reader or in ASCII: output can neither end nor prevent training."""

import ctypes
import io
import os
import sys
from contextlib import suppress
from typing import IO, Any, NoReturn

NARROWEST = 20  # characters in a line


def prepare_streams() -> None:
    """Open /dev/null in place of closed standard streams; otherwise a file of a run would take their numbers.

    Characters that the encoding of the output lacks are escaped, as Python does on standard error. Where a program that
    shares the terminal has made it non-blocking, Python would leave out what does not fit: it blocks again. A width of
    the terminal in which nothing can be written, such as COLUMNS=0, is forgotten.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115
            if stream.fileno() == number:
                os.set_inheritable(number, True)
            setattr(sys, name, stream)
    for number in (1, 2):
        with suppress(OSError, AttributeError):  # closed; Windows
            os.set_blocking(number, True)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if (columns := os.environ.get("COLUMNS", "")).isdecimal() and int(columns) < NARROWEST:
        del os.environ["COLUMNS"]


def return_text(value: float) -> str:
    """Write a return with two decimal places, one that is smaller than 0.1 with three digits."""
    return f"{value:.3g}" if 0 < abs(value) < 0.1 else f"{value:.2f}"


def printable(text: str) -> str:
    """Return text without control characters: they are written as in Python, ESC as backslash x1b."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else repr(one)[1:-1] for one in text)


def write_line(stream: IO[Any], line: str) -> bool:
    """Write a line without control characters, and flush it.

    Returns:
        False if that fails; the stream is not used again.
    """
    try:
        stream.write(f"{printable(line)}\n")
        stream.flush()
    except OSError:
        silence(stream)
        return False
    except (AttributeError, ValueError):  # a program has closed it, or given one without flush() or this character
        return False
    return True


def end_now(code: int) -> NoReturn:
    """End the process with an exit code, without waiting for threads and native code; what was printed is written."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, or nothing reads it any more
            stream.flush()
    os._exit(code)


def exit_with(code: int) -> NoReturn:
    """End the process with the exit code of a command.

    After a signal, XLA may still compile or compute on threads of its own. A normal end of the interpreter would wait
    for them, or crash. All files are closed by then, so the process ends without it.
    """
    if code > 128 and "jax" in sys.modules:
        end_now(code)
    sys.exit(code)


def skip_destructors() -> None:
    """When the process ends, skip the destructors of native libraries, whose threads may still compute.

    Python has closed its files by then, and the buffers of C are written. Only glibc can do so.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "on_exit"):
        libc.on_exit(libc._exit, None)  # gets the exit code
        libc.__cxa_atexit(libc.fflush, None, None)  # is called before, because it comes later


def silence(stream: IO[Any]) -> None:
    """Send everything that is written to a stream from here on, and what waits in its buffer, to /dev/null."""
    with suppress(OSError, ValueError):  # not a file
        number = stream.fileno()
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, number)
        os.close(nothing)
