"""The episodes of a run, read from episodes.csv, and their rolling mean; learning curves and their mean over seeds."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from proximo.errors import warn_once
from proximo.runs.folder.csv_file import read_header
from proximo.runs.folder.files import open_regular

MOST = 2.0**62  # of a number: damaged lines may have any
POINTS = 1000  # of a mean over seeds
WINDOW = 100  # episodes of a rolling mean, as in published tables


class EpisodeTable(NamedTuple):
    """The finished episodes of a run, in order of steps. All arrays are (E,)."""

    step: np.ndarray
    """int64, environment steps of the whole run when the episode ended"""
    seconds: np.ndarray
    """float64, wall time when it was logged"""
    ret: np.ndarray
    """float64, undiscounted return of raw rewards"""
    length: np.ndarray
    """float64, environment steps of the episode"""


def read_episodes(run: Path) -> EpisodeTable:
    """Read the finished episodes of a run; there is none before its first iteration has ended.

    An incomplete line at the end, as a live run or a kill leaves it, is skipped; other damaged lines with a warning.

    Raises:
        FilesError: episodes.csv is not a regular file.
    """
    try:
        with open_regular(run / "episodes.csv", most=None) as file:
            lines = file.read().decode(errors="replace").split("\n")
    except FileNotFoundError:
        lines = [""]
    names = lines[0].split(",")
    wanted = ("step", "seconds", "return", "length")
    rows = list(_rows(lines[1:-1], names, wanted)) if set(wanted) <= set(names) else []
    if damaged := len(lines[1:-1]) - len(rows):
        warn_once(f"{run / 'episodes.csv'}: {damaged} of {len(lines) - 2} lines are damaged. They are left out.")
    table = np.array(rows, np.float64).reshape(-1, len(wanted)).T
    table = table[:, np.argsort(table[0], kind="stable")]
    return EpisodeTable(step=table[0].astype(np.int64), seconds=table[1], ret=table[2], length=table[3])


def newest_mean(run: Path, metric: str, begin: int = -1) -> float | None:
    """Return the mean return, or length, of the newest WINDOW episodes of a run; None if no episode ended.

    Args:
        run: Its folder.
        metric: episodic_return or episodic_length.
        begin: Only episodes that ended after this environment step count.

    Raises:
        FilesError: episodes.csv is not a regular file.
    """
    episodes = read_episodes(run)
    values = (episodes.length if metric == "episodic_length" else episodes.ret)[episodes.step > begin]
    return float(np.mean(values[-WINDOW:])) if len(values) else None


def _rows(lines: list[str], names: list[str], wanted: tuple[str, ...]) -> Iterator[list[float]]:
    columns = [names.index(name) for name in wanted]
    for line in lines:
        cells = line.split(",")
        if len(cells) == len(names):
            try:
                row = [float(cells[k]) for k in columns]
            except ValueError:
                continue
            if all(abs(value) < MOST for value in row):
                yield row


def read_metric(run: Path, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Read a column of metrics.csv, without the lines in which it is empty or not a finite number.

    Returns:
        Environment steps and values, (E,) each; None if there is no such column.

    Raises:
        FilesError: metrics.csv is not a regular file.
    """
    columns = metric_names(run)
    if not {"global_step", name} <= set(columns):
        return None
    with open_regular(run / "metrics.csv", most=None) as file:
        lines = file.read().decode(errors="replace").split("\n")
    rows = list(_rows(lines[1:-1], columns, ("global_step", name)))
    table = np.array(rows, np.float64).reshape(-1, 2).T
    return table[0].astype(np.int64), table[1]


def newest_evaluation(run: Path) -> float | None:
    """Return the mean return of the last evaluation during training (eval_every); None without one."""
    try:
        found = read_metric(run, "eval/return_mean")
    except OSError:
        return None
    return None if found is None or not len(found[1]) else float(found[1][-1])


def metric_names(run: Path) -> list[str]:
    """Return the columns of metrics.csv; none before the first iteration has ended."""
    try:
        return read_header(run / "metrics.csv")
    except FileNotFoundError:
        return []


def rolling_mean(values: np.ndarray, window: int = WINDOW) -> np.ndarray:
    """Return (E,): the mean of each value and of the up to window-1 values before it."""
    values = np.asarray(values, np.float64)
    first = np.cumsum(values[:window - 1]) / np.arange(1, len(values[:window - 1]) + 1)
    if len(values) < window:
        return first
    whole = sliding_window_view(values, window).mean(axis=1)  # differences of sums would lose digits after a huge value
    return np.concatenate([first, whole])


def last_of_equal(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keep the last y of each x, where x rises: parallel environments often end an episode at the same step."""
    last = np.append(x[1:] != x[:-1], True) if len(x) else np.zeros(0, bool)
    return x[last], y[last]


class Curve(NamedTuple):
    """The learning curve of one run."""

    variant: str
    config: dict[str, Any]
    steps: np.ndarray
    """(E,) environment steps when each episode ended, or each line of metrics.csv was written; rising"""
    values: np.ndarray
    """(E,) undiscounted returns of raw rewards, or another metric"""
    path: Path = Path()
    """the folder of the run"""
    trained: int = 0
    """environment steps so far: its last episode ends before them; 0: not known"""


def average_over_seeds(curves: Sequence[Curve], window: int = WINDOW) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Average rolling means over runs from where all have a value; each run counts up to where it stopped.

    Args:
        curves: At least one curve with values.
        window: Values of the rolling mean.

    Returns:
        Environment steps, mean and population standard deviation, (POINTS,) each.
    """
    curves = [curve for curve in curves if len(curve.steps)]
    end = max(curve.steps[-1] for curve in curves)
    at = np.linspace(max(curve.steps[0] for curve in curves), end, POINTS)
    values = np.empty((len(curves), POINTS))
    for value, curve in zip(values, curves, strict=True):
        value[:] = np.interp(at, *last_of_equal(curve.steps, rolling_mean(curve.values, window)), left=np.nan)
        last = max(curve.steps[-1] + 0.05 * end, curve.trained)  # a long last episode does not count as an early stop
        value[at > last] = np.nan
    reached = np.isfinite(values)
    count = reached.sum(axis=0)
    with np.errstate(invalid="ignore"):
        mean = np.where(reached, values, 0).sum(axis=0) / count
        deviation = np.sqrt(np.where(reached, (values - mean) ** 2, 0).sum(axis=0) / count)
    return at, mean, deviation
