"""Learning curves as a picture: one panel per environment, one line per setting, mean and spread over its seeds."""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from os.path import isfile
from pathlib import Path
from textwrap import fill, shorten
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from proximo.catalog import VARIANTS
from proximo.errors import FilesError, UsageError, warn, warn_once
from proximo.facts import facts_of_all
from proximo.models.curves import WINDOW, last_of_equal, read_episodes, rolling_mean
from proximo.models.pictures import save_figure
from proximo.runs.files import is_folder, visit_folders
from proximo.runs.repeats import without_repeats
from proximo.runs.run import own_settings, read_record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 1000
MOST_DOTS = 4000
MOST_NAMED = 200  # characters of names of files in a message
MOST_INSIDE = 10  # lines whose names fit into a panel; more are beside it
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe & Ito 2008


class Curve(NamedTuple):
    """The learning curve of one run."""

    variant: str
    config: dict[str, Any]
    steps: np.ndarray
    """(E,) environment steps when each episode ended, rising"""
    returns: np.ndarray
    """(E,) undiscounted returns of raw rewards"""
    path: Path = Path()
    """the folder of the run"""


Panels = dict[str, dict[str, list[Curve]]]  # environment -> label -> curves


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Return every path that is a run, and for every other folder the runs below it.

    Files among them are left out with a warning, since `DIR/*` names also those that a benchmark keeps beside its runs.

    Raises:
        UsageError: No path is given, there is no run, or a path is no file and neither is nor contains a run.
    """
    if not paths:
        raise UsageError("no run was given. plot needs at least one folder of a run: proximo plot RUN...")
    found = {path: [] if not is_folder(path) else [path] if (path / "config.json").is_file() else sorted(
        folder for folder, files in visit_folders(path) if "config.json" in files) for path in paths}
    files = [path for path in found if isfile(path)] if any(found.values()) else []
    if wrong := [f"{path} neither is nor contains a run. A run is a folder with a config.json."
                 for path, runs in found.items() if not runs and path not in files]:
        raise UsageError("\n".join(wrong))
    if files:
        warn_once(f"Files are not runs and are left out: {shorten(', '.join(map(str, files)), MOST_NAMED)}.")
    return list(dict.fromkeys(run for runs in found.values() for run in runs))


def plot(runs: Sequence[Path], out: Path, window: int = WINDOW) -> Path:
    """Draw the learning curves of runs. Runs of one variant, environment and setting are the seeds of one line.

    Args:
        runs: Folders of runs, or folders that contain runs.
        out: The picture; its ending gives the format.
        window: Episodes of the rolling mean.

    Returns:
        `out`.

    Raises:
        UsageError: A folder neither is nor contains a run, or the format is unknown.
        FilesError: The config.json of a named run is damaged, or `out` cannot be written.
    """
    return save_figure(draw_curves(runs, window), out)


def draw_curves(runs: Sequence[Path], window: int = WINDOW) -> "Figure":
    """Return the picture that `plot` writes; raises what it raises."""
    from matplotlib.figure import Figure

    curves = list(_read_curves(find_runs(runs), runs))
    if not any(len(curve.steps) for curve in curves):
        ended = any((curve.path / "episodes.csv").exists() for curve in curves)
        warn(f"{'No episode has finished in these runs' if ended else 'These runs have no episodes.csv'}, so the "
             "picture has no line. Train longer, or give other runs.")
    panels = {env_id: {label: _one_per_seed(group) for label, group in groups.items()}
              for env_id, groups in group_curves(curves).items()}
    columns = min(ceil(len(panels) ** 0.5), 3)
    rows = ceil(len(panels) / columns)
    most = max(map(len, panels.values()))
    width, height = 5.2 + 4 * (most > MOST_INSIDE), max(4.2, 0.2 * most + 0.6)
    figure = Figure(figsize=(max(7.5, width * columns), height * rows + 0.5), dpi=150, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (env_id, groups) in zip(grid, panels.items(), strict=False):
        _draw_panel(axes, env_id, groups, window)
    for axes in grid[len(panels):]:
        axes.set_axis_off()
    figure.supxlabel(_footnote(panels, window), fontsize=8, color="0.4")
    return figure


def drawn_text(text: str) -> str:
    """Return text that matplotlib draws as it is: `$` begins no formula, and a label that begins with `_` is shown."""
    return f"{' ' * text.startswith('_')}{text}".replace("$", r"\$")


def group_curves(curves: Sequence[Curve]) -> Panels:
    """Group curves by environment and label; a label is the variant and the settings that differ in the environment."""
    logging = {name for name, fact in facts_of_all(kind for kind, *_ in VARIANTS.values()).items()
               if fact.group == "logging"}
    skipped = logging - {"exp_name"} | {"seed", "num_seeds"}
    panels: Panels = {}
    for env_id in sorted({curve.config["env_id"] for curve in curves}):
        present = [curve for curve in curves if curve.config["env_id"] == env_id]
        groups = panels.setdefault(env_id, {})
        for curve in present:
            rivals = [other.config for other in present if other.variant == curve.variant]
            differing = [f"{name}={value}" for name, value in curve.config.items() if name not in skipped
                         and any(rival.get(name) != value for rival in rivals)]
            groups.setdefault(", ".join([curve.variant, *differing]), []).append(curve)
    return panels


def average_over_seeds(curves: Sequence[Curve], window: int = WINDOW) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Average rolling means over runs; each run counts up to where it stopped.

    Args:
        curves: At least one curve with episodes.
        window: Episodes of the rolling mean.

    Returns:
        Environment steps, mean and population standard deviation, (POINTS,) each.
    """
    curves = [curve for curve in curves if len(curve.steps)]
    end = max(curve.steps[-1] for curve in curves)
    at = np.linspace(min(curve.steps[0] for curve in curves), end, POINTS)
    values = np.empty((len(curves), POINTS))
    for value, curve in zip(values, curves, strict=True):
        value[:] = np.interp(at, *last_of_equal(curve.steps, rolling_mean(curve.returns, window)), left=np.nan)
        value[at > curve.steps[-1] + 0.05 * end] = np.nan  # stopped early; a long last episode does not count as that
    reached = np.isfinite(values)
    count = reached.sum(axis=0)
    with np.errstate(invalid="ignore"):
        mean = np.where(reached, values, 0).sum(axis=0) / count
        deviation = np.sqrt(np.where(reached, (values - mean) ** 2, 0).sum(axis=0) / count)
    return at, mean, deviation


def read_curve(run: Path) -> Curve:
    """Read the episodes and the settings of a run."""
    record = read_record(run)
    config: dict[str, Any] = {"env_id": "?", "seed": 0, **record["config"], **own_settings(record)}
    episodes = read_episodes(run)
    return Curve(variant=record["variant"], config=config, steps=episodes.step, returns=episodes.ret,
                 path=run)


def _read_curves(found: Sequence[Path], named: Sequence[Path]) -> Iterator[Curve]:
    """Yield the curves of runs; a damaged one that was found below a folder, and not named, is left out."""
    left_out: list[FilesError] = []
    for run in found:
        try:
            yield read_curve(run)
        except FilesError as error:
            left_out.append(error)
            if run in named or len(left_out) == len(found):
                raise
            warn(f"{error} It is left out.")


def _one_per_seed(curves: Sequence[Curve]) -> list[Curve]:
    return without_repeats(curves, sample=lambda curve: curve.config["seed"],
                           finished=lambda curve: (curve.path / "summary.json").exists())


def _footnote(panels: Panels, window: int) -> str:
    """Explain the line, and the band and the dots where there are any."""
    counts = [[sum(len(curve.steps) > 0 for curve in curves) for curves in one.values()] for one in panels.values()]
    most = max(count for one in counts for count in one)
    if not most:
        return ""
    line = f"line: mean of the last {window} episodes"
    if most > 1:
        line += ", averaged over seeds; band: one standard deviation over seeds"
    return line + "; dots: episodes of a single run" * ([1] in counts)


def _draw_panel(axes: "Axes", env_id: str, groups: dict[str, list[Curve]], window: int) -> None:
    silent = []
    for index, (label, curves) in enumerate(groups.items()):
        ended = [curve for curve in curves if len(curve.steps)]
        silent += [f"{label}, seed {curve.config['seed']}: no episode finished" for curve in curves
                   if not len(curve.steps)]
        if ended:
            style = {"color": PALETTE[index % len(PALETTE)],
                     "linestyle": ("-", "--", ":")[index // len(PALETTE) % 3]}
            _draw_line(axes, label, ended, window, style)
            if len(ended) == len(groups) == 1:
                _draw_episodes(axes, ended[0], style["color"])
    _finish_panel(axes, env_id, silent, empty=len(silent) == sum(map(len, groups.values())))


def _draw_line(axes: "Axes", label: str, curves: list[Curve], window: int, style: dict[str, Any]) -> None:
    at, mean, deviation = average_over_seeds(curves, window)
    seeds = f"{len(curves)} seed{'' if len(curves) == 1 else 's'}"
    axes.plot(at, mean, linewidth=1.8, label=drawn_text(fill(f"{label} ({seeds})", 60)), **style)
    if len(curves) > 1:
        axes.fill_between(at, mean - deviation, mean + deviation, color=style["color"], alpha=0.2, linewidth=0)


def _draw_episodes(axes: "Axes", curve: Curve, color: str) -> None:
    """Draw a dot for each episode; the fewer they are, the larger and the darker."""
    every = ceil(len(curve.steps) / MOST_DOTS)
    density = min(1.0, len(curve.steps) / MOST_DOTS) ** 0.5
    axes.plot(curve.steps[::every], curve.returns[::every], "o", color=color, alpha=0.65 - 0.4 * density,
              markersize=5.5 - 3 * density, markeredgewidth=0, zorder=1)


def _finish_panel(axes: "Axes", env_id: str, silent: Iterable[str], empty: bool) -> None:
    from matplotlib.ticker import EngFormatter

    axes.set_title(drawn_text(env_id.rpartition(":")[2]), fontsize=12, fontweight="bold")
    axes.set_xlabel("environment steps")
    axes.set_ylabel("episodic return")
    axes.spines[["top", "right"]].set_visible(False)
    silent = list(silent)
    sentences = list(map(drawn_text, silent[:8])) + [f"and {len(silent) - 8} more"] * (len(silent) > 8)
    if empty:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "\n".join(sentences), transform=axes.transAxes, ha="center", va="center", color="0.35")
        return
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.01)
    for sentence in sentences:
        axes.plot([], [], " ", label=sentence)
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1, 1)} if len(axes.lines) > MOST_INSIDE else {}
    axes.legend(fontsize=8, frameon=True, framealpha=0.85, edgecolor="none", **place)
