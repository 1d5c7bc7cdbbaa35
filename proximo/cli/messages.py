"""What every command shares: messages on standard error, and the exit code of each fault."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from proximo.errors import LOGGER, PeerError, ProximoError


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
    """Return what `act` returns, or print its fault and return that fault's exit code."""
    try:
        with printed_messages():
            code = act()
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of the output has left (`proximo list | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # 128 + SIGPIPE
    except ProximoError as error:
        for line in str(error).splitlines():
            print(f"proximo: {line}", file=sys.stderr)
        if isinstance(error, PeerError):
            exit_at_once(error.exit_code)
        return error.exit_code
    except KeyboardInterrupt:
        print("proximo: interrupted", file=sys.stderr)
        return 130


def exit_at_once(code: int) -> None:
    """Exit without cleaning up: JAX and NCCL would wait there for processes that are gone, and then abort."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
