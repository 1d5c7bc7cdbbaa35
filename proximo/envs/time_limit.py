"""A limit on the time that one call of an environment may take, for calls in this process; making and closing them."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, SupportsFloat

import gymnasium as gym

from proximo.errors import EnvError, warn, warn_once, with_place

CLOSE_SECONDS = 10.0
POLL_SECONDS = 1.0  # between two looks at the time that is left, or at the processes that are waited for
MOST_SECONDS = 2 * POLL_SECONDS  # that one of them counts; more have passed where this process could not run
OWN_PORT = "If two of them use the same port or file, let each take its own (docs/game-engines.md)."
ONLY_ONE = (f"{OWN_PORT} If a process can have only one of these environments, use --num-envs 1, or train with a "
            "process for each: as many --env-workers as --num-envs.")
Observer = Callable[[str, float], None]  # gets a call and its limit in seconds; ("", 0) when it has returned
OBSERVER: ContextVar[Observer] = ContextVar("OBSERVER", default=lambda what, seconds: None)


class TimeLeft:
    """The time that other processes have to answer. While all are stopped, such as by Ctrl-Z, it does not pass.

    Args:
        seconds: How much there is.
    """

    def __init__(self, seconds: float) -> None:
        self._left, self._seen = seconds, time.monotonic()

    def seconds(self) -> float:
        """Return how much is left. Call it every POLL_SECONDS or more often."""
        now = time.monotonic()
        self._left, self._seen = self._left - min(now - self._seen, MOST_SECONDS), now
        return max(self._left, 0.0)


def overdue(what: str, seconds: float) -> str:
    """Return the message of a call that has not returned within its limit, which is --env-timeout unless it closes."""
    advice = "" if what == "close()" else ". Increase --env-timeout if it needs more time"
    return f"{what} did not return within {seconds:g} s{advice}"


@contextmanager
def time_limit(seconds: float, what: str) -> Iterator[None]:
    """Raise EnvError in the block if it takes longer.

    It works by SIGALRM, which Python delivers to the main thread only. In another thread, on Windows, and in a call of
    native code that does not return, there is no limit. An OBSERVER in another process can limit these too. A timer
    of the program, or of an outer time_limit, continues afterwards; if it has expired meanwhile, it fires at once.
    Where the process was stopped (Ctrl-Z) or in native code when the limit ended, and for MOST_SECONDS after it, the
    limit begins again.

    Args:
        seconds: The limit.
        what: What is called, for the message.
    """
    observe = OBSERVER.get()
    observe(what, seconds)
    try:
        with _alarm(seconds, what):
            yield
    finally:
        observe("", 0)


@contextmanager
def _alarm(seconds: float, what: str) -> Iterator[None]:
    begin = time.monotonic()
    due, ended = begin + seconds, False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal due, ended
        if (now := time.monotonic()) <= due + MOST_SECONDS:
            ended = True
            raise EnvError(overdue(what, seconds))
        due = now + seconds
        signal.setitimer(signal.ITIMER_REAL, seconds)

    main = threading.current_thread() is threading.main_thread() and not sys.is_finalizing()  # only there are signals
    if not main or not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, end)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
        if ended:
            raise EnvError(overdue(what, seconds))  # the block, or native code that called Python, has caught it
    except Exception as error:
        if ended and not isinstance(error, EnvError):  # what follows where native code has ignored the EnvError
            raise EnvError(overdue(what, seconds)) from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begin), 1e-3), interval)


class LimitedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose calls may take only so many seconds each."""

    def __init__(self, env: gym.Env, seconds: float, name: str) -> None:
        super().__init__(env)
        self._seconds, self._name = seconds, name

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        """See gymnasium.Env.reset. An environment gets only what is given here: it may take no `options`."""
        with time_limit(self._seconds, f"{self._name}: reset()"):
            return self.env.reset(**given)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        with time_limit(self._seconds, f"{self._name}: step()"):
            return self.env.step(action)


def close_env(env: gym.Env, name: str) -> str:
    """Close an environment. A fault or a hang is reported as a warning, because the results are complete by then.

    Returns:
        What was wrong, or an empty string.
    """
    try:
        with time_limit(CLOSE_SECONDS, "close()"):
            env.close()
    except (Exception, SystemExit) as error:
        inner = getattr(env, "unwrapped", env)
        if not callable(hidden := getattr(inner, "close", None)):
            fault = (f"{type(inner).__name__} has an attribute close, a {type(hidden).__name__}, in place of "
                     "its method close(), which is not called. Give the attribute another name")
            warn_once(f"{fault}.")
            return fault
        fault = str(error) if isinstance(error, EnvError) else f"close() raised {with_place(error)}"
        warn(f"{name}: {fault}. This is ignored.")
        return fault
    return ""


def make_into(envs: list[gym.Env], make_env: Callable[[], gym.Env], count: int) -> None:
    """Make environments one after the other, and append each to a list, so that the caller can close them.

    Raises:
        UsageError: As `make_env` raises it.
        EnvError: As `make_env` raises it. If the first could be made, the message says what may be the cause.
    """
    for _ in range(count):
        try:
            envs.append(make_env())
        except EnvError as error:
            if not envs:
                raise
            raise EnvError(f"{error}. {ONLY_ONE}") from error
