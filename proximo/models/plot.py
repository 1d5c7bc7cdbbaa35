"""Learning curves as a picture: one panel an environment, one line a setting, mean and spread over its seeds."""

import json
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np

from proximo.catalog import VARIANTS
from proximo.errors import FilesError, UsageError
from proximo.facts import facts_of_all

WINDOW = 100
POINTS = 1000
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe & Ito 2008


class Curve(NamedTuple):
    """One run, read from its folder."""

    variant: str
    config: dict[str, Any]
    steps: np.ndarray  # (E,) decisions when each episode ended, rising
    returns: np.ndarray  # (E,) raw


def learning_curve(run: Path) -> tuple[np.ndarray, np.ndarray]:
    """Steps (int64) and raw returns (float64) of the finished episodes of a run, in order of steps.

    A line that is being written by a live run is left out. Raises UsageError where there is no episodes.csv.
    """
    try:
        lines = (run / "episodes.csv").read_text().split("\n")
    except OSError:
        raise UsageError(f"{run} has no episodes.csv; give the folder of a run") from None
    header, whole = lines[0].split(","), [line.split(",") for line in lines[1:-1]]
    steps = np.array([int(cells[header.index("step")]) for cells in whole], np.int64)
    returns = np.array([float(cells[header.index("return")]) for cells in whole], np.float64)
    order = np.argsort(steps, kind="stable")
    return steps[order], returns[order]


def smoothed(values: np.ndarray, window: int = WINDOW) -> np.ndarray:
    """(E,): the mean of each value and the up to window-1 before it."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - window, 0)
    return (total[end] - total[start]) / (end - start)


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Each path that is a run, and the runs anywhere below each that is none. Raises UsageError for the others."""
    runs = []
    for path in paths:
        below = [path] if (path / "config.json").is_file() else sorted(p.parent for p in path.rglob("config.json"))
        if not below:
            raise UsageError(f"{path} is no run and holds none; a run is a folder with config.json")
        runs += below
    return list(dict.fromkeys(runs))


def plot(runs: Sequence[Path], out: Path, window: int = WINDOW) -> Path:
    """Draws `runs` (or folders of runs) into `out`, whose ending says the format; returns `out`.

    Runs of one variant, environment and settings are the seeds of one line. Raises UsageError for a folder that is no
    run or a format that cannot be drawn, FilesError where `out` cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("curves need matplotlib; pip install matplotlib") from None
    panels = grouped([_read(run) for run in find_runs(runs)])
    columns = min(ceil(len(panels) ** 0.5), 3)
    rows = ceil(len(panels) / columns)
    figure = Figure(figsize=(max(7.5, 5.2 * columns), 4.2 * rows + 0.5), dpi=150, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (env_id, groups) in zip(grid, panels.items(), strict=False):
        _draw_panel(axes, env_id, groups, window)
    for axes in grid[len(panels):]:
        axes.set_axis_off()
    figure.supxlabel(f"line: mean of the last {window} episodes and over seeds\n"
                     "band: one standard deviation over seeds; dots: episodes of a single run", fontsize=8, color="0.4")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out)
    except ValueError as error:
        raise UsageError(f"{out.name}: {error}; name it something.png") from None
    except OSError as error:
        raise FilesError(f"the picture {out} cannot be written ({error.strerror})") from error
    return out


def grouped(curves: Sequence[Curve]) -> dict[str, dict[str, list[Curve]]]:
    """Environment -> label -> runs; a label is the variant and those settings that differ within the environment."""
    logging = {name for name, fact in facts_of_all(kind for kind, *_ in VARIANTS.values()).items()
               if fact.group == "logging"}
    skipped = logging - {"exp_name"} | {"seed", "num_seeds"}
    panels: dict[str, dict[str, list[Curve]]] = {}
    for env_id in sorted({curve.config["env_id"] for curve in curves}):
        here = [curve for curve in curves if curve.config["env_id"] == env_id]
        groups = panels.setdefault(env_id, {})
        for curve in here:
            rivals = [other.config for other in here if other.variant == curve.variant]
            differing = [f"{name}={value}" for name, value in curve.config.items() if name not in skipped
                         and any(rival.get(name) != value for rival in rivals)]
            groups.setdefault(", ".join([curve.variant, *differing]), []).append(curve)
    return panels


def over_seeds(curves: Sequence[Curve], window: int = WINDOW) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps, mean and standard deviation (POINTS,) over the runs that have episodes, each at the points it reached."""
    curves = [curve for curve in curves if len(curve.steps)]
    end = max(curve.steps[-1] for curve in curves)
    at = np.linspace(min(curve.steps[0] for curve in curves), end, POINTS)
    values = np.array([np.interp(at, curve.steps, smoothed(curve.returns, window), left=np.nan) for curve in curves])
    for value, curve in zip(values, curves, strict=True):
        value[at > curve.steps[-1] + 0.05 * end] = np.nan  # a run that stopped early; a last, long episode is none
    reached = np.isfinite(values)
    count = reached.sum(axis=0)
    with np.errstate(invalid="ignore"):
        mean = np.where(reached, values, 0).sum(axis=0) / count
        deviation = np.sqrt(np.where(reached, (values - mean) ** 2, 0).sum(axis=0) / count)
    return at, mean, deviation


def _read(run: Path) -> Curve:
    try:
        about = json.loads((run / "config.json").read_text())
        variant, config = about["variant"], about["config"]
    except (ValueError, KeyError):
        raise UsageError(f"{run / 'config.json'} is damaged: it names no variant and configuration") from None
    return Curve(variant, config, *learning_curve(run))


def _draw_panel(axes: Any, env_id: str, groups: dict[str, list[Curve]], window: int) -> None:
    silent = []
    for index, (label, curves) in enumerate(groups.items()):
        ended = [curve for curve in curves if len(curve.steps)]
        silent += [f"{label}, seed {curve.config['seed']}: no episode finished" for curve in curves
                   if not len(curve.steps)]
        if ended:
            style = {"color": PALETTE[index % len(PALETTE)],
                     "linestyle": ("-", "--", ":")[index // len(PALETTE) % 3]}
            _draw_line(axes, label, ended, window, style, alone=len(groups) == 1)
    _dress(axes, env_id, silent, empty=len(silent) == sum(map(len, groups.values())))


def _draw_line(axes: Any, label: str, curves: list[Curve], window: int, style: dict[str, str], alone: bool) -> None:
    at, mean, deviation = over_seeds(curves, window)
    seeds = f"{len(curves)} seed{'' if len(curves) == 1 else 's'}"
    axes.plot(at, mean, linewidth=1.8, label=fill(f"{label} ({seeds})", 60), **style)
    if len(curves) > 1:
        axes.fill_between(at, mean - deviation, mean + deviation, color=style["color"], alpha=0.2, linewidth=0)
    elif alone:
        every = ceil(len(curves[0].steps) / 4000)
        axes.plot(curves[0].steps[::every], curves[0].returns[::every], ".", color=style["color"], alpha=0.3,
                  markersize=3, markeredgewidth=0, zorder=1)


def _dress(axes: Any, env_id: str, silent: list[str], empty: bool) -> None:
    from matplotlib.ticker import EngFormatter

    axes.set_title(env_id, fontsize=12, fontweight="bold")
    axes.set_xlabel("steps (decisions)")
    axes.set_ylabel("episodic return")
    axes.spines[["top", "right"]].set_visible(False)
    told = silent[:8] + [f"and {len(silent) - 8} more"] * (len(silent) > 8)
    if empty:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "\n".join(told), transform=axes.transAxes, ha="center", va="center", color="0.35")
        return
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.01)
    for sentence in told:
        axes.plot([], [], " ", label=sentence)
    axes.legend(loc="best", fontsize=8, frameon=True, framealpha=0.85, edgecolor="none")
