"""The sections of a report on single runs: curves that can be zoomed, warnings, videos, every hyper-parameter."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from proximo.bench.live.charts import curves_record, point_rows
from proximo.bench.live.follow import Curves, points_of_each
from proximo.bench.live.warnings import warnings_of
from proximo.bench.report.page import Charts, Folded, Part, Section, Video
from proximo.bench.results import Groups, RunResult, metric_of, run_name
from proximo.bench.sets import logging_fields
from proximo.bench.text import MOST_COLUMNS, Table
from proximo.errors import FilesError, names_text
from proximo.runs.folder.files import open_regular
from proximo.runs.folder.videos import TYPES, videos_of

LARGEST_VIDEO = 4 << 20
MOST_NAMED = 20  # runs of a warning
MOST_VALUES = 5  # of a hyper-parameter, where there are many settings
MOST_VIDEO_BYTES = 24 << 20  # of a whole report


def single_runs(runs: Sequence[RunResult], groups: Groups, directory: Path) -> list[Section]:
    """Return the sections that show every run by itself.

    Args:
        runs: All runs, finished or not.
        groups: The finished ones.
        directory: The folder of the report; runs are named as seen from it.
    """
    points, records = points_of_each(len(runs)), []
    warned: dict[tuple[str, str, str], list[str]] = {}  # metric, side and advice -> runs
    for run in runs:
        curves = Curves(run.path, points)
        curves.read_all()
        name = run_name(run, directory)
        if len(curves.metrics.points):
            records.append(curves_record(name, run, curves.names) | {
                "metrics": {"rows": point_rows(curves.metrics.points)},
                "episodes": {"rows": point_rows(curves.episodes.points)}})
        for one in warnings_of(run, curves, share=1.0):
            warned.setdefault((one.metric, one.side, one.advice), []).append(f"{name} ({one.value:.3g})")
    sections = [Section("Curves of every run", [Charts(records)])] if records else []
    if warned:
        table = Table(head=["metric", "range", "runs", "what people do"],
                      rows=[[metric, f"{side} the usual one", names_text(names, MOST_NAMED), advice]
                            for (metric, side, advice), names in warned.items()],
                      note="In brackets: the mean over the last lines of metrics.csv. The ranges are wide; a run can "
                           "also learn outside of them.")
        sections.append(Section("Outside the usual range", [table]))
    return [*sections, *_videos(groups, directory), *_hyper_parameters(groups)]


def _videos(groups: Groups, directory: Path) -> list[Section]:
    """Show the newest video of the best run of each group that has one, as long as the page stays small enough."""
    parts, left = list[Part](), MOST_VIDEO_BYTES
    for group in groups.values():
        metric = metric_of(group[0].variant)
        shown = [run for run in group if videos_of(run.path)]
        if not shown:
            continue
        best = max(shown, key=lambda run: score if (score := run.score(metric)) is not None else float("-inf"))
        path = best.path / "videos" / videos_of(best.path)[0]
        try:
            with open_regular(path, min(left, LARGEST_VIDEO)) as file:
                content = file.read()
        except (OSError, FilesError):
            parts.append(f"{path} is too large for this page, or cannot be read.")
            continue
        left -= len(content)
        parts.append(Video(content, TYPES[path.suffix], f"{best.env_id}, {run_name(best, directory)}: {path.name}"))
    return [Section("Videos", parts)] if parts else []


def _hyper_parameters(groups: Groups) -> list[Section]:
    """Show every hyper-parameter of every setting, with all values of a group; of many settings the first values."""
    labels: dict[str, list[RunResult]] = {}
    for (_, label), group in groups.items():
        labels.setdefault(label, []).extend(group)
    names = [name for name in dict.fromkeys(name for group in labels.values() for run in group for name in run.config)
             if name not in logging_fields() | {"env_id", "seed"}]
    columns = list(labels.values()) if len(labels) <= MOST_COLUMNS else [[*chain(*labels.values())]]
    most = MOST_VALUES if len(labels) > MOST_COLUMNS else None
    rows = [[name, *(_values(name, group, most) for group in columns)] for name in names]
    table = Table(head=["field", *labels] if most is None else ["field", "values"], rows=rows)
    return [Section("Hyper-parameters", [Folded("Show every field", table)])] if rows else []


def _values(name: str, runs: Sequence[RunResult], most: int | None) -> str:
    values = list(dict.fromkeys(str(run.config.get(name, "-")) for run in runs))
    more = f" or {len(values) - most} more" if most is not None and len(values) > most else ""
    return " or ".join(values[:most]) + more
