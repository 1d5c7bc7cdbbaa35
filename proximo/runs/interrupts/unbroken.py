"""What an interrupt (Ctrl-C) must not break: it waits until an import, or a trace of torch, has ended.

A module that is half imported cannot be used or imported again, so that a later call in the same process would fail or
crash. torch's tracer, which --compile uses, ends the process where a Python exception reaches its C++ code. XLA
continues to compile on threads of its own, so what JAX has handed to it is kept.
"""

import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from proximo.errors import warn

MOST_SECONDS = 30.0  # after the first signal; then such work is broken nevertheless
LOOKS = 0.05  # seconds between two looks at what the main thread does
UNBROKEN = "postpones_in_imports"  # attribute of handlers that use Unbroken
TRACER = "torch/fx/experimental/proxy_tensor.py"
COMPILER = "jax/_src/compiler.py"  # where JAX calls XLA
KEPT: list[Any] = []  # what threads of XLA may still read, until the process ends


class Unbroken:
    """Sends signals again that arrive within imports and tracing. Only what begins after it was made counts.

    Args:
        mark: Called in another thread, immediately before a signal is sent again.
    """

    def __init__(self, mark: Callable[[], None] = lambda: None) -> None:
        self._mark, self._outside, self._sent = mark, _count(sys._getframe()), False
        self._begun = self._end = float("inf")
        self._sender = threading.Thread()

    def begin(self) -> None:
        """Let the time for such work run; the first signal has arrived."""
        if self._end == float("inf"):
            self._begun, self._end = time.monotonic(), time.monotonic() + MOST_SECONDS

    def postpones(self, number: int, frame: FrameType | None) -> bool:
        """Return whether a signal that interrupted `frame` is sent again later, and must be ignored now.

        Another signal, a second or more after the first, is not postponed.
        """
        sent, self._sent, first = self._sent, False, self._end == float("inf")
        self.begin()
        if not self._is_inside(frame) or (not sent and time.monotonic() > self._begun + 1):
            return False
        if first:
            with suppress(RuntimeError):  # the interrupted code was writing to the same stream
                warn(f"Stopping when what is being imported is complete (at most {MOST_SECONDS:.0f} s).")
        self._sender = threading.Thread(target=self._send_again, args=(number,), daemon=True)
        self._sender.start()
        return True

    def is_waiting(self) -> bool:
        """Return whether the main thread does such work, or has not yet got the signal that waits for it."""
        return self._sender.is_alive() or self._main_is_inside()

    def _main_is_inside(self) -> bool:
        return self._is_inside(sys._current_frames().get(threading.main_thread().ident or 0))

    def _is_inside(self, frame: FrameType | None) -> bool:
        return _count(frame) > self._outside and time.monotonic() < self._end

    def _send_again(self, number: int) -> None:
        while self._main_is_inside():
            time.sleep(LOOKS)
        self._mark()
        self._sent = True
        interrupt_main(number)


def _count(frame: FrameType | None) -> int:
    """Return how many frames of Python's import system and of torch's tracer there are from a frame outwards."""
    count = 0
    while frame is not None:
        name = frame.f_code.co_filename
        count += name.startswith("<frozen importlib") or name.endswith(TRACER)
        frame = frame.f_back
    return count


def interrupt_main(number: int) -> None:
    """Deliver a signal to the main thread, also while it sleeps in a system call."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:
        signal.raise_signal(signal.Signals(number))


def keep_for_xla(interrupt: BaseException | None) -> None:
    """Keep the variables of the functions of JAX that were waiting for XLA when an interrupt was raised."""
    frames = traceback.walk_tb(interrupt.__traceback__ if interrupt else None)
    KEPT.extend(dict(frame.f_locals) for frame, _ in frames if frame.f_code.co_filename.endswith(COMPILER))


@contextmanager
def kept_for_xla() -> Iterator[None]:
    """Call keep_for_xla() with a KeyboardInterrupt of the block."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        keep_for_xla(interrupt)
        raise


@contextmanager
def unbroken_imports() -> Iterator[None]:
    """Within the block, or the decorated function, SIGINT breaks no import, and no compilation by XLA.

    Nothing changes outside the main thread, where a program ignores SIGINT, or where the handler postpones already.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before) or hasattr(before, UNBROKEN):
        yield
        return
    unbroken = Unbroken()

    def note(number: int, frame: FrameType | None) -> None:
        if not unbroken.postpones(number, frame):
            before(number, frame)

    setattr(note, UNBROKEN, True)
    signal.signal(signal.SIGINT, note)
    try:
        with kept_for_xla():
            yield
    finally:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)
