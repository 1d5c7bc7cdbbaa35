"""`proximo resume` of what --num-seeds left: the whole group bit for bit, one of its runs alone up to rounding."""

import shutil

import numpy as np
import pytest

from proximo.cli import main
from proximo.seed_runs import seed_folders
from tests.runs import CrashError, at_iteration, crash, rows, same_logs, same_weights, terminate, train, weights

WORDS = ("--framework", "jax", "--engine", "jax", "--num-seeds", "3", "--norm-obs")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Three seeds, ten iterations, never interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "runs"
    assert train(folder, *WORDS) == 0
    return folder


def all_equal(one, other):
    names = [folder.name for folder in seed_folders(one)]
    assert names == ["seed-1", "seed-2", "seed-3"] == [folder.name for folder in seed_folders(other)]
    return all(same_weights(one / name, other / name) and same_logs(one / name, other / name) for name in names)


def test_killed_and_resumed_runs_equal_uninterrupted_ones(whole, tmp_path, monkeypatch, capsys):
    """Killed while the log of the first seed was written, seven iterations in; checkpoints are of the sixth."""
    with monkeypatch.context() as patched:
        at_iteration(patched, 7, crash)
        with pytest.raises(CrashError):
            train(tmp_path / "runs", *WORDS)
    assert main(["resume", str(tmp_path / "runs")]) == 0
    assert "3 runs in" in (said := capsys.readouterr().err) and "after iteration 6 of 10" in said
    assert all_equal(whole, tmp_path / "runs")
    assert main(["resume", str(tmp_path / "runs")]) == 0 and "all of their 10 iterations" in capsys.readouterr().err


def test_a_stopped_group_names_one_command_and_goes_on_from_the_checkpoint_that_all_have(whole, tmp_path, monkeypatch,
                                                                                         capsys):
    """As if it had been killed between two seeds' checkpoints: the newest of one seed is gone."""
    with monkeypatch.context() as patched:
        at_iteration(patched, 7, terminate)
        assert train(tmp_path / "runs", *WORDS) == 128 + 15
    assert f"continue with: proximo resume {tmp_path / 'runs'}\n" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "runs" / "seed-2" / "checkpoints" / "00000007")
    assert main(["resume", str(tmp_path / "runs")]) == 0
    assert "after iteration 6 of 10" in capsys.readouterr().err
    assert all_equal(whole, tmp_path / "runs")


def test_one_of_them_goes_on_alone_up_to_rounding_and_says_so(whole, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patched:
        at_iteration(patched, 7, crash)
        with pytest.raises(CrashError):
            train(tmp_path / "runs", *WORDS)
    assert main(["resume", str(tmp_path / "runs" / "seed-2")]) == 0
    assert f"exactly with all of them: proximo resume {tmp_path / 'runs'}" in capsys.readouterr().err
    for name, x in weights(whole / "seed-2").items():
        np.testing.assert_allclose(weights(tmp_path / "runs" / "seed-2")[name], x, atol=5e-5)
    assert len(rows(tmp_path / "runs" / "seed-2", "metrics.csv")) == 10


def test_flags_change_all_and_runs_that_do_not_belong_together_are_said(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "runs")
    assert main(["resume", str(tmp_path / "runs"), "--total-timesteps", "384"]) == 0
    assert [len(rows(folder, "metrics.csv")) for folder in seed_folders(tmp_path / "runs")] == [12, 12, 12]
    shutil.rmtree(tmp_path / "runs" / "seed-2")
    assert main(["resume", str(tmp_path / "runs")]) == 2
    assert "(seeds [1, 3]); resume them one by one" in capsys.readouterr().err
