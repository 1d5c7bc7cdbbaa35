"""Crash points: a run is killed at each of its file operations, or the operation fails; then it is resumed.

It must end as a run that was never interrupted: the same weights bit for bit, every iteration once in metrics.csv, and no
file left over. From the first checkpoint on it has a whole model at any time. An operation that fails ends the run with exit
code 5 or changes nothing.
"""

import json
import signal
import subprocess
import sys

import pytest

from tests.support.crash_points import KILLED
from tests.support.faults import DEEP

pytestmark = pytest.mark.area("Crash points")
TERMINATED = 128 + signal.SIGTERM


def points(place, mode, first, every):
    """Try every `every`-th file operation, from `first`; return the uninterrupted run and the points."""
    found = subprocess.run([sys.executable, "-m", "tests.support.crash_points", str(place), mode, str(first), str(every)],
                           capture_output=True, text=True, timeout=1500)
    assert found.returncode == 0, found.stderr[-3000:]
    reference, *rest = map(json.loads, found.stdout.splitlines())
    assert reference["first"] == reference["second"] == 0 and len(rest) >= (50 if every == 1 else 2), len(rest)
    return reference, rest


@pytest.mark.parametrize("mode", ["before", pytest.param("after", marks=pytest.mark.faults),
                                  pytest.param("half", marks=pytest.mark.faults)])
def test_a_run_that_is_killed_at_a_file_operation(mode, tmp_path, cases):
    reference, rest = points(tmp_path, mode, 1 if DEEP else 7, 1 if DEEP else 23)
    for point in rest:
        cases()
        assert (point["first"], point["second"], point["traceback"], point["model"]) == (KILLED, 0, "", True), point
        assert {key: point[key] for key in ("weights", "lines", "left")} == {
            key: reference[key] for key in ("weights", "lines", "left")}, point


def test_a_run_that_gets_sigterm_at_a_file_operation(tmp_path, cases):
    """It ends in order: after the iteration that is being saved, or at once where none has ended."""
    reference, rest = points(tmp_path, "term", 1 if DEEP else 5, 1 if DEEP else 29)
    for point in rest:
        cases()
        assert point["first"] in (0, TERMINATED) and point["second"] == 0, point
        assert not point["traceback"] and point["model"], point
        assert {key: point[key] for key in ("weights", "lines", "left")} == {
            key: reference[key] for key in ("weights", "lines", "left")}, point
    assert {point["first"] for point in rest} == {0, TERMINATED}, rest


@pytest.mark.parametrize("mode", ["full", pytest.param("broken", marks=pytest.mark.faults)])
def test_a_file_operation_that_fails(mode, tmp_path, cases):
    """A full disk, or one that cannot be read: exit code 5, or, where nothing is lost, none."""
    reference, rest = points(tmp_path, mode, 1 if DEEP else 11, 1 if DEEP else 31)
    for point in rest:
        cases()
        assert point["first"] in (0, 5) and point["second"] == 0 and not point["traceback"] and point["model"], point
        if point["operation"] in ("rmdir", "unlink"):  # what the disk does not remove stays, beside what replaced it
            point["left"] = [name for name in point["left"] if not name.endswith((".old", ".tmp"))]
        assert {key: point[key] for key in ("weights", "lines", "left")} == {
            key: reference[key] for key in ("weights", "lines", "left")}, point
