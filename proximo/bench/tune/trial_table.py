"""trials.csv of a search: every trial with its state, score and values; and the same as a table of a report."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from proximo.bench.report.page import Section
from proximo.bench.results import RunResult
from proximo.bench.text import Table, csv_text, number_text, short_number
from proximo.bench.tune.search import Search, field_values
from proximo.bench.tune.study import FOLDER, outcome
from proximo.errors import FilesError, warn
from proximo.runs.folder.files import open_regular
from proximo.runs.folder.writing import whole_file

if TYPE_CHECKING:
    from optuna import Study

TRIALS_FILE = "trials.csv"
COLUMNS = ["trial", "state", "score", "folder"]


class Trial(NamedTuple):
    """A line of trials.csv."""

    number: str
    state: str
    score: str
    """empty: it has none"""
    folder: str
    """name of its runs; empty: it has trained nothing"""
    values: list[str]


Searches = Mapping[Path, tuple[list[str], list[Trial]]]  # folder -> the fields of a search, and its trials


def write_trials(study: "Study", folder: Path, search: Search) -> None:
    """Write one line for each trial, in their order.

    Raises:
        FilesError: The file cannot be written.
    """
    with whole_file(folder / TRIALS_FILE) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*COLUMNS, *search.space])
        for trial in study.get_trials(deepcopy=False):
            known = {name: one for name, one in trial.params.items() if name in search.space}  # a file may be corrected
            values = field_values(known, search.space)
            score = trial.value if trial.state.name == "COMPLETE" else ""
            writer.writerow([trial.number, outcome(trial), score, trial.user_attrs.get(FOLDER, ""),
                             *(csv_text(one) if isinstance(one := values.get(name, ""), str) else one
                               for name in search.space)])


def read_trials(directory: Path) -> tuple[list[str], list[Trial]] | None:
    """Return the fields of a search and its trials, best first; None if the folder is not that of a search."""
    try:
        with open_regular(directory / TRIALS_FILE) as file:
            head, *lines = csv.reader(io.StringIO(file.read().decode(errors="replace")))
    except FileNotFoundError:
        return None
    except (FilesError, csv.Error, ValueError) as error:
        warn(f"{error} The trials of the search are left out.")
        return None
    if head[:len(COLUMNS)] != COLUMNS:
        return None  # of another program
    trials = [Trial(line[0], line[1], line[2], line[3], line[4:]) for line in lines if len(line) == len(head)]
    return head[len(COLUMNS):], sorted(trials, key=lambda one: (-_number(one.score, -math.inf),
                                                               one.state in ("fail", "stopped")))


def trials_table(fields: Sequence[str], trials: Sequence[Trial]) -> Table:
    """Return the table of a report: one row for each trial, best first."""
    rows = [[one.number, one.state, number_text(_number(one.score)), *map(short_number, one.values), one.folder]
            for one in trials]
    return Table(head=["trial", "state", "score", *fields, "folder"], rows=rows,
                 note="Best first. Numbers are rounded; trials.csv has all digits. Pruned: the trial fell behind "
                      "others, and its last run has not finished. Not finite: the numbers of a run were not finite, "
                      "so that the trial counts as worse than all with a score. Fail: a run failed. Stopped: the "
                      "trial was interrupted and continues as another one. Folder: the name of its runs.")


def searches_of(runs: Sequence[RunResult]) -> Searches:
    """Return what read_trials() returns of each search to which some runs belong, by its folder."""
    folders = dict.fromkeys(search_folder(run) for run in runs)
    return {folder: found for folder in folders if (found := read_trials(folder)) is not None}


def search_folder(run: RunResult) -> Path:
    """Return the folder of the search that a run belongs to, if it is one of a search: FOLDER/ENV/TRIAL/SEED."""
    return run.path.parent.parent.parent


def named_by_trials(runs: Sequence[RunResult], searches: Searches) -> list[RunResult]:
    """Return runs with the number of their trial as label, in the order of the trials; of several with the search."""
    places: dict[tuple[Path, str], tuple[int, str]] = {}  # rank and label of a trial, by search and name of its runs
    for folder, (_, trials) in searches.items():
        search = f"{folder.name}, " if len(searches) > 1 else ""
        for one in trials:
            places.setdefault((folder, one.folder), (len(places), f"{search}trial {one.number}"))
    found = [places.get((search_folder(run), run.label), (len(places), run.label)) for run in runs]
    named = [run._replace(label=label) for run, (_, label) in zip(runs, found)]
    return [named[k] for k in sorted(range(len(runs)), key=lambda k: (runs[k].env_id, found[k][0], runs[k].seed))]


def trials_sections(searches: Searches) -> list[Section]:
    """Return a section of a report for each search."""
    return [Section("Trials" if len(searches) == 1 else f"Trials of {folder.name}", [trials_table(*found)])
            for folder, found in searches.items()]


def _number(text: str, otherwise: float = math.nan) -> float:
    try:
        return float(text)
    except ValueError:
        return otherwise
