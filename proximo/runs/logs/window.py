"""The metrics of several iterations as one line of the log (--log-every)."""

import math
from collections.abc import Mapping

from proximo.protocols import COUNTS

NEWEST = {"charts/SPS", "charts/learning_rate", *(f"charts/{name}" for name in COUNTS)}  # not the mean
EVALUATIONS = "eval/"  # not the mean either: each is of one agent, and the last one is the score of a run


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

    def add(self, iteration: int, values: dict[str, float], counts: Mapping[str, int],
            last: bool) -> dict[str, float] | None:
        """Add the metrics of an iteration.

        Args:
            iteration: Its number, from 1.
            values: Its metrics by name; NaN counts nothing.
            counts: Of each metric that is a mean over episodes, their number, by which the iteration counts.
            last: Whether the run ends after it.

        Returns:
            The mean of each metric since the last line if a line is due, otherwise None; of some the newest value.
        """
        if self._every == 1 and not self._sums:  # otherwise a resume has changed --log-every between two lines
            return values
        for name, value in values.items():
            total, weight = self._sums.setdefault(name, (0.0, 0.0))
            if math.isnan(value):
                continue
            if name in NEWEST or name.startswith(EVALUATIONS):
                self._sums[name] = value, 1.0
            else:
                more = float(max(1, counts.get(name, 1)))
                self._sums[name] = total + more * value, weight + more
        if iteration > 1 and iteration % self._every and not last:
            return None
        means = {name: total / weight if weight else math.nan for name, (total, weight) in self._sums.items()}
        self._sums = {}
        return means

    def state(self) -> dict[str, tuple[float, float]]:
        """Return the sums and weights since the last line, ready for JSON."""
        return dict(self._sums)
