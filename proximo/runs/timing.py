"""Measure the time of environments: the loop gets environments that record it, and measures nothing itself."""

import math
from collections.abc import Callable
from time import perf_counter
from typing import Any

from proximo.envs.calls import groups_of
from proximo.protocols import MakeEnvs
from proximo.runs.check.value_ranges import FirstValues


class Recorder:
    """Records when environments were stepped, and when learning began, within one iteration.

    Args:
        overlap: Whether environments are stepped while an update runs, so that there are no shares of the time.
    """

    def __init__(self, overlap: bool = False) -> None:
        self._overlap = overlap
        self.environment, self.began, self.played, self.learning = 0.0, 0.0, 0.0, 0.0
        self._last = math.nan  # when `shares` was called the last time
        self.tried = False  # whether environments were made, or making them was tried
        self.first: FirstValues | None = FirstValues()  # of the first iteration; None: it has ended

    def note_step(self, began: float, ended: float) -> None:
        """Add a step of the environments."""
        self.began = self.began or began
        self.played = ended
        self.environment += ended - began

    def parts(self, began: float, ended: float) -> dict[str, float]:
        """Return the seconds of the parts of an iteration, and start again.

        Without environments that Python steps, everything is one compiled function. Where the loss is compiled, it is
        not called, and evaluation counts as learning.
        """
        environment, played, learning = self.environment, self.played, self.learning
        self._forget()
        if not played:
            return {"compiled iteration": ended - began}
        found = {"environment": environment, "acting": played - began - environment}
        if learning:
            found["evaluation and advantages"] = learning - played
        return found | {"learning": ended - (learning or played)}

    def shares(self) -> dict[str, float]:
        """Return the shares of the time since the last call that environments, acting and learning took; start again.

        Logging, checkpoints and evaluations are the rest. The values of the first call, which includes set-up, are NaN.
        Without environments that Python steps there are none, and with --overlap.
        """
        now, last, self.first = perf_counter(), self._last, None
        environment, began, played = self.environment, self.began, self.played
        self._forget()
        self._last = now
        if not played or self._overlap:
            return {}
        seconds = {"environment": environment, "acting": played - began - environment, "learning": now - played}
        return {f"time/{part}": value / (now - last) for part, value in seconds.items()}

    def _forget(self) -> None:
        """Start again."""
        self.environment = self.began = self.played = self.learning = 0.0


class TimedEnvs:
    """A VecEnv, or a GroupedVecEnv, that records how long step(), send() and receive() take."""

    def __init__(self, envs: Any, recorder: Recorder) -> None:
        self._envs, self._recorder = envs, recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._envs, name)

    @property
    def groups(self) -> int:
        """See GroupedVecEnv.groups."""
        return groups_of(self._envs)

    def step(self, action: Any) -> Any:
        return self._look(self._time(self._envs.step, action))

    def send(self, group: int, action: Any) -> None:
        self._time(self._envs.send, group, action)

    def receive(self, group: int) -> Any:
        """See GroupedVecEnv.receive. Only the waiting counts, not the steps of workers while the policy acts."""
        return self._look(self._time(self._envs.receive, group))

    def _look(self, step: Any) -> Any:
        if (first := self._recorder.first) is not None:  # with --overlap, another thread may end the first iteration
            first.count(step, self._envs.observation_space)
        return step

    def _time(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function and record its time."""
        began = perf_counter()
        result = call(*arguments)
        self._recorder.note_step(began, perf_counter())
        return result


def timed(make_envs: MakeEnvs, recorder: Recorder) -> Callable[[Any, list[int]], Any]:
    """Return a function that makes the same environments and records their steps, and that it was called."""
    def make(cfg: Any, seeds: list[int]) -> Any:
        recorder.tried = True
        return TimedEnvs(make_envs(cfg, seeds), recorder)

    return make
