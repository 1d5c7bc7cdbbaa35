"""Signals that end a search in order."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event


class Halt(Event):
    """Is set when a signal has ended a search."""

    number: int = signal.SIGINT
    """the number of the signal"""


@contextmanager
def halt_on_signals() -> Iterator[Halt]:
    """Set an event on Ctrl-C and SIGTERM, so that every thread stops its own run in order."""
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
