"""The runs on a terminal: lines of printable characters, and the view that rich draws."""

import os

import numpy as np

from proximo.bench.live.follow import Curves
from proximo.bench.live.runs import LiveRuns
from proximo.bench.live.text import one_line, sparkline, text_view
from proximo.cli.main import main
from tests.support.run_folders import RunFolder


def test_lines_until_no_run_is_running(tmp_path, capsys):
    RunFolder(tmp_path / "a").grow(10, clipfrac=0.9).finish()
    RunFolder(tmp_path / "b", env_id="Acrobot-v1").grow(2)
    assert main(["live", str(tmp_path), "--text"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "b: stopped, 200 of 10,000 steps, return 3.00, 500 steps/s",
        "a: finished, 1,000 of 1,000 steps, return 11.00, 500 steps/s; clipfrac 0.9 is above 0.4"]


def test_steps_are_those_of_whole_iterations(tmp_path, capsys):
    """Training ends after the last whole iteration, in which all of it is done."""
    run = RunFolder(tmp_path / "a", total=6000, num_envs=8, num_steps=128).grow(5, steps=1024)
    assert main(["live", str(run.folder), "--text"]) == 0
    run.finish()
    assert main(["live", str(run.folder), "--text"]) == 0
    stopped, finished = capsys.readouterr().out.splitlines()
    assert "stopped, 5,120 of 5,120 steps" in stopped and "finished, 5,120 of 5,120 steps" in finished


def test_of_many_runs_those_that_were_written_last_are_shown(tmp_path, capsys, monkeypatch):
    """A run that trains for long began before the others; the rest is counted."""
    monkeypatch.setattr("proximo.bench.live.runs.MOST_RUNS", 2)
    for number, name in enumerate("abcd"):
        run = RunFolder(tmp_path / name).grow(2)
        for file in [*run.folder.iterdir(), run.folder]:
            os.utime(file, (number, number))
    os.utime(tmp_path / "a" / "metrics.csv", (100, 100))
    assert main(["live", str(tmp_path), "--text"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:2] for line in lines[:2]] == ["a:", "d:"] and lines[2:] == ["2 older runs are not shown."]
    live = LiveRuns([tmp_path])
    view = text_view(live.refresh(), live.left_out)
    assert "2 older runs are not shown." in [str(part) for part in view.renderables]


def test_runs_of_several_folders_have_different_names(tmp_path, capsys):
    """A line is written where a run of that name has news."""
    for folder in ("a", "b"):
        RunFolder(tmp_path / folder / "1").grow(10).finish()
    assert main(["live", str(tmp_path / "a" / "1"), str(tmp_path / "b"), "--text"]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == ["a/1", "b/1"]


def test_a_folder_without_runs_ends_the_lines(tmp_path, capsys):
    """No run is running in it."""
    assert main(["live", str(tmp_path), "--text"]) == 0
    assert capsys.readouterr().out == f"There is no run in {tmp_path}.\n"


def test_the_view_of_a_terminal(tmp_path):
    from rich.console import Console

    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    RunFolder(tmp_path / "[red]\x1b[31m").grow(40, entropy=9.0).lock()
    console.print(text_view(LiveRuns([tmp_path]).refresh()))
    said = console.export_text()
    console.file.close()
    assert r"[red]\x1b[31m" in said and "running" in said and "▁▂▂▃" in said and "▇█" in said and "40%" in said
    assert "entropy is" not in said  # it was as high from the start
    console = Console(width=100, record=True, quiet=True)
    console.print(text_view([]))


def test_sparklines():
    assert sparkline(np.arange(8.0)) == "▁▂▃▄▅▆▇█" and sparkline(np.full(3, 7.0)) == "▁▁▁"
    assert sparkline(np.empty(0)) == "" and len(sparkline(np.arange(1000.0))) == 16
    assert one_line("a\x1b[0m\nb\u202e") == r"a\x1b[0m b\u202e"


def test_bad_arguments(tmp_path, capsys):
    assert main(["live", "--text"]) == 2 and main(["live", str(tmp_path), "--port", "70000"]) == 2
    said = capsys.readouterr().err
    assert "live needs at least one folder" in said and "--port" in said


def test_every_folder_that_does_not_exist_is_named(tmp_path, capsys):
    assert main(["live", str(tmp_path / "x"), str(tmp_path), "y\0"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"proximo: {name} is not a folder. Give folders of runs, or folders that contain runs." for name in (tmp_path / "x", "y\\x00")]


def test_curves_of_a_run_are_made_once(tmp_path, monkeypatch):
    """They read files of any length."""
    made = []
    monkeypatch.setattr("proximo.bench.live.runs.SEARCH_SECONDS", 0.0)
    monkeypatch.setattr("proximo.bench.live.runs.Curves", lambda *given: made.append(given) or Curves(*given))
    RunFolder(tmp_path / "a").grow(10)
    live = LiveRuns([tmp_path])
    assert len(live.refresh()) == len(live.refresh()) == len(made) == 1
