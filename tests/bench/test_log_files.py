"""The CSV files and logs of runs, as a benchmark reads them: whatever is in their place, and whatever their numbers are."""

import json

import pytest

from proximo.bench.files import last_lines
from proximo.bench.places import child
from proximo.bench.progress import BenchState, BenchView, progress
from proximo.bench.report.curves import common_curves
from proximo.bench.results import read_run
from proximo.bench.task import Task
from proximo.bench.tune.search import Search, latest_score
from proximo.cli.main import main
from proximo.errors import FilesError, UsageError
from tests.support.hostile import BROKEN
from tests.support.run_folders import RunFolder

SEARCH = Search("name", "ppo", ("CartPole-v1",), 100, (1,), 1, "episodic_return", "none", "", 0, {}, {}, {})


@pytest.mark.timeout(30)
@pytest.mark.parametrize("what", ["a pipe", "a folder", "/dev/zero", "missing"])
def test_only_a_regular_file_is_read(what, tmp_path, capsys):
    """A pipe without a writer blocks whoever opens it, and a device is endless."""
    run = RunFolder(tmp_path / "1").grow(3)
    BROKEN[what](run.folder / "metrics.csv")
    assert progress(run.folder) == (0, 0.0)
    assert latest_score(run.folder, SEARCH, "CartPole-v1", evaluated=True) is None
    other = RunFolder(tmp_path / "other").grow(3)
    BROKEN[what](other.folder / "episodes.csv")
    assert latest_score(other.folder, SEARCH, "CartPole-v1", evaluated=False) is None
    (tmp_path / "log").touch()
    BROKEN[what](tmp_path / "log")
    assert last_lines(tmp_path / "log", tmp_path) == ""
    x, _ = common_curves([read_run(run.folder)], "seconds")
    assert x[0] == 2.0  # the first episode; the end of the first iteration is not known
    (tmp_path / "1.job.json").write_text(json.dumps({"status": "running"}))
    assert main(["bench", "--status", str(tmp_path)]) == 0 and "0 of 0" in capsys.readouterr().out


@pytest.mark.parametrize("link", ["file", "folder"])
def test_a_log_that_is_a_link_out_of_the_benchmark_is_not_shown(link, tmp_path):
    """Otherwise the record of a failed run, and then a report, would show a private file."""
    bench, private = tmp_path / "bench", tmp_path / "private"
    bench.mkdir()
    private.mkdir()
    (private / "1.log").write_text("secret\n")
    if link == "folder":
        (bench / "ppo").symlink_to(private)
    else:
        (bench / "ppo").mkdir()
        (bench / "ppo" / "1.log").symlink_to(private / "1.log")
    assert last_lines(bench / "ppo" / "1.log", bench) == ""
    assert last_lines(private / "1.log", private) == "secret"


@pytest.mark.parametrize("busy", [False, True])
def test_a_log_that_is_a_link_is_not_written(busy, tmp_path, monkeypatch):
    """A benchmark of somebody else would append the output of its runs, or a message, to another file."""
    private = tmp_path / "private"
    private.write_text("mine\n")
    (tmp_path / "1.log").symlink_to(private)
    task = Task(words=("echo", "output"), env={}, cwd=str(tmp_path), run_dir=str(tmp_path / "1"),
                log=str(tmp_path / "1.log"), processes=1)
    if busy:
        def fail(*given):
            raise UsageError("busy")

        monkeypatch.setattr(child, "wait_until_free", fail)
    with pytest.raises(FilesError, match="1.log is a symbolic link to"):
        child.is_ready(task) if busy else child.start_child(task).wait()
    assert private.read_text() == "mine\n"


@pytest.mark.parametrize("line", ["3,inf,2", "3,1e400,2", "3,nan,2", "3,-5,2", "3,300,nan", "3,300,inf", "3,300,-1", "3,,"])
def test_a_damaged_line_of_metrics_is_skipped(line, tmp_path):
    (tmp_path / "metrics.csv").write_text(f"iteration,global_step,seconds\n1,100,1\n2,200,1\n{line}\n")
    assert progress(tmp_path) == (200, 200.0)
    assert BenchView(tmp_path.parent, BenchState()).seconds_left() is None


@pytest.mark.parametrize("seconds", ["nan", "inf", "-inf", "x", ""])
def test_an_unknown_end_of_the_first_iteration_moves_no_curve(seconds, tmp_path):
    run = RunFolder(tmp_path / "run").grow(3)
    head, first, *rest = (run.folder / "metrics.csv").read_text().splitlines(keepends=True)
    cells = first.split(",")
    cells[2] = seconds
    (run.folder / "metrics.csv").write_text("".join([head, ",".join(cells), *rest]))
    x, _ = common_curves([read_run(run.folder)], "seconds")
    assert (x[0], x[-1]) == (2.0, 6.0)


def test_a_cell_that_no_csv_has_is_no_score(tmp_path):
    (tmp_path / "metrics.csv").write_bytes(b"iteration,eval/return_mean\n1,5\n\xff" + b"x" * 200_000 + b"\n")
    assert latest_score(tmp_path, SEARCH, "CartPole-v1", evaluated=True) is None


def test_a_status_has_the_letters_of_the_folder_and_no_control_characters(tmp_path, capsys):
    folder = tmp_path / "out é\x1b[2J"
    folder.mkdir()
    (folder / "bench.json").write_text(json.dumps({"jobs": ["CartPole-v1/ppo/1"]}))
    assert main(["bench", "--status", str(folder)]) == 0
    assert "out é\\x1b[2J: 1 waiting" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["\0", "x" * 5000, "..", "", ".", "/"])
def test_a_status_of_names_that_no_run_has(name, tmp_path, capsys, monkeypatch):
    """Also of the folder `.`, to which such names add nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.json").write_text(json.dumps({"jobs": [name, "CartPole-v1/ppo/1"]}))
    for folder in (str(tmp_path), "."):
        assert main(["bench", "--status", folder]) == 0 and "2 waiting" in capsys.readouterr().out
