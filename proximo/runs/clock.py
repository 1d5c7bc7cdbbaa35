"""The time that a run takes, and its speed without set-up and compilation."""

import time
from typing import Any


class Clock:
    """Measure a run over all processes that have trained it.

    The first iteration of each process includes set-up and compilation, so the speed is measured from its end on:
    SPS is the number of environment steps per second after it. `compile_seconds` is the time until the first iteration
    has ended, minus the time that as many steps take at that speed. Both are None until a second iteration has ended.

    Args:
        resume: The `state()` of the clock of an earlier process.
        started: `time.perf_counter()` when this process started to set up; None: now.
    """

    def __init__(self, resume: dict[str, Any] | None = None, started: float | None = None) -> None:
        before = resume or {}
        self._seconds_before: float = before.get("seconds", 0.0)
        self._first_seconds: float = before.get("first_seconds", 0.0)  # of the first iterations of all processes
        self._first_steps: int = before.get("first_steps", 0)
        self._steps: int = before.get("steps", 0)
        self._started = time.perf_counter() if started is None else started
        self._ended = self._seconds_before  # seconds when the last iteration ended
        self._first = True  # no iteration of this process has ended

    @property
    def seconds(self) -> float:
        """Return the time of all processes until now."""
        return self._seconds_before + time.perf_counter() - self._started

    def count_iteration(self, steps: int) -> float:
        """Note that an iteration has ended.

        Args:
            steps: Environment steps of the whole run so far.

        Returns:
            `seconds`.
        """
        self._ended = self.seconds
        if self._first:
            self._first = False
            self._first_seconds += self._ended - self._seconds_before
            self._first_steps += steps - self._steps
        self._steps = steps
        return self._ended

    @property
    def sps(self) -> float | None:
        """Return environment steps per second without set-up and compilation."""
        if self._steps <= self._first_steps:
            return None
        return (self._steps - self._first_steps) / (self._ended - self._first_seconds)

    @property
    def compile_seconds(self) -> float | None:
        """Return the time of set-up and compilation, over all processes."""
        sps = self.sps
        return None if sps is None else max(0.0, self._first_seconds - self._first_steps / sps)

    def seconds_left(self, steps: float) -> float:
        """Return the seconds that this many more steps take; an upper bound as long as `sps` is None."""
        return steps / (self.sps or max(self._steps, 1) / self._ended)

    def state(self) -> dict[str, Any]:
        """Return what a later process continues from, ready for JSON."""
        return {"seconds": self.seconds, "first_seconds": self._first_seconds, "first_steps": self._first_steps,
                "steps": self._steps}
