"""docs/walkthrough.md and its notebook against the programs of examples/walkthrough/ and the recorded numbers."""

import csv
import re
import subprocess
import sys

import pytest

from tools import walkthrough
from tools.walkthrough import NOTEBOOK, PICTURES, make_notebook, program, sections

STEPS = {number: text for number, text in sections() if number}


def test_the_page_has_ten_steps_each_with_a_picture_and_an_exercise():
    assert list(STEPS) == list(range(1, 11))
    for number, text in STEPS.items():
        assert f"](walkthrough/{program(number).stem}.png)" in text
        assert all(word in text for word in ("**New:**", "**Why:**", "**What to look at:**", "**Exercise.**", "*Hint:*"))
        assert number == 10 or re.search(r"\*\*Flaws?:\*\*", text)
    assert all(path.stat().st_size < 80_000 for path in PICTURES.iterdir())


@pytest.mark.parametrize("number", range(1, 11))
def test_the_code_of_the_page_is_that_of_the_program(number):
    blocks = re.findall(r"```python\n(.*?)```", STEPS[number], re.S)
    assert blocks
    for block in blocks:
        assert block in program(number).read_text(), block


def test_the_tables_hold_the_recorded_numbers():
    rows = list(csv.DictReader((PICTURES / "numbers.csv").read_text().splitlines()))
    assert {row["program"] for row in rows} == {program(number).stem for number in STEPS}
    for number, text in STEPS.items():
        ours = {f"| {row['variant']} | {row['mean']} | {row['worst']} to {row['best']} |"
                for row in rows if row["program"] == program(number).stem}
        assert ours <= set(text.splitlines())


def test_the_notebook_is_in_step_and_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    """With 600 steps and one seed for each training."""
    nbformat = pytest.importorskip("nbformat")
    assert NOTEBOOK.read_text() == make_notebook(), "run `python tools/walkthrough.py notebook`"
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    monkeypatch.setenv("WALKTHROUGH_STEPS", "600")
    monkeypatch.setenv("WALKTHROUGH_SEEDS", "1")
    monkeypatch.setenv("WALKTHROUGH_FOLDER", str(tmp_path))
    names = {"__name__": "__main__"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            exec(re.sub(r"^%.*$", "", cell.source, flags=re.M), names)  # Python has no magic commands
    assert "%matplotlib inline" in notebook.cells[1].source  # without it, Jupyter shows a figure as text
    assert {path.stem for path in tmp_path.glob("*.png")} == {program(number).stem for number in STEPS}
    printed = capsys.readouterr().out
    assert len(re.findall(r"^\d\d_\w+ .* seeds ", printed, re.M)) == sum(
        len(path.read_text().splitlines()) for path in tmp_path.glob("*.csv"))


def test_training_changes_no_page(monkeypatch):
    """A reader who runs all programs, with fewer steps than the page shows, keeps the page as it is."""
    called = []
    for name in ("run_programs", "record", "make_notebook"):
        monkeypatch.setattr(walkthrough, name, lambda *args, name=name: called.append(name))
    monkeypatch.setattr(sys, "argv", ["walkthrough.py", "train"])
    walkthrough.main()
    assert called == ["run_programs"]


def test_a_program_runs_as_a_script(tmp_path, monkeypatch):
    for name, value in {"STEPS": "600", "SEEDS": "2", "FOLDER": str(tmp_path / "out")}.items():
        monkeypatch.setenv(f"WALKTHROUGH_{name}", value)
    done = subprocess.run([sys.executable, str(program(1))], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "01_random.png").exists() and "01_random random" in done.stdout
