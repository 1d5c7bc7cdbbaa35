"""SIGTERM as a KeyboardInterrupt, for commands that clean up before they end."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from proximo.runs.interrupts.unbroken import Unbroken


class TerminatedError(KeyboardInterrupt):
    """SIGTERM has arrived."""


def interrupted_code(error: KeyboardInterrupt) -> int:
    """Return the exit code of a command that a signal has ended: 128 plus the number of the signal."""
    return 128 + (signal.SIGTERM if isinstance(error, TerminatedError) else signal.SIGINT)


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Raise TerminatedError, a KeyboardInterrupt, when SIGTERM arrives, as Ctrl-C does.

    Within an import, it is raised when that has ended. Nothing changes outside the main thread, or where a program has
    already installed its own handler.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    unbroken = Unbroken()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not unbroken.postpones(number, frame):
            raise TerminatedError

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
