"""The metrics of several iterations as one line of the log (--log-every)."""

import math
from collections.abc import Mapping

from proximo.protocols import COUNTS

NEWEST = {"charts/SPS", "charts/learning_rate", *(f"charts/{name}" for name in COUNTS)}  # not the mean
OF_EPISODES = "charts/episodic_"  # means over episodes: iterations count by the number of episodes that they ended


class Window:
    """Gathers the metrics of iterations until their line is due.

    A line is due after the first iteration of a run, after every iteration whose number is a multiple of `every`, and
    after the last one.

    Args:
        every: Iterations per line.
        kept: The `state()` that the checkpoint contains, to continue from.
    """

    def __init__(self, every: int, kept: Mapping[str, tuple[float, float]] | None = None) -> None:
        self._every = every
        self._sums: dict[str, tuple[float, float]] = {name: (x, weight) for name, (x, weight) in (kept or {}).items()}

    def add(self, iteration: int, values: dict[str, float], episodes: int, last: bool) -> dict[str, float] | None:
        """Add the metrics of an iteration.

        Args:
            iteration: Its number, from 1.
            values: Its metrics by name; NaN counts nothing.
            episodes: Number of episodes that ended in it.
            last: Whether the run ends after it.

        Returns:
            The mean of each metric since the last line if a line is due, otherwise None.
        """
        if self._every == 1:
            return values
        for name, value in values.items():
            total, weight = (0.0, 0.0) if name in NEWEST else self._sums.get(name, (0.0, 0.0))
            more = 0.0 if math.isnan(value) else float(episodes) if name.startswith(OF_EPISODES) else 1.0
            self._sums[name] = (total + more * value, weight + more) if more else (total, weight)
        if iteration > 1 and iteration % self._every and not last:
            return None
        means = {name: total / weight if weight else math.nan for name, (total, weight) in self._sums.items()}
        self._sums = {}
        return means

    def state(self) -> dict[str, tuple[float, float]]:
        """Return the sums and weights since the last line, ready for JSON."""
        return dict(self._sums)
