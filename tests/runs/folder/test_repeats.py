"""Of repeated runs one counts: the newest finished one, whatever the order in which they were found."""

import os
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import pytest

from proximo.runs.folder.repeats import without_repeats


class Found(NamedTuple):
    path: Path
    seed: int
    finished: bool


@pytest.mark.parametrize("order", [*permutations(range(4))])
def test_the_newest_finished_run_of_each_seed_stays(order, tmp_path, caplog):
    """The newest of all is not finished, and another seed has one run only."""
    runs = [Found(tmp_path / name, seed, finished) for name, seed, finished in (
        ("old", 1, True), ("new", 1, True), ("unfinished", 1, False), ("other", 2, False))]
    for age, run in enumerate(runs):
        run.path.mkdir()
        (run.path / "metrics.csv").touch()
        os.utime(run.path / "metrics.csv", (age, age))
        os.utime(run.path, (9 - age, 9 - age))  # an export changes the folder
    given = [runs[k] for k in order]
    kept = without_repeats(given, sample=lambda run: run.seed, finished=lambda run: run.finished)
    assert kept == [run for run in given if run.path.name in ("new", "other")]
    assert sorted(text.split()[0] for text in caplog.messages) == sorted(map(str, (runs[0].path, runs[2].path)))
