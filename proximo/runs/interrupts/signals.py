"""SIGINT and SIGTERM while a run trains: it ends after the iteration, or within seconds where that does not end."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import FrameType
from typing import Any, NoReturn

from proximo.errors import EnvError, ProximoError, no_threads, warn
from proximo.runs.interrupts.unbroken import KEPT, LOOKS, UNBROKEN, Unbroken, interrupt_main, keep_for_xla

GRACE_SECONDS = 7.0  # after SIGTERM, for the iteration; Docker sends SIGKILL after 10 s
LEAVE_SECONDS = 1.0  # for the main thread, which is then interrupted
OWN_SESSION = ("Ctrl-C is sent to programs that an environment has started, too. Start them in a session of their own "
               "(subprocess.Popen(..., start_new_session=True)), so that they answer until the iteration has ended.")
ENDED = 0  # what the thread reads instead of the number of a signal
AGAIN = 255  # the same: the next signal was sent again, see Unbroken


class Signals:
    """While entered, SIGINT and SIGTERM request an end after the current iteration; a second one ends at once.

    Before the first iteration has ended, the first signal ends at once. After SIGTERM, so does an iteration that takes
    longer than GRACE_SECONDS. "At once" is a KeyboardInterrupt in the main thread. If that thread does not leave within
    LEAVE_SECONDS, because native code runs in it, a second thread calls `abandon` and exits. That thread sleeps until
    the operating system has delivered a signal (`signal.set_wakeup_fd`). It cannot run while native code holds the lock
    of the interpreter.

    A signal that arrives during an import counts when the import has ended (unbroken.py).

    Args:
        abandon: Called with the number of the signal, once, before the process ends within an iteration.
        ends_process: Whether the first SIGINT may end the process. In a program only a second signal does.

    Attributes:
        received: The number of the first signal.
    """

    def __init__(self, abandon: Callable[[int], None] = lambda number: None, ends_process: bool = True) -> None:
        self.received: int | None = None
        self._ends_process, self._unbroken = ends_process, Unbroken(self._mark)
        self._abandon, self._abandoned, self._began, self._skips = abandon, False, False, False
        self._before: dict[int, Any] = {}
        self._lock = threading.Lock()  # is held while the run is abandoned

    def __enter__(self) -> "Signals":
        if threading.current_thread() is not threading.main_thread():  # Python delivers signals to that thread only
            return self
        self._inbox, self._outbox = socket.socketpair()
        self._thread = threading.Thread(target=self._attend, name="proximo-signals", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._close_pair()
            raise no_threads(error) from error
        self._outbox.setblocking(False)
        self._fd_before = signal.set_wakeup_fd(self._outbox.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        ENTERED.append(self)
        register_fork_handler()
        return self

    def __exit__(self, *_: object) -> None:
        if self._before:
            ENTERED.remove(self)
            self.restore(self._fd_before)
            self._dismiss()
            self._thread.join()
            self._close_pair()

    def _close_pair(self) -> None:
        self._inbox.close()
        self._outbox.close()

    def restore(self, wakeup_fd: int) -> None:
        """Restore the handlers that were there before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup_fd)

    @property
    def has_handlers(self) -> bool:
        """Whether the handlers of this object are installed."""
        return signal.getsignal(signal.SIGTERM) == self._note

    def iteration_ended(self) -> None:
        """Record that an iteration has ended. If a signal has arrived, there is time to save and to leave in order."""
        with self._lock:
            self._began = True
            if self.received is not None:
                self._dismiss()

    def raise_interrupt(self, error: KeyboardInterrupt | EnvError) -> NoReturn:
        """Raise KeyboardInterrupt after a signal, also if an environment failed then; warn of its fault.

        Ctrl-C on a terminal is sent to the programs that an environment has started, too. They may end by it.
        """
        if isinstance(error, KeyboardInterrupt):
            raise error
        warn(f"{error}. {OWN_SESSION if self.received == signal.SIGINT else ''}".strip())
        raise KeyboardInterrupt from error

    def abandon_once(self, interrupt: BaseException | None = None) -> None:
        """Call `abandon`, unless the other thread has done so.

        XLA may still compile, and read what frames of `interrupt` hold. All of them are kept where the process ends.
        """
        if self._ends_process:
            KEPT.append(interrupt)
        else:
            keep_for_xla(interrupt)
        with self._lock:
            if not self._abandoned:
                self._abandoned = True
                self._abandon(self.received or signal.SIGINT)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._unbroken.postpones(number, frame):
            return
        again = self.received is not None
        self.received = self.received or number
        if again or not self._began:
            raise KeyboardInterrupt
        how = "press Ctrl-C again" if number == signal.SIGINT else "send the signal again"
        with suppress(RuntimeError):  # the interrupted code was writing to the same stream
            warn(f"Stopping after this iteration; {how} to stop now.")

    setattr(_note, UNBROKEN, True)

    def _dismiss(self) -> None:
        if self._before:
            self._tell(ENDED)

    def _mark(self) -> None:
        self._tell(AGAIN)

    def _tell(self, number: int) -> None:
        with suppress(OSError):  # full: the thread has enough to read
            self._outbox.send(bytes([number]))

    def _attend(self) -> None:
        """Run in a thread: end the process where the main thread does not answer a signal in time."""
        number = self._read(None)
        if number == ENDED:
            return
        self._unbroken.begin()
        if self._began:
            again = self._read(GRACE_SECONDS if number == signal.SIGTERM else None)
            if again == ENDED:
                return
            if again is None:
                interrupt_main(number)
        if self._leaves():
            return
        if number == signal.SIGINT and not self._ends_process and not self._began:
            warn("Native code is running; the interrupt takes effect when it returns. Interrupt again to end the "
                 "process.")
            number = self._read(None)
            if number == ENDED or self._leaves():
                return
        self.received = self.received or number
        try:
            self.abandon_once()
        except ProximoError as error:
            warn(str(error))
        os._exit(128 + number)

    def _leaves(self) -> bool:
        """Return whether the main thread leaves within LEAVE_SECONDS; those in which it imports do not count.

        Looks are counted, not time: a busy machine, or one that sleeps, delays both threads.
        """
        looks = most = round(LEAVE_SECONDS / LOOKS)
        while looks > 0:
            if self._read(LOOKS) == ENDED:
                return True
            looks = most if self._unbroken.is_waiting() else looks - 1
        return False

    def _read(self, seconds: float | None) -> Any:
        """Wait for SIGINT, SIGTERM or ENDED, and return its number; None if nothing comes within so many seconds.

        A signal that Unbroken sends again was read before.
        """
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            try:
                self._inbox.settimeout(None if end is None else max(0.001, end - time.monotonic()))
                found = self._inbox.recv(1)[0]
            except TimeoutError:
                return None
            if found == AGAIN:
                self._skips = True
            elif found in (signal.SIGINT, signal.SIGTERM) and self._skips:
                self._skips = False
            elif found in (ENDED, signal.SIGINT, signal.SIGTERM):
                return found


ENTERED: list[Signals] = []  # the last one has the handlers


@cache
def register_fork_handler() -> None:
    """Register restore_in_child once: a handler stays for the life of the process, and every fork calls it."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=restore_in_child)


def restore_in_child() -> None:
    """Let signals to a forked process, such as one of an environment, neither be noted nor reach this process."""
    for signals in reversed(ENTERED):
        if signals.has_handlers:
            signals.restore(-1)
