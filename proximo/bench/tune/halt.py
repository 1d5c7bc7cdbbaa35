"""Signals that end a search in order."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Halt:
    """Is set when a signal has ended a search.

    Not an Event of threading: a second signal during `set` of the first, which holds the event's lock, would wait for
    this lock for ever.
    """

    number: int = signal.SIGINT
    """the number of the signal"""
    _is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Sleep, then return whether it is set."""
        if not self._is_set:
            time.sleep(seconds)
        return self._is_set


@contextmanager
def halt_on_signals() -> Iterator[Halt]:
    """Set a Halt on Ctrl-C and SIGTERM, so that every thread stops its own run in order."""
    halt, before = Halt(), {}

    def set_halt(number: int, _: object) -> None:
        halt.number = number
        halt.set()
    try:
        before = {number: signal.signal(number, set_halt) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # outside the main thread, whose program handles signals
        pass
    try:
        yield halt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
