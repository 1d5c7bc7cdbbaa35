"""A program that has no more open files: one FilesError that says so, and a run that a resume continues bit for bit."""

import os
import shutil
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import proximo
from proximo.cli.messages import exit_code
from proximo.errors import FilesError, UsageError
from proximo.models.read_folder import load_model_tree
from proximo.runs.folder.checkpoint import checkpoints, newest_checkpoint
from tests.support.runs import same_logs, same_weights

resource = pytest.importorskip("resource")

FIELDS = {"env_id": "CartPole-v1", "num_envs": 2, "num_steps": 16, "num_minibatches": 1, "update_epochs": 1, "hidden_sizes": (8, 8),
          "logger": "none", "checkpoint_every": 2, "total_timesteps": 320}
LEFT = range(8)  # a run needs 8 at once


@contextmanager
def files_left(number):
    """Let this process open only so many files more."""
    limits, held = resource.getrlimit(resource.RLIMIT_NOFILE), [os.open(os.devnull, os.O_RDONLY)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (held[0] + 64, limits[1]))
        with suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(number):
            os.close(held.pop())
        yield
    finally:
        for one in held:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return proximo.train("ppo", run_dir=tmp_path_factory.mktemp("whole") / "run", **FIELDS)


def train(folder, **more):
    return proximo.train("ppo", run_dir=folder, **FIELDS | more)


def check(error, folder, whole):
    """The message says what to do; afterwards, the same run starts or continues and ends as the whole one."""
    assert "Too many open files" in str(error) and "Raise the limit of open files (ulimit -n)" in str(error)
    assert len(str(error).splitlines()) == 1
    train(folder, resume="auto")
    assert same_weights(folder, whole) and same_logs(folder, whole)
    assert not list(folder.rglob(".*"))


@pytest.mark.parametrize("left", LEFT)
def test_a_start(left, whole, tmp_path):
    with files_left(left), pytest.raises(FilesError) as caught:
        train(tmp_path / "run")
    check(caught.value, tmp_path / "run", whole)


@pytest.mark.parametrize("left", LEFT)
def test_a_resume(left, whole, tmp_path):
    def stop(it):
        if it.iteration == 5:
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        train(tmp_path / "run", callbacks=[stop])
    with files_left(left), pytest.raises(FilesError) as caught:
        proximo.resume(tmp_path / "run")
    check(caught.value, tmp_path / "run", whole)


@pytest.mark.parametrize(("left", "saved"), [(0, 4), (1, 6)])
def test_a_run_whose_program_opens_files(left, saved, whole, tmp_path):
    """With one file left a checkpoint can be written, but not what is in its way be removed."""
    def open_files(it):
        if it.iteration == 5:
            opened.__enter__()

    opened = files_left(left)
    try:
        with pytest.raises(FilesError, match=f"The newest checkpoint is of iteration {saved}. Resume with: ") as caught:
            train(tmp_path / "run", callbacks=[open_files])
    finally:
        opened.__exit__(None, None, None)
    assert int(checkpoints(tmp_path / "run")[-1].name) == saved
    check(caught.value, tmp_path / "run", whole)


def test_a_checkpoint_that_cannot_be_opened_is_not_taken_for_a_damaged_one(whole):
    """The one before it would be used, and its successors removed."""
    found = checkpoints(whole)
    with files_left(0), pytest.MonkeyPatch.context() as patch, pytest.raises(FilesError) as caught:
        patch.setattr("proximo.runs.folder.checkpoint.checkpoints", lambda run: found)
        newest_checkpoint(whole)
    assert "cannot be read (Too many open files). Raise the limit" in str(caught.value) and "damaged" not in str(caught.value)


@pytest.mark.parametrize(("name", "load"), [("", proximo.load), ("checkpoints/00000010", proximo.load), ("model", load_model_tree)])
def test_a_model_is_not_called_damaged(name, load, whole, tmp_path):
    folder = Path(shutil.copytree(whole, tmp_path / "run")) / name
    if name == "model":
        folder = folder.rename(tmp_path / "alone")
    load(folder)  # imports what it needs
    with files_left(0), pytest.raises(FilesError) as caught:
        load(folder)
    assert "Raise the limit of open files (ulimit -n)" in str(caught.value) and "Restore" not in str(caught.value)


def test_the_command_line_names_the_limit(capsys):
    def fail():
        with files_left(0):
            os.pipe()

    assert exit_code(fail) == 5
    assert capsys.readouterr().err == ("proximo: A file could not be opened: Too many open files. Raise the limit of open files "
                                       "(ulimit -n).\n")


def test_no_more_threads(whole, tmp_path, monkeypatch):
    """Signals need one. The folder is free afterwards."""
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch, pytest.raises(UsageError, match=r"No thread can be started .* \(ulimit -u\)"):
        patch.setattr(threading.Thread, "start", refuse)
        train(tmp_path / "run")
    train(tmp_path / "run", resume="auto")
    assert same_weights(tmp_path / "run", whole)
