"""The runs of `proximo live`: repeatedly found below some folders, and described by one JSON object."""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from proximo.bench.live.charts import curves_record, point_rows
from proximo.bench.live.downsample import Thinned
from proximo.bench.live.follow import Curves, points_of_each
from proximo.bench.live.state import State, run_state
from proximo.bench.live.warnings import Warned, warnings_of
from proximo.bench.results import (
    Groups,
    RunResult,
    differing_settings,
    read_run,
    run_folders,
    run_name,
    with_differences,
)
from proximo.bench.text import settings_lines
from proximo.errors import UsageError, one_line
from proximo.runs.folder.files import is_folder
from proximo.runs.folder.videos import changed_at, videos_of

MOST_RUNS = 100  # of more, those that were written last are followed
SEARCH_SECONDS = 10.0  # between searches for new runs
SMALL_FILES = ("config.json", "summary.json")
Have = Mapping[str, tuple[int, int, int, int]]  # run -> stamp and number of points of metrics and of episodes


class Followed(NamedTuple):
    """One run that is followed."""

    name: str
    """its folder, as seen from the given one, or from the folder that contains all of the given ones"""
    run: RunResult
    curves: Curves
    state: State
    warnings: list[Warned]


class LiveRuns:
    """Follows every run at or below some folders. Nothing is written to them.

    Args:
        paths: Folders of runs, or folders that contain runs, now or later.

    Raises:
        UsageError: Some paths are not folders; one sentence for each.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        if missing := [f"{one_line(path)} is not a folder. Give folders of runs, or folders that contain runs."
                       for path in paths if not is_folder(path)]:
            raise UsageError("\n".join(missing))
        self.paths = [path.absolute() for path in paths]
        self._above = _common_folder(self.paths)  # no two runs have the same name as seen from it
        self.left_out = 0
        """runs that are not followed, because there are too many"""
        self.lock = threading.RLock()
        """held while curves change; hold it also to read several of their attributes"""
        self._searched = -SEARCH_SECONDS
        self._found: list[Path] = []
        self._curves: dict[Path, Curves] = {}
        self._read: dict[Path, tuple[list[int], RunResult]] = {}  # with the times of change of its small files

    def refresh(self) -> list[Followed]:
        """Read what is new, and return every run in order of environment, setting and seed."""
        with self.lock:
            if time.monotonic() - self._searched >= SEARCH_SECONDS:
                self._search()
                self._searched = time.monotonic()
            found = [self._follow(folder) for folder in self._found]
            runs = with_differences([one.run for one in found])
            found = [one._replace(run=run) for one, run in zip(found, runs)]
        return sorted(found, key=lambda one: (one.run.env_id, one.run.label, one.run.seed, one.name))

    def number(self, one: Followed) -> str:
        """Return the name by which a page asks for a run."""
        return str(list(self._curves).index(one.run.path))

    def folder(self, number: str) -> Path | None:
        """Return the folder of the run with this number; None if there is none."""
        folders = list(self._curves)
        return folders[int(number)] if int(number) < len(folders) else None

    def _search(self) -> None:
        folders = list(dict.fromkeys(folder for path in self.paths for folder in run_folders(path)))
        newest = {*sorted(folders, key=_written_at, reverse=True)[:MOST_RUNS]}
        self.left_out = len(folders) - len(newest)
        self._found = [folder for folder in folders if folder in newest]
        points = points_of_each(len(newest))
        for folder in self._found:
            if folder not in self._curves:
                self._curves[folder] = Curves(folder, points)

    def _follow(self, folder: Path) -> Followed:
        curves, run = self._curves[folder], self._run(folder)
        curves.refresh()
        state = run_state(run, curves)
        return Followed(name=run_name(run, self._above), run=run, curves=curves, state=state,
                        warnings=warnings_of(run, curves, state.share))

    def _run(self, folder: Path) -> RunResult:
        """Read the small files of a run, if they have changed."""
        files = [folder / name for name in SMALL_FILES] + [folder.with_name(f"{folder.name}.job.json")]
        changed = [changed_at(file) for file in files]
        if folder not in self._read or self._read[folder][0] != changed:
            self._read[folder] = changed, read_run(folder)
        return self._read[folder][1]


def _written_at(folder: Path) -> int:
    """Return when a run was last written, in ns; its folder alone says when it began."""
    return max(changed_at(folder), changed_at(folder / "metrics.csv"))


def page_record(live: LiveRuns, have: Have) -> dict[str, Any]:
    """Return the content of a page, ready for JSON, without the points that it has.

    Args:
        live: The runs.
        have: The points that the page has, by the number of the run.
    """
    with live.lock:
        found = live.refresh()
        runs = [_run_record(live, one, have) for one in found]
        left_out = live.left_out
    settings = settings_rows([one.run for one in found])
    return _without_nan({"runs": runs, "left_out": left_out, "settings": settings})


def _run_record(live: LiveRuns, one: Followed, have: Have) -> dict[str, Any]:
    number, state = live.number(one), one.state
    metrics_stamp, metrics_have, episodes_stamp, episodes_have = have.get(number, (0, 0, 0, 0))
    return curves_record(one.name, one.run, one.curves.names) | {
        "id": number, "state": state.word, "why": state.why, "failure": one.run.failure, "step": state.step,
        "of": state.of, "share": state.share, "sps": state.sps, "left": state.left, "age": state.age,
        "shares": state.shares,
        "mean_return": one.curves.mean_return, "newest": list(one.curves.newest)[::-1],
        "warnings": [warned._asdict() for warned in one.warnings], "videos": videos_of(one.run.path),
        "reading": one.curves.more, "skipped": one.curves.skipped,
        "metrics": new_points(one.curves.metrics, metrics_stamp, metrics_have),
        "episodes": new_points(one.curves.episodes, episodes_stamp, episodes_have)}


def new_points(curve: Thinned, stamp: int, have: int) -> dict[str, Any]:
    """Return the points after the first `have`, or all of them if the stamp has changed."""
    begin = have if stamp == curve.stamp else 0
    return {"stamp": curve.stamp, "from": begin, "rows": point_rows(curve.points[begin:])}


def settings_rows(runs: Sequence[RunResult]) -> list[list[str]]:
    """Return the lines of the table of hyper-parameters that differ between settings, its head first."""
    groups: Groups = {}
    for run in runs:
        groups.setdefault((run.env_id, run.label), []).append(run)
    labels = list(dict.fromkeys(label for _, label in groups))
    rows = [[name, *(cells[label] for label in labels)] for name, cells in sorted(differing_settings(groups).items())]
    return settings_lines(["field", *labels], rows) if rows else []


def _without_nan(value: Any) -> Any:
    """Replace numbers that JSON does not have by None, in everything but points, which have none."""
    if isinstance(value, dict):
        return {key: one if key == "rows" else _without_nan(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _common_folder(paths: Sequence[Path]) -> Path:
    """Return the folder that contains all of these; the first one if they are on different drives."""
    try:
        return Path(os.path.commonpath(paths))
    except ValueError:
        return paths[0]
