"""`--resume auto`: one command, however often it is started, ends as if it had run once without an interruption."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

import proximo
from proximo.cli.main import main
from proximo.config import Config
from proximo.errors import FilesError
from proximo.runs.folder.checkpoint import checkpoints, remove_checkpoints
from proximo.runs.folder.run import Run, write_config
from proximo.runs.restart import start_or_resume
from proximo.runs.run_group import forget_start
from tests.support.runs import SMALL, CrashError, at_iteration, crash, rows, same_logs, same_weights, terminate, train

AUTO = ("--resume", "auto")


def test_the_same_command_starts_continues_and_ends(tmp_path, monkeypatch, capsys):
    """Crashed before the first checkpoint, then stopped by a signal, then crashed again, then to the end, then once
    more: nothing changes any more."""
    run = tmp_path / "run"
    for number, act in ((2, crash), (5, terminate), (8, crash)):
        with monkeypatch.context() as patch:
            at_iteration(patch, number, act)
            if act is crash:
                with pytest.raises(CrashError):
                    train(run, *AUTO)
            else:
                assert train(run, *AUTO) == 128 + signal.SIGTERM
    assert train(run, *AUTO) == 0
    assert train(tmp_path / "whole") == 0
    assert same_weights(run, tmp_path / "whole") and same_logs(run, tmp_path / "whole")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert train(run, "--resume=auto") == 0 and "all 10 iterations are done" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert train(run) == 2 and train(run, "--resume", "never") == 2


@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize("content", [None, "", "[1]"], ids=["missing", "empty", "damaged"])
def test_a_lost_summary_of_a_finished_run_is_written_again(auto, content, tmp_path):
    """From the last checkpoint, with the numbers of the lost one. Those of the clock grow by the time of its saving."""
    run, summary = tmp_path / "run", tmp_path / "run" / "summary.json"
    assert train(run) == 0
    before = json.loads(summary.read_text())
    weights_before = {path: path.read_bytes() for path in (run / "model").iterdir()}
    summary.unlink() if content is None else summary.write_text(content)
    assert (train(run, *AUTO) if auto else main(["resume", str(run)])) == 0
    after = json.loads(summary.read_text())
    clock = ("sps", "compile_seconds", "wall_seconds")
    assert after.keys() == before.keys() and {name for name in after if after[name] != before[name]} <= {*clock}
    assert all(after[name] == pytest.approx(before[name], rel=0.5) for name in clock)
    assert {path: path.read_bytes() for path in (run / "model").iterdir()} == weights_before


def test_a_run_that_a_callback_has_ended_is_finished(tmp_path, capsys):
    """The same call changes no file; more steps, and proximo.resume, continue it."""
    def enough(it):
        if it.iteration == 4:
            raise proximo.StopTraining("enough")

    run = tmp_path / "run"
    values = {"num_envs": 2, "num_steps": 16, "num_minibatches": 2, "hidden_sizes": (8, 8), "logger": "none", "run_dir": str(run)}
    for _ in range(3):
        proximo.train("ppo", total_timesteps=320, callbacks=[enough], resume="auto", **values)
        assert len(rows(run, "metrics.csv")) == 4
    assert "a callback has ended the run after 128 steps" in capsys.readouterr().err
    proximo.train("ppo", total_timesteps=352, resume="auto", **values)
    assert len(rows(run, "metrics.csv")) == 11


def test_a_run_that_a_callback_has_ended_before_its_last_iteration_is_finished(tmp_path):
    """Also where that is the only one that it lacks."""
    def enough(it):
        if it.iteration == 1:
            raise proximo.StopTraining("enough")

    for _ in range(2):
        proximo.train("ppo", num_envs=2, num_steps=16, num_minibatches=2, hidden_sizes=(8,), total_timesteps=64,
                      logger="none", run_dir=tmp_path / "run", callbacks=[enough], resume="auto")
        assert len(rows(tmp_path / "run", "metrics.csv")) == 1


def test_a_process_that_is_killed_again_and_again(tmp_path):
    """SIGKILL at times that differ: before the first checkpoint and after later ones."""
    run = tmp_path / "run"
    words = ["train", "ppo", *SMALL, "--total-timesteps", "3200", "--run-dir", str(run)]
    for new in (0, 1, 3):
        count = len(checkpoints(run)) and int(checkpoints(run)[-1].name) // 3
        process = subprocess.Popen([sys.executable, "-m", "proximo", *words], stderr=subprocess.DEVNULL,
                                   env=os.environ | {"OMP_NUM_THREADS": "1", "PROXIMO_RESUME": "auto"})
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end:
            found = checkpoints(run)
            if (run / "config.json").exists() and ((found and int(found[-1].name) // 3) or 0) >= count + new:
                process.kill()
            time.sleep(0.002)
        assert process.wait() == -signal.SIGKILL
    assert main([*words, *AUTO]) == 0
    assert main([*words[:-1], str(tmp_path / "whole")]) == 0
    assert same_weights(run, tmp_path / "whole") and same_logs(run, tmp_path / "whole")


def test_another_configuration_is_refused_with_the_differences(tmp_path, capsys):
    train(tmp_path / "run")
    capsys.readouterr()
    assert train(tmp_path / "run", *AUTO, "--seed", "2", "--gamma", "0.5", "--num-steps", "32") == 2
    message = capsys.readouterr().err
    assert f"{tmp_path / 'run'} contains another run:" in message and "gamma" not in message
    assert "seed=2 was given, but the run has seed=1" in message and "num_steps=32 was given" in message
    assert train(tmp_path / "run", *AUTO, variant="ppo_continuous_action") == 2
    assert "variant=ppo_continuous_action was given, but the run has variant=ppo" in capsys.readouterr().err


def test_a_folder_without_an_iteration_says_that_nothing_is_lost(tmp_path, capsys):
    """As an environment leaves it that ends the process in its first reset. With an iteration, nothing of it is said."""
    (tmp_path / "none").mkdir()
    write_config(Run(tmp_path / "none", Config(run_dir=str(tmp_path / "none")), "ppo"))
    train(tmp_path / "some")
    for name, said in (("none", True), ("some", False)):
        assert train(tmp_path / name) == train(tmp_path / name, *AUTO, "--env-id", "Acrobot-v1") == 2
        assert capsys.readouterr().err.count("It has not finished an iteration: remove it if no process trains it.") == 2 * said


def test_what_a_resume_may_change_changes_and_the_machines_choices_stay(tmp_path, capsys):
    """The command names the module of its environment, so that the recorded run may import it. Threads that it names must be those of the run."""
    module = ("--env-id", "tests.support.probes:Masked-v0")
    train(tmp_path / "run", "--threads", "2", *module)
    capsys.readouterr()
    assert train(tmp_path / "run", *module, *AUTO, "--total-timesteps", "640", "--gamma", "0.5") == 0
    assert "Changed: total_timesteps 320 -> 640, gamma 0.99 -> 0.5" in capsys.readouterr().err
    assert len(rows(tmp_path / "run", "metrics.csv")) == 20
    assert train(tmp_path / "run", *module, *AUTO, "--total-timesteps", "640", "--gamma", "0.5", "--threads", "1") == 2
    assert "threads=1 was given, but the run has threads=2" in capsys.readouterr().err


def test_what_a_command_leaves_out_has_its_default(tmp_path, capsys):
    """The run would otherwise go on with settings that the command does not have."""
    train(tmp_path / "run", "--seed", "2", "--gamma", "0.5")
    capsys.readouterr()
    assert train(tmp_path / "run", *AUTO) == 2
    assert "seed=1 was given, but the run has seed=2" in capsys.readouterr().err
    assert train(tmp_path / "run", *AUTO, "--seed", "2", "--total-timesteps", "352") == 0
    assert "Changed: total_timesteps 320 -> 352, gamma 0.5 -> 0.99" in capsys.readouterr().err


def test_several_seeds_also_where_a_start_was_killed(tmp_path, capsys):
    pytest.importorskip("flax")
    words = ("--framework", "jax", "--engine", "jax", "--num-seeds", "2")
    group = tmp_path / "group"
    assert train(group, *words) == 0
    assert train(group, *words, *AUTO) == 0 and "all 10 iterations are done" in capsys.readouterr().err
    assert train(group, *words, *AUTO, "--num-seeds", "3") == 2
    assert "num_seeds=3 was given, but the run has num_seeds=2" in capsys.readouterr().err
    partly = tmp_path / "partly" / "seed-1"
    partly.mkdir(parents=True)
    (partly / "config.json").write_bytes((group / "seed-1" / "config.json").read_bytes())
    assert train(tmp_path / "partly", *words, *AUTO) == 0 and same_weights(partly, group / "seed-1")


def test_a_run_that_has_not_begun_is_no_part_of_several_seeds(tmp_path, capsys):
    """Only config.json was written when its process was killed: --num-seeds must not remove it."""
    pytest.importorskip("flax")
    words = ("--framework", "jax", "--engine", "jax")
    assert train(tmp_path / "whole", *words) == 0
    run = tmp_path / "run"
    run.mkdir()
    record = (tmp_path / "whole" / "config.json").read_text()
    (run / "config.json").write_text(record)
    assert train(run, *words, *AUTO, "--num-seeds", "2") == 2
    assert "num_seeds=2 was given, but the run has num_seeds=1" in capsys.readouterr().err
    assert (run / "config.json").read_text() == record


@pytest.mark.parametrize("kept", ["metrics.csv", "checkpoints/00000004/tree.json"])
def test_several_runs_of_which_one_has_begun_stay_as_they_are(kept, tmp_path):
    """Fewer than the command has: they are not what a start has left that was killed. Also where the log is missing."""
    group = tmp_path / "group"
    cfg = Config(framework="jax", engine="jax", run_dir=str(group), num_seeds=3)
    for name in ("seed-1", "seed-2"):
        (group / name).mkdir(parents=True)
        write_config(Run(group / name, replace(cfg, num_seeds=1, seed=int(name[-1]), run_dir=str(group / name)), "ppo"))
    (group / "seed-1" / kept).parent.mkdir(parents=True, exist_ok=True)
    (group / "seed-1" / kept).write_text("iteration,global_step,seconds\n")
    before = {path: path.read_bytes() for path in group.rglob("*") if path.is_file()}
    forget_start(group, [Run(group / name, cfg, "ppo") for name in ("seed-1", "seed-2")])
    with pytest.raises(proximo.UsageError, match="num_seeds=3 was given, but the run has num_seeds=2"):
        start_or_resume(cfg, "ppo", mode="auto")
    assert {path: path.read_bytes() for path in group.rglob("*") if path.is_file()} == before


def test_from_python_and_wrong_words(tmp_path, monkeypatch, capsys):
    fields = {"num_envs": 2, "num_steps": 16, "total_timesteps": 64, "logger": "none"}
    for _ in range(2):
        assert proximo.train("ppo", run_dir=tmp_path / "run", resume="auto", **fields) == tmp_path / "run"
    monkeypatch.setenv("PROXIMO_RESUME", "sometimes")
    assert train(tmp_path / "other") == 2
    assert "PROXIMO_RESUME=sometimes is not allowed. Use auto or never." in capsys.readouterr().err
    monkeypatch.setenv("PROXIMO_RESUME", "auto")
    with pytest.raises(proximo.UsageError, match=r"PROXIMO_RESUME=auto needs the folder of the run"):
        proximo.train("ppo", **fields)
    for wrong in (False, [], np.zeros(2), "a" * 99):
        with pytest.raises(proximo.UsageError, match=r"^resume=.{1,60} is not allowed\. Use auto or never\.$"):
            proximo.train("ppo", resume=wrong, run_dir=tmp_path / "wrong", **fields)
    assert not (tmp_path / "wrong").exists()


def test_a_damaged_summary_says_how_to_go_on(tmp_path, capsys):
    """With the last checkpoint it is written again; without checkpoints the run can only be evaluated."""
    run = tmp_path / "run"
    train(run)
    score = json.loads((run / "summary.json").read_text())["episodic_return_mean"]
    (run / "summary.json").write_text("{")
    assert train(run, *AUTO) == 0
    assert json.loads((run / "summary.json").read_text())["episodic_return_mean"] == score
    remove_checkpoints(run)
    (run / "summary.json").write_text("{")
    assert train(run, *AUTO) == 5 and "can be evaluated, but not trained longer" in capsys.readouterr().err


def test_a_new_run_does_not_begin_beside_the_checkpoints_of_another(tmp_path, capsys):
    """A resume of the new run would continue from the checkpoints of the old one, which are of later iterations."""
    run = tmp_path / "run"
    train(run)
    (run / "config.json").unlink()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert train(run) == 2 and "contains checkpoints of a run without its config.json" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_removed_folder_does_not_come_back(tmp_path, capsys):
    """A callback removes it; the checkpoint that is due afterwards would make a folder that is no run."""
    folder = tmp_path / "run"

    def remove(it):
        if it.iteration == 3:
            shutil.rmtree(folder)

    with pytest.raises(FilesError, match="has been removed or moved while the run was writing to it"):
        proximo.train("ppo", env_id="CartPole-v1", num_envs=2, num_steps=16, total_timesteps=320, checkpoint_every=1,
                      run_dir=folder, callbacks=[remove])
    assert not folder.exists()

    def remove_and_fail(it):
        time.sleep(0.3)  # longer than it takes to copy an iteration
        if it.iteration == 4:
            shutil.rmtree(folder)
            raise RuntimeError("the callback fails")

    with pytest.raises(RuntimeError, match="the callback fails"):
        proximo.train("ppo", env_id="CartPole-v1", num_envs=2, num_steps=16, total_timesteps=320, checkpoint_every=100,
                      run_dir=folder, callbacks=[remove_and_fail])
    assert not folder.exists()
