"""A session trains a run, also in a program's own loop, and turns what ends it into exit codes and errors."""

import pytest

import proximo.runs.folder.run
from proximo.config import Config
from proximo.errors import FilesError, PeerError, UsageError
from proximo.runs.folder.checkpoint import checkpoints
from proximo.runs.folder.run import Run
from proximo.runs.session import Session
from proximo.runs.start import resume, start
from proximo.runs.watcher import Watcher
from tests.support.runs import at_iteration, rows, same_logs, same_weights, terminate

FIELDS = {"num_envs": 2, "num_steps": 16, "num_minibatches": 2, "update_epochs": 1, "hidden_sizes": (8, 8),
          "total_timesteps": 320, "checkpoint_every": 3, "logger": "none", "env_workers": 0}


def new(folder, **fields):
    return start(Config(**FIELDS | {"run_dir": str(folder)} | fields), "ppo")


def test_a_session_is_a_loop(tmp_path):
    """Each step comes after its iteration was logged; what the loop sees is what play() writes."""
    session = new(tmp_path / "run")
    assert session.folder == tmp_path / "run" and (tmp_path / "run" / "config.json").exists()
    assert [it.iteration for (it,) in session] == list(range(1, 11)) and session.exit_status == 0
    assert new(tmp_path / "played").train_to_end() == 0
    assert same_weights(tmp_path / "run", tmp_path / "played") and same_logs(tmp_path / "run", tmp_path / "played")


def test_a_loop_that_is_left_can_be_resumed(tmp_path):
    """Everything that was logged is on the disk, and the last checkpoint is the one before."""
    for (it,) in new(tmp_path / "run"):
        if it.iteration == 5:
            break
    assert len(rows(tmp_path / "run", "metrics.csv")) == 5
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["00000003"]
    assert resume(tmp_path / "run", {}).train_to_end() == 0
    new(tmp_path / "whole").train_to_end()
    assert same_weights(tmp_path / "run", tmp_path / "whole") and same_logs(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize(("sent_at", "status"), [(5, 128 + 15), (9, 0)])
def test_a_signal_in_the_loop_stops_after_the_next_iteration(sent_at, status, tmp_path, capsys):
    """It was saved by then, so nothing is lost. If it is the last one, the run is done."""
    session = new(tmp_path / "run")
    seen = []
    for (it,) in session:
        seen.append(it.iteration)
        if it.iteration == sent_at:
            terminate()
    assert seen == list(range(1, sent_at + 2)) and session.exit_status == status
    assert checkpoints(tmp_path / "run")[-1].name == f"{sent_at + 1:08d}"
    said = capsys.readouterr().err
    assert ("Stopped by SIGTERM after iteration 6" in said, "Done: " in said) == (status != 0, status == 0)


@pytest.mark.parametrize(("ended_by", "words"), [(ArithmeticError("first"), "first"), (None, "at the end")])
def test_a_fault_while_a_run_is_closed_does_not_hide_the_one_that_has_ended_it(ended_by, words, tmp_path, monkeypatch):
    """Such as a full disk, which the log meets again. The first message says which checkpoint is the newest."""
    close = Watcher.close

    def fail(watcher, end):
        close(watcher, end)
        raise FilesError("at the end")

    def end():
        if ended_by is not None:
            raise ended_by

    monkeypatch.setattr(Watcher, "close", fail)
    at_iteration(monkeypatch, 4, end)
    with pytest.raises((ArithmeticError, FilesError), match=words):
        new(tmp_path / "run").train_to_end()
    assert not (tmp_path / "run" / ".lock").exists()


def test_a_finished_run_has_nothing_to_play(tmp_path):
    new(tmp_path / "run").train_to_end()
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    session = resume(tmp_path / "run", {})
    assert list(session) == [] and session.exit_status == 0
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def failing(error):
    raise error
    yield


@pytest.mark.parametrize(("size", "message", "kind"), [
    ("2", "[gloo] Connection closed by peer", PeerError), ("2", "shape mismatch", RuntimeError),
    ("1", "[gloo] Connection closed by peer", RuntimeError)])
def test_a_lost_process_is_told_from_other_faults(size, message, kind, tmp_path, monkeypatch):
    for name, value in (("RANK", "0"), ("WORLD_SIZE", size), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", size),
                        ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    session = Session(tmp_path, [Watcher(Run(tmp_path, Config(), "ppo"))], failing(RuntimeError(message)))
    with pytest.raises(kind, match=message[-10:]):
        session.train_to_end()


def test_a_refused_start_leaves_nothing_and_lists_further_problems(tmp_path):
    """The environment is looked for only when training begins."""
    session = new(tmp_path / "run", env_id="CartPoll-v1")
    with pytest.raises(UsageError, match="^env_id=CartPoll-v1 is unknown"):
        session.train_to_end()
    assert not (tmp_path / "run").exists()


def test_a_start_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    """The disk is full after the first of three runs: the same command starts again."""
    write = proximo.runs.folder.run.write_json

    def full(path, content, otherwise):
        if path.parent.name == "seed-2":
            raise FilesError("full")
        write(path, content, otherwise)

    with monkeypatch.context() as patch:
        patch.setattr("proximo.runs.folder.run.write_json", full)
        with pytest.raises(FilesError, match="full"):
            new(tmp_path / "runs", num_seeds=3, framework="jax")
    assert not (tmp_path / "runs").exists()
