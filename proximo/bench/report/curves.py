"""Learning curves of the runs of one group, on an axis that all of them share."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from proximo.bench.results import RunResult, metric_of
from proximo.models.curves import MOST, read_episodes, rolling_mean
from proximo.runs.folder.files import open_regular

Axis = Literal["step", "seconds"]


def rolling_curve(run: RunResult, axis: Axis) -> tuple[np.ndarray, np.ndarray]:
    """Return x and the mean over the last 100 episodes up to x, of returns or, in self-play, of lengths.

    Args:
        run: The run.
        axis: "step": environment steps; "seconds": wall time since the end of the first iteration, so that set-up and
            compilation do not count.

    Returns:
        Two arrays (episodes,); both are empty if no episode can be read.
    """
    episodes = read_episodes(run.path)
    values = rolling_mean(episodes.length if metric_of(run.variant) == "episodic_length" else episodes.ret)
    if axis == "step":
        return episodes.step.astype(float), values
    return np.maximum(0, episodes.seconds - _first_iteration_end(run)), values


def common_curves(runs: Sequence[RunResult], axis: Axis, points: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Return the curves of several runs where every run has finished an episode and is still training.

    Returns:
        x (points,) and curves (seeds, points); both are empty if the runs have no such range in common.
    """
    curves = [curve for curve in (rolling_curve(run, axis) for run in runs) if len(curve[0])]
    if not curves:
        return np.empty(0), np.empty((0, 0))
    x = np.linspace(max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves), points)
    if x[0] >= x[-1]:
        return np.empty(0), np.empty((0, 0))
    rows = [value[np.searchsorted(steps, x, side="right") - 1] for steps, value in curves]
    return x, np.array(rows)


def _first_iteration_end(run: RunResult) -> float:
    """Return the seconds from the start of a run to the end of its first iteration; 0 if they are unknown."""
    try:
        with open_regular(run.path / "metrics.csv", most=None) as file:
            names, cells = (file.readline(1 << 16).decode(errors="replace").strip().split(",") for _ in range(2))
        seconds = float(dict(zip(names, cells, strict=False))["seconds"])
    except (OSError, KeyError, ValueError):
        return 0.0
    return seconds if 0 <= seconds < MOST else 0.0
