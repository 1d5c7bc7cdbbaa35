"""One writer per run folder: real processes that train, resume and are killed."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from proximo.cli.main import main
from proximo.config import Config
from proximo.errors import FilesError, UsageError
from proximo.runs.folder.checkpoint import checkpoints
from proximo.runs.folder.lock import holder, locked
from proximo.runs.start import resume, start
from tests.support.full_disk import full_disk
from tests.support.runs import SMALL, rows, train

LONG = [*SMALL, "--total-timesteps", "320000", "--checkpoint-every", "5"]
FIELDS = {"num_envs": 2, "num_steps": 16, "num_minibatches": 2, "hidden_sizes": (8,), "total_timesteps": 320,
          "logger": "none", "env_workers": 0}


def begin(*words):
    return subprocess.Popen([sys.executable, "-m", "proximo", *map(str, words)], stderr=subprocess.PIPE, text=True,
                            env=os.environ | {"OMP_NUM_THREADS": "1"})


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_second_process_is_refused_and_a_killed_one_holds_nothing(tmp_path, capsys):
    """`resume` and `train` of this process beside a running `train` are refused with its number, and metrics.csv has every
    iteration once. After SIGKILL of the first one a resume works, and beside that a second resume is refused."""
    run = tmp_path / "run"
    first = begin("train", "ppo", *LONG, "--run-dir", run)
    wait_for(lambda: checkpoints(run))
    for words in (("resume", run), ("train", "ppo", *SMALL, "--run-dir", run)):
        assert main([*map(str, words)]) == 2
        assert f"{run} is in use: process {first.pid} on " in capsys.readouterr().err
    assert first.poll() is None
    first.kill()
    assert first.wait() == -signal.SIGKILL and (run / ".lock").exists()
    first.stderr.close()
    newest = checkpoints(run)[-1]
    second = begin("resume", run)
    wait_for(lambda: checkpoints(run)[-1] != newest)
    assert main(["resume", str(run)]) == 2 and f"process {second.pid} on " in capsys.readouterr().err
    second.terminate()
    second.communicate()
    assert second.returncode == 128 + signal.SIGTERM and not (run / ".lock").exists()
    logged = [int(row["iteration"]) for row in rows(run, "metrics.csv")]
    assert logged == list(range(1, len(logged) + 1))


def test_a_lock_is_held_once_also_within_a_process(tmp_path):
    with locked(tmp_path):
        with pytest.raises(UsageError, match="another thread of this program, or an unfinished call"), locked(tmp_path):
            pass
        assert (tmp_path / ".lock").exists()
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path), locked(tmp_path / "none"):
        assert not (tmp_path / "none").exists()


def test_a_disk_that_becomes_read_only_does_not_hide_the_error_of_the_run(tmp_path, monkeypatch):
    """The lock file cannot be removed then. The lock itself ends with its process, or here."""
    def refuse(path, missing_ok=False):
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    with pytest.raises(FilesError, match="checkpoint"), locked(tmp_path):
        monkeypatch.setattr(Path, "unlink", refuse)
        raise FilesError("the checkpoint could not be written")
    monkeypatch.undo()
    with locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_that_its_holder_has_just_removed_is_no_lock(tmp_path, monkeypatch):
    """Between opening and locking it. Otherwise this process and the next one would both hold a lock."""
    fcntl = pytest.importorskip("fcntl")
    flock, ended = fcntl.flock, []

    def end_before(file, operation):
        if not ended:
            ended.append((tmp_path / ".lock").unlink())
        return flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", end_before)
    with locked(tmp_path):
        assert ended and holder(tmp_path) == f"process {os.getpid()} on {socket.gethostname()}"
        with pytest.raises(UsageError, match="is in use"), locked(tmp_path):
            pass


def test_a_new_folder_stays_only_with_something_in_it(tmp_path):
    with locked(tmp_path / "a", tmp_path / "a" / "b", tmp_path / "c", new=True):
        (tmp_path / "c" / "file").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["c"] and not (tmp_path / "c" / ".lock").exists()


@pytest.mark.parametrize("name", ["x" * 300, "file/run"])
def test_a_folder_that_cannot_be_made_is_told(name, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert train(tmp_path / name) == 5
    assert "could not be written (" in capsys.readouterr().err and [one.name for one in tmp_path.iterdir()] == ["file"]


def test_text_of_a_stranger_is_not_printed(tmp_path):
    """Only the form that this program writes is shown; here another process's lock file was overwritten."""
    with locked(tmp_path):
        (tmp_path / ".lock").write_text("process 1 on x\x1b[2J; rm -rf")
        with pytest.raises(UsageError, match="in use: another process is writing"), locked(tmp_path):
            pass


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch, capsys):
    def flock(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", flock)
    with locked(tmp_path):
        pass
    assert "has no locks (Operation not supported). Make sure that no other process writes" in capsys.readouterr().err


def test_an_environment_may_change_the_current_folder(tmp_path, monkeypatch):
    """All files of a run, also of its resume, are in the folder that was named, and config.json keeps that name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    begin_run = partial(start, Config(**FIELDS, run_dir="run"), "ppo")
    for make_session in (begin_run, partial(resume, Path("run"), {"total_timesteps": 640})):
        for (it,) in make_session():
            if it.iteration % 3 == 0:
                os.chdir(tmp_path / "other")
        os.chdir(tmp_path)
    assert list((tmp_path / "other").iterdir()) == [] and len(rows("run", "metrics.csv")) == 20
    assert json.loads(Path("run/config.json").read_text())["config"]["run_dir"] == "run"


def test_a_pipe_in_place_of_a_lock_is_no_holder(tmp_path):
    """Reading a stranger's folder must not wait for a writer of the pipe."""
    os.mkfifo(tmp_path / ".lock")
    assert holder(tmp_path) == ""


def test_a_full_disk_leaves_no_lock_file(tmp_path):
    with full_disk(), pytest.raises(FilesError, match=".lock could not be written"), locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
