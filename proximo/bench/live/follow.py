"""The curves and the last lines of one run, read from its CSV files as they grow."""

import re
from collections import deque
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

import numpy as np

from proximo.bench.live.downsample import Thinned
from proximo.bench.live.tail import Tail, to_numbers
from proximo.models.curves import WINDOW, rolling_mean

POINTS = 1000  # of the curve of one run
MOST_POINTS = 20_000  # of one curve over all runs that are found at once; curves of earlier ones stay as they are
MOST_COLUMNS = 40  # of more, those of training are kept, which warnings and shares of the time are about
OF_TRAINING = ("losses/", "time/", "charts/SPS", "charts/learning_rate", "eval/return_")
NEWEST = 8  # episodes that are kept as they are
RECENT = 20  # lines of metrics.csv that a warning looks at
LEFT_OUT = r"iteration|global_step|seconds|charts/(avg_)?episodic_(return|length)(-.*)?"  # episodes.csv says it better
EPISODE_COLUMNS = ("step", "seconds", "mean_return", "mean_length", "return", "length")


class Curves:
    """Follows metrics.csv and episodes.csv of one run.

    Args:
        folder: The run folder, to which nothing is written.
        points: The largest number of points of a curve.
    """

    def __init__(self, folder: Path, points: int = POINTS) -> None:
        self.metrics, self.episodes = Thinned(points, last=2), Thinned(points, last=4)
        """points of step, seconds and one column for each of `names`; points of EPISODE_COLUMNS"""
        self.names: list[str] = []
        self.first: list[dict[str, float]] = []
        self.recent: deque[dict[str, float]] = deque(maxlen=RECENT)
        """the first and the newest lines of metrics.csv, at most RECENT each, without empty cells"""
        self.newest: deque[tuple[float, float, float]] = deque(maxlen=NEWEST)
        """step, return and length of the newest episodes"""
        self.mean_return: float | None = None
        """of the last 100 episodes; None before the first"""
        self._metrics, self._episodes = Tail(folder / "metrics.csv"), Tail(folder / "episodes.csv")
        self._window = np.empty((0, 2))  # returns and lengths of the last WINDOW - 1 episodes

    @property
    def more(self) -> bool:
        """Whether the files have lines that the last refresh did not reach."""
        return self._metrics.more or self._episodes.more

    @property
    def skipped(self) -> int:
        """Bytes at the beginning of very long files that are left out."""
        return self._metrics.skipped + self._episodes.skipped

    @property
    def step(self) -> int:
        """Environment steps in the last line of metrics.csv; 0 before the first."""
        return int(self.last("global_step") or 0)

    def last(self, name: str) -> float | None:
        """Return the newest value of a metric; None if there is none."""
        return next((row[name] for row in reversed(self.recent) if name in row), None)

    def refresh(self) -> None:
        """Read what is new, at most a few megabytes."""
        self._refresh_metrics()
        self._refresh_episodes()

    def read_all(self) -> None:
        """Read the files to their ends."""
        self.refresh()
        while self.more:
            self.refresh()

    def _refresh_metrics(self) -> None:
        rows, again = self._metrics.read()
        names = self._metrics.names
        if again:
            shown = [name for name in names if not re.fullmatch(LEFT_OUT, name)]
            kept = sorted(shown, key=lambda name: not name.startswith(OF_TRAINING))[:MOST_COLUMNS]
            self.names = [name for name in shown if name in kept]
            self.metrics.clear(2 + len(self.names))
            self.first.clear()
            self.recent.clear()
        if not rows or not {"global_step", "seconds"} <= set(names):
            return
        wanted = ["global_step", "seconds", *self.names]
        values = to_numbers(rows, [names.index(name) for name in wanted])
        self.metrics.add(values)
        self.first += [_known(wanted, row) for row in values[:RECENT - len(self.first)].tolist()]
        self.recent.extend(_known(wanted, row) for row in values[-RECENT:].tolist())

    def _refresh_episodes(self) -> None:
        rows, again = self._episodes.read()
        names = self._episodes.names
        if again:
            self.episodes.clear(len(EPISODE_COLUMNS))
            self.newest.clear()
            self.mean_return = None
            self._window = np.empty((0, 2))
        wanted = ("step", "seconds", "return", "length")
        if not rows or not {*wanted} <= set(names):
            return
        values = to_numbers(rows, [names.index(name) for name in wanted])
        values = values[np.isfinite(values).all(axis=1)]
        values = values[np.argsort(values[:, 0], kind="stable")]
        window = np.concatenate([self._window, values[:, 2:]])
        means = np.stack([rolling_mean(column)[len(self._window):] for column in window.T], axis=1)
        self.episodes.add(np.concatenate([values[:, :2], means, values[:, 2:]], axis=1))
        self._window = window[1 - WINDOW:]
        self.mean_return = float(means[-1, 0]) if len(means) else self.mean_return
        self.newest.extend((step, ret, length) for step, _, ret, length in values[-NEWEST:].tolist())


def _known(names: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    """Return the values that are finite, by name."""
    return {name: value for name, value in zip(names, values, strict=True) if isfinite(value)}


def points_of_each(runs: int) -> int:
    """Return how many points the curve of each of so many runs may have; an even number."""
    return max(20, min(POINTS, MOST_POINTS // max(1, runs) // 2 * 2))
