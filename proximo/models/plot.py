"""Learning curves as a picture: one panel per environment, one line per setting, mean and spread over its seeds."""

import re
from collections.abc import Collection, Iterator, Sequence
from math import ceil, isclose
from os.path import isfile
from pathlib import Path
from textwrap import fill, shorten
from typing import TYPE_CHECKING, Any

import numpy as np

from proximo.catalog import VARIANTS
from proximo.errors import FilesError, UsageError, nearest, one_line, warn, warn_once
from proximo.facts import facts_of_all
from proximo.models.curves import WINDOW, Curve, metric_names, read_episodes, read_metric
from proximo.models.panels import MOST_INSIDE, Drawn, Groups, draw_panel, lines_of_text
from proximo.models.pictures import color_places, plain_style, save_figure
from proximo.runs.folder.files import is_folder, visit_folders
from proximo.runs.folder.repeats import without_repeats
from proximo.runs.folder.run import custom_settings, read_record
from proximo.runs.folder.version_0_1 import present_fields

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHORT = 7  # characters of a number that is written as it is
MEMBER = re.compile(r"/round-\d+/[^/]+/member-(\d+)/\d+$")  # the folder of a run of a population
MOST_FOOTNOTE = 105  # characters of a line below the narrowest picture
MOST_NAMED = 200  # characters of names of files in a message


Panels = dict[str, Groups]  # by environment


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Return every path that is a run, and for every other folder the runs below it.

    Files among them are left out with a warning, since `DIR/*` names also those that a benchmark keeps beside its runs.

    Raises:
        UsageError: No path is given, there is no run, or a path is no file and neither is nor contains a run.
    """
    if not paths:
        raise UsageError("no run was given. plot needs at least one folder of a run: proximo plot RUN...")
    found = {path: sorted(folder for folder, files in visit_folders(path) if "config.json" in files)
             if is_folder(path) else [] for path in paths}
    files = [path for path in found if isfile(path)] if any(found.values()) else []
    if wrong := [_not_a_run(path) for path, runs in found.items() if not runs and path not in files]:
        raise UsageError("\n".join(wrong))
    if files:
        warn_once(f"Files are not runs and are left out: {shorten(', '.join(map(str, files)), MOST_NAMED)}.")
    return list(dict.fromkeys(run for runs in found.values() for run in runs))


def _not_a_run(path: Path) -> str:
    """Return the sentence about a path that neither is nor contains a run."""
    run = next((folder for folder in path.parents if isfile(folder / "config.json")), None)
    return f"{path} neither is nor contains a run. " + (f"Give the run that it belongs to: {run}." if run else
                                                        "A run is a folder with a config.json.")


def plot(runs: Sequence[Path], out: Path, window: int | None = None, metric: str = "") -> Path:
    """Draw the learning curves of runs. Runs of one variant, environment and setting are the seeds of one line.

    Args:
        runs: Folders of runs, or folders that contain runs.
        out: The picture; its ending gives the format.
        window: Episodes of the rolling mean, or lines of metrics.csv; None: 100 and 1.
        metric: A column of metrics.csv that is drawn in place of the returns of episodes.

    Returns:
        `out`.

    Raises:
        UsageError: A folder neither is nor contains a run, the format is unknown, or no run has the metric.
        FilesError: The config.json of a named run is damaged, or `out` cannot be written.
    """
    return save_figure(draw_curves(runs, window, metric), out)


@plain_style()
def draw_curves(runs: Sequence[Path], window: int | None = None, metric: str = "") -> "Figure":
    """Return the picture that `plot` writes; raises what it raises."""
    from matplotlib.figure import Figure

    what = Drawn(metric, window or (1 if metric else WINDOW))
    found = find_runs(runs)
    check_metric(found, metric)
    curves = list(_read_curves(found, runs, metric))
    if not any(len(curve.steps) for curve in curves):
        _warn_of_nothing(curves, metric)
    panels = {env_id: {label: _one_per_seed(group) for label, group in groups.items()}
              for env_id, groups in group_curves(curves).items()}
    columns = min(ceil(len(panels) ** 0.5), 3)
    rows = ceil(len(panels) / columns)
    most = max(lines_of_text(groups, what) for groups in panels.values())
    width, height = (9.2, max(4.2, 0.18 * most + 0.6)) if most > MOST_INSIDE else (5.2, 4.2)
    figure = Figure(figsize=(max(7.5, width * columns), height * rows + 0.5), dpi=150, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    places = color_places([*panels.values()])
    for axes, (env_id, groups) in zip(grid, panels.items(), strict=False):
        draw_panel(axes, env_id, groups, what, places)
    for axes in grid[len(panels):]:
        axes.set_axis_off()
    figure.supxlabel(fill(_footnote(panels, what), MOST_FOOTNOTE), fontsize=8, color="0.4")
    return figure


def check_metric(runs: Sequence[Path], metric: str) -> None:
    """Raise UsageError if a metric was given that is a column of no metrics.csv."""
    known = {name: None for run in runs for name in metric_names(run)} if metric else {metric: None}
    if metric not in known:
        names = ", ".join(name for name in known if "/" in name) or "no metrics yet"
        lack = metric.startswith("eval/") and not any(name.startswith("eval/") for name in known)
        advice = " Evaluations are made while a run trains: --eval-every N." if lack else nearest(metric, known)
        raise UsageError(f"metric={one_line(metric)} is in no metrics.csv of these runs.{advice} They have {names}.")


def _warn_of_nothing(curves: Sequence[Curve], metric: str) -> None:
    if metric:
        lack = f"These runs have no value of {metric}"
    elif any((curve.path / "episodes.csv").exists() for curve in curves):
        lack = "No episode has finished in these runs"
    else:
        lack = "These runs have no episodes.csv"
    warn(f"{lack}, so the picture has no line. Train longer, or give other runs.")


def group_curves(curves: Sequence[Curve]) -> Panels:
    """Group curves by environment and label; a label is the variant and the settings that differ in the environment.

    Settings that only watch a run are left out, and those that follow from the machine, such as worker processes.
    """
    skipped = {name for name, fact in facts_of_all(kind for kind, *_ in VARIANTS.values()).items()
               if fact.group == "logging" or fact.chosen} - {"exp_name", "engine"} | {"seed", "num_seeds"}
    panels: Panels = {}
    for env_id in sorted({curve.config["env_id"] for curve in curves}):
        present = [curve for curve in curves if curve.config["env_id"] == env_id]
        groups = panels.setdefault(env_id, {})
        differing = {variant: _differing([curve.config for curve in present if curve.variant == variant], skipped)
                     for variant in {curve.variant for curve in present}}
        for curve in present:
            digits = differing[curve.variant]
            settings = [f"{name}={_short(value, digits[name])}" for name, value in curve.config.items()
                        if name in digits]
            groups.setdefault(", ".join([curve.variant, *settings]), []).append(curve)
    return panels


def _differing(configs: Sequence[dict[str, Any]], skipped: Collection[str]) -> dict[str, int]:
    """Return the fields that are not equal in all configurations, and how many digits distinguish their values."""
    first = configs[0]
    names = dict.fromkeys(name for config in configs for name in config if name not in skipped)
    return {name: _digits({value for config in configs if isinstance(value := config.get(name), float)})
            for name in names if any(config.get(name) != first.get(name) for config in configs)}


def _digits(numbers: Collection[float]) -> int:
    """Return the least number of digits that distinguish numbers, and them from 1."""
    return next((few for few in (3, 5, 8) if len({f"{one:.{few}g}" for one in numbers}) == len(numbers) and all(
        isclose(1 - float(f"{one:.{few}g}"), 1 - one, rel_tol=0.01) for one in numbers)), 17)


def _short(value: Any, digits: int) -> str:
    """Return a value as text; a long number with so many digits."""
    return f"{value:.{digits}g}" if isinstance(value, float) and len(str(value)) > SHORT else str(value)


def read_curve(run: Path, metric: str = "") -> Curve:
    """Read the episodes, or a column of metrics.csv, and the settings of a run."""
    record = read_record(run)
    config: dict[str, Any] = {"env_id": "?", "seed": 0, **present_fields(record["config"]), **custom_settings(record)}
    if member := MEMBER.search(str(run.absolute())):
        config["member"] = member[1]  # its settings have changed while it trained: no other run is a seed of it
    if metric:
        steps, values = read_metric(run, metric) or (np.zeros(0, np.int64), np.zeros(0))
    else:
        steps, _, values, _ = read_episodes(run)
    lines = read_metric(run, "iteration")
    return Curve(variant=record["variant"], config=config, steps=steps, values=values, path=run,
                 trained=int(lines[0].max(initial=0)) if lines else 0)


def _read_curves(found: Sequence[Path], named: Sequence[Path], metric: str) -> Iterator[Curve]:
    """Yield the curves of runs; a damaged one that was found below a folder, and not named, is left out."""
    left_out: list[FilesError] = []
    for run in found:
        try:
            yield read_curve(run, metric)
        except FilesError as error:
            left_out.append(error)
            if run in named or len(left_out) == len(found):
                raise
            warn(f"{error} It is left out.")


def _one_per_seed(curves: Sequence[Curve]) -> list[Curve]:
    return without_repeats(curves, sample=lambda curve: curve.config["seed"],
                           finished=lambda curve: (curve.path / "summary.json").exists())


def _averaged(panels: Panels) -> str:
    """Say how a line averages runs of which some begin or end before others, see average_over_seeds."""
    lines = [found for one in panels.values() for curves in one.values()
             if (found := [curve for curve in curves if len(curve.steps)])]
    ends = [[max(int(curve.steps[-1]), curve.trained) for curve in found] for found in lines]
    starts = [[int(curve.steps[0]) for curve in found] for found in lines]
    late = any(max(start) - min(start) > 0.05 * max(end) for start, end in zip(starts, ends))
    early = any(min(end) < 0.95 * max(end) for end in ends)
    return " (those that have not ended before)" * early + " from where all seeds have a value" * late


def _footnote(panels: Panels, what: Drawn) -> str:
    """Explain the line, and the band and the dots where there are any."""
    counts = [[sum(len(curve.steps) > 0 for curve in curves) for curves in one.values()] for one in panels.values()]
    most = max(count for one in counts for count in one)
    if not most:
        return ""
    values = "values" if what.metric else "episodes"
    line = f"line: mean of the last {what.window} {values}" if what.window > 1 else "line"
    if most > 1:
        line += ", averaged over seeds" if what.window > 1 else ": mean over seeds"
        line += _averaged(panels)
        line += "; band: one standard deviation over seeds"
    elif what.window == 1:
        line += f": {values} of a single run"
    return line + f"; dots: {values} of a single run" * ([1] in counts)
