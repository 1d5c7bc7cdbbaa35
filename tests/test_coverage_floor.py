"""tools/coverage_floor.py against a report with known numbers."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

FLOORS = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["proximo"]["coverage"]


def file_with(ran, statements):
    """Return the entry of a file of which `ran` of its statements and one of its two branches ran."""
    return {"summary": {"covered_lines": ran, "num_statements": statements, "covered_branches": 1, "num_branches": 2}}


def check(tmp_path, ran):
    files = {f"proximo/{folder}/part.py": file_with(ran, 98) for folder in FLOORS} | {"proximo/api.py": file_with(0, 9)}
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"files": files}))
    return subprocess.run([sys.executable, "tools/coverage_floor.py", report], capture_output=True, text=True)


def test_floors_are_those_of_folders_that_exist():
    assert {"envs", "on_torch", "runs"} <= FLOORS.keys()
    assert all(Path("proximo", folder).is_dir() and 0 < floor < 100 for folder, floor in FLOORS.items())


def test_a_folder_below_its_floor_fails(tmp_path):
    """99 of 100 statements and branches are enough; 41 are not. Files outside the folders do not count."""
    enough, low = check(tmp_path, 98), check(tmp_path, 40)
    assert enough.returncode == 0 and enough.stdout.count("99.0 %") == len(FLOORS) and "TOO" not in enough.stdout
    assert low.returncode == 1 and low.stdout.count("41.0 %") == low.stdout.count("TOO LOW") == len(FLOORS)


def test_a_report_without_a_folder_is_refused(tmp_path):
    (tmp_path / "report.json").write_text('{"files": {}}')
    done = subprocess.run([sys.executable, "tools/coverage_floor.py", tmp_path / "report.json"], capture_output=True,
                          text=True)
    assert done.returncode == 1 and "has no file of proximo/" in done.stderr
