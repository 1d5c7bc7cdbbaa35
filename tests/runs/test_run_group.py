"""`proximo resume` of what --num-seeds left: the whole group bit for bit, one of its runs alone up to rounding."""

import errno
import itertools
import os
import shutil
import signal
import time
from dataclasses import replace

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest

import proximo
from proximo.catalog import config_class
from proximo.cli.main import main
from proximo.envs.jax_control import ControlPure, Task
from proximo.envs.pure import PureVec
from proximo.errors import FilesError, UsageError
from proximo.on_jax.agent import SharedAgent
from proximo.on_jax.assemble import make_head
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.networks import Linear
from proximo.on_jax.parameters import layer_init
from proximo.on_jax.train import Results
from proximo.on_jax.train_group import select_member
from proximo.runs.folder.checkpoint import checkpoints, newest_checkpoint, save_checkpoint, save_tree
from proximo.runs.folder.run import Run, read_config
from proximo.runs.logs.console import Meter
from proximo.runs.run_group import member_folders, same_iteration
from tests.support.runs import CrashError, at_iteration, crash, rows, same_logs, same_weights, terminate, train, weights

WORDS = ("--framework", "jax", "--engine", "jax", "--num-seeds", "3", "--norm-obs")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Three seeds, ten iterations, never interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "runs"
    assert train(folder, *WORDS) == 0
    return folder


def all_equal(one, other):
    names = [folder.name for folder in member_folders(one)]
    assert names == ["seed-1", "seed-2", "seed-3"] == [folder.name for folder in member_folders(other)]
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
    assert main(["resume", str(tmp_path / "runs")]) == 0 and "all 10 iterations are done" in capsys.readouterr().err


@pytest.mark.parametrize("iteration,newest", [
    (2, "No checkpoint exists: a resume begins with the first iteration."), (7, "The newest checkpoint is of iteration 6.")])
def test_a_full_disk_names_the_checkpoint_and_the_command_of_the_group(iteration, newest, whole, tmp_path, monkeypatch, capsys):
    """The folder that could not be written is that of one seed; all of them continue together, with equal weights."""
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        at_iteration(patch, iteration, lambda: patch.setattr("proximo.runs.folder.checkpoint.save_file", full))
        assert train(tmp_path / "runs", *WORDS) == 5
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith(f" could not be written (No space left on device). Free disk space. {newest} "
                         f"Resume with: proximo resume {tmp_path / 'runs'}"), said
    assert main(["resume", str(tmp_path / "runs")]) == 0 and all_equal(whole, tmp_path / "runs")


def test_a_stopped_group_names_one_command_and_goes_on_from_the_checkpoint_that_all_have(whole, tmp_path, monkeypatch,
                                                                                         capsys):
    """As if it had been killed between two seeds' checkpoints: the newest of one seed is gone."""
    with monkeypatch.context() as patched:
        at_iteration(patched, 7, terminate)
        assert train(tmp_path / "runs", *WORDS) == 128 + 15
    assert f"Resume with: proximo resume {tmp_path / 'runs'}\n" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "runs" / "seed-2" / "checkpoints" / "00000007")
    assert main(["resume", str(tmp_path / "runs")]) == 0
    assert "after iteration 6 of 10" in capsys.readouterr().err
    assert all_equal(whole, tmp_path / "runs")


def interrupt_twice():
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
    time.sleep(10)  # the second signal ends it


def test_an_abandoned_group_is_saved_at_one_iteration(whole, tmp_path, monkeypatch, capsys):
    """Ctrl-C twice while the second seed logs iteration 8: iteration 7 was copied, with the first seed too."""
    with monkeypatch.context() as patched:
        patched.setattr("proximo.runs.interrupts.recent.LEAST_SECONDS", 0.0)
        patched.setattr("proximo.runs.interrupts.recent.SHARE", 1e9)
        at_iteration(patched, 8, lambda: at_iteration(patched, 8, interrupt_twice))
        assert train(tmp_path / "runs", *WORDS) == 128 + 2
    newest = {checkpoints(folder)[-1].name for folder in member_folders(tmp_path / "runs")}
    assert newest == {"00000007"}
    assert main(["resume", str(tmp_path / "runs")]) == 0
    assert "after iteration 7 of 10" in capsys.readouterr().err
    assert all_equal(whole, tmp_path / "runs")


def test_a_group_goes_on_from_the_newest_checkpoint_that_all_have(whole, tmp_path, monkeypatch, capsys):
    """As if each seed had saved another iteration after the sixth."""
    with monkeypatch.context() as patched:
        at_iteration(patched, 8, terminate)
        assert train(tmp_path / "runs", *WORDS, "--checkpoint-every", "1", "--keep-checkpoints", "0") == 128 + 15
    for name, gone in (("seed-1", (8,)), ("seed-2", (7,)), ("seed-3", (7, 8))):
        for number in gone:
            shutil.rmtree(tmp_path / "runs" / name / "checkpoints" / f"{number:08d}")
    assert main(["resume", str(tmp_path / "runs"), "--checkpoint-every", "3"]) == 0
    assert "after iteration 6 of 10" in capsys.readouterr().err
    assert all_equal(whole, tmp_path / "runs")


def test_one_of_them_goes_on_alone_up_to_rounding_and_says_so(whole, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patched:
        at_iteration(patched, 7, crash)
        with pytest.raises(CrashError):
            train(tmp_path / "runs", *WORDS)
    assert main(["resume", str(tmp_path / "runs" / "seed-2")]) == 0
    assert f"resume all of them: proximo resume {tmp_path / 'runs'}" in capsys.readouterr().err
    for name, x in weights(whole / "seed-2").items():
        np.testing.assert_allclose(weights(tmp_path / "runs" / "seed-2")[name], x, atol=5e-5)
    assert len(rows(tmp_path / "runs" / "seed-2", "metrics.csv")) == 10


def test_flags_change_all_and_runs_that_do_not_belong_together_are_said(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "runs")
    assert main(["resume", str(tmp_path / "runs"), "--total-timesteps", "384"]) == 0
    assert [len(rows(folder, "metrics.csv")) for folder in member_folders(tmp_path / "runs")] == [12, 12, 12]
    shutil.rmtree(tmp_path / "runs" / "seed-2")
    assert main(["resume", str(tmp_path / "runs")]) == 2
    assert "(seeds [1, 3]). Resume them one by one" in capsys.readouterr().err


def test_a_seed_whose_numbers_break_stops_alone(whole, tmp_path, monkeypatch, capsys):
    """The second seed's gradients are said to be infinite from iteration 4 on: the others end as they would have."""
    def failing(tree, seed):
        found = select_member(tree, seed)
        broken = seed == 1 and isinstance(tree, Results) and next(numbers) >= 4
        return found._replace(ok=np.array(False)) if broken else found

    numbers = itertools.count(1)
    monkeypatch.setattr("proximo.on_jax.train_group.select_member", failing)
    assert train(tmp_path / "runs", *WORDS) == 4
    said = capsys.readouterr().err
    assert "not finite in iteration 4 (seed 2)" in said and said.count("not finite in iteration") == 1
    assert "1 of 3 runs ended early because their numbers were not finite: seed=2" in said
    assert len(rows(tmp_path / "runs" / "seed-2", "metrics.csv")) == 3
    assert all(same_weights(whole / name, tmp_path / "runs" / name) for name in ("seed-1", "seed-3"))
    assert same_logs(whole / "seed-3", tmp_path / "runs" / "seed-3")

    monkeypatch.undo()
    kept = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    assert main(["resume", str(tmp_path / "runs"), "--total-timesteps", "4096"]) == 2
    assert "seed-2 ended early: the newest checkpoint is of iteration 3, and that of seed-1 of iteration 10" in (
        said := capsys.readouterr().err)
    assert f"Resume the others one by one: proximo resume {tmp_path / 'runs' / 'seed-1'}" in said
    assert kept == {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    shutil.rmtree(tmp_path / "runs" / "seed-2" / "checkpoints")
    assert main(["resume", str(tmp_path / "runs"), "--total-timesteps", "4096"]) == 2
    assert "seed-2 ended early: the newest checkpoint is of iteration 0" in capsys.readouterr().err


def test_all_seeds_that_break_end_the_command(tmp_path, capsys):
    assert train(tmp_path / "runs", *WORDS, "--learning-rate", "1e30") == 4
    assert "3 of 3 runs ended early" in capsys.readouterr().err


def test_a_refused_group_leaves_nothing_and_a_refused_resume_all(whole, tmp_path, capsys):
    assert train(tmp_path / "runs", *WORDS, "--device-ids", "0", "1", "--num-minibatches", "1") == 2
    assert not (tmp_path / "runs").exists()
    shutil.copytree(whole, tmp_path / "kept")
    before = {path: path.read_bytes() for path in (tmp_path / "kept").rglob("*") if path.is_file()}
    for folder, *words in (("", "--device-ids", "0", "1"), ("", "--num-seeds", "5"), ("seed-1", "--num-seeds", "5")):
        assert main(["resume", str(tmp_path / "kept" / folder), "--total-timesteps", "640", *words]) == 2
    assert capsys.readouterr().err.count("Leave --num-seeds out") == 2
    assert {path: path.read_bytes() for path in (tmp_path / "kept").rglob("*") if path.is_file()} == before


def test_several_seeds_from_python(whole, tmp_path):
    cfg = read_config(whole / "seed-1", config_class).cfg
    cfg = replace(cfg, num_seeds=3, run_dir=str(tmp_path / "runs"), total_timesteps=192)
    assert proximo.train(cfg) == tmp_path / "runs"
    assert [len(rows(folder, "metrics.csv")) for folder in member_folders(tmp_path / "runs")] == [6, 6, 6]
    assert proximo.resume(tmp_path / "runs", total_timesteps=320) == tmp_path / "runs"
    assert [len(rows(folder, "metrics.csv")) for folder in member_folders(tmp_path / "runs")] == [10, 10, 10]


def make_line(cfg, seeds):
    """A point that a step moves by 0.1, inside the compiled function."""
    def advance(state, action):
        (x,) = state
        x = x + jnp.where(action == 1, 0.1, -0.1)
        return (x,), -jnp.abs(x), jnp.abs(x) > 1.0

    task = Task(low=(-0.5,), high=(0.5,), advance=advance, observe=lambda state: state, obs_size=1,
                action_space=gym.spaces.Discrete(2), limit=20)
    return PureVec(ControlPure(task, len(seeds)), seeds[0])


def make_unstable(cfg, seeds):
    """A point that one environment in two moves to NaN, and that never ends an episode there."""
    def advance(state, action):
        (x,) = state
        x = jnp.where(x > 0.3, jnp.nan, x + 0.01)
        return (x,), jnp.zeros_like(x), jnp.zeros_like(x, bool)

    task = Task(low=(-0.5,), high=(0.5,), advance=advance, observe=lambda state: state, obs_size=1,
                action_space=gym.spaces.Discrete(2), limit=1000)
    return PureVec(ControlPure(task, len(seeds)), seeds[0])


@pytest.mark.parametrize(("fields", "who"), [({}, r"environment \d"), ({"norm_obs": True}, "all environments")], ids=str)
def test_an_observation_that_is_not_finite_is_a_fault_of_the_environment(fields, who, tmp_path):
    """The compiled function checks no step. The message was that of a learning rate that is too high."""
    values = {"env_id": "Unstable", "num_envs": 8, "num_steps": 16, "num_minibatches": 2, "total_timesteps": 1280} | fields
    with pytest.raises(proximo.EnvError, match=rf"{who}: the observation is not finite .* in iteration \d+ \(seed 1\)"):
        proximo.train("ppo", framework="jax", make_envs=make_unstable, run_dir=tmp_path / "one", **values)
    with pytest.raises(proximo.NumbersError, match="2 of 2 runs ended early because their numbers were not finite"):
        proximo.train("ppo", framework="jax", make_envs=make_unstable, num_seeds=2, run_dir=tmp_path / "two", **values)


def linear(spec, cfg):
    head = make_head(lambda size: layer_init(Linear(1, size), 0.01), spec.action_space)
    return SharedAgent(jnp.tanh, layer_init(Linear(1, 1), 1.0), head)


def loss_with_entropy(batch, cfg):
    loss, stats = ppo_loss(batch, cfg)
    spread = jnp.where(batch.valid, batch.entropy, 0.0).sum() / batch.count
    return loss - 0.3 * spread, stats | {"spread": spread}


CUSTOM = {"make_envs": make_line, "make_agent": linear, "loss_fn": loss_with_entropy}


def test_environments_network_and_loss_of_a_program_train_together(tmp_path):
    """Every member equals the run that is trained alone, up to rounding; stopping and resuming changes no bit."""
    values = {"env_id": "Line", "num_envs": 2, "num_steps": 16, "num_minibatches": 2, "anneal_lr": False, "logger": "none",
              "checkpoint_every": 3}
    config = proximo.Config(framework="jax", total_timesteps=320, **values)
    together = proximo.train(replace(config, num_seeds=2, run_dir=str(tmp_path / "seeds")), **CUSTOM)
    values |= {"gamma": [0.9, 0.99], "run_dir": str(tmp_path / "sweep"), "seed": 2}
    swept = proximo.sweep("ppo", **CUSTOM, total_timesteps=160, **values)
    with pytest.raises(UsageError, match="make_envs=..., make_agent=..., loss_fn=..."):
        proximo.resume(swept, total_timesteps=320)
    proximo.resume(swept, total_timesteps=320, **CUSTOM)
    alone = proximo.train(replace(config, seed=2, run_dir=str(tmp_path / "alone")), **CUSTOM)
    assert {name: x.size for name, x in weights(alone).items()} == {name: x.size for name, x in weights(together / "seed-2").items()}
    for run in (together / "seed-2", swept / "gamma=0.99"):
        assert "losses/spread" in rows(run, "metrics.csv")[-1]
        for name, x in weights(alone).items():
            np.testing.assert_allclose(weights(run)[name], x, atol=5e-5)
    one, other = (weights(swept / name) for name in ("gamma=0.9", "gamma=0.99"))
    assert any(np.abs(one[name] - other[name]).max() > 1e-3 for name in one)


def checkpoint(iteration):
    """The least that a checkpoint contains."""
    return {"state": {"iteration": iteration, "steps": 1, "adam": {}, "statistics": None}, "log": {}, "versions": {}, "fixed": {}}


@pytest.fixture
def pair(tmp_path):
    """Two runs that both have the checkpoints 1 and 2."""
    runs = [Run(tmp_path / name, proximo.Config(), "ppo") for name in ("seed-1", "seed-2")]
    for run in runs:
        for iteration in (1, 2):
            save_checkpoint(run.folder, iteration, checkpoint(iteration), 0)
    return runs


def test_a_damaged_checkpoint_of_one_run_is_left_out_for_all(pair):
    (checkpoints(pair[1].folder)[-1] / "tree.json").write_text("{")
    newest = [newest_checkpoint(run.folder) for run in pair]
    assert [one["state"]["iteration"] for one in same_iteration(pair, newest)] == [1, 1]


def test_the_types_of_an_older_checkpoint_are_checked_too(pair):
    shutil.rmtree(checkpoints(pair[1].folder)[-1])
    save_tree(checkpoints(pair[0].folder)[0], checkpoint(1) | {"versions": 3})
    with pytest.raises(FilesError, match="versions=3 is not allowed"):
        same_iteration(pair, [newest_checkpoint(run.folder) for run in pair])


def test_every_run_has_the_logger_and_the_first_one_the_meter(tmp_path, monkeypatch):
    """Also where a resume names the logger."""
    made = []
    monkeypatch.setattr("proximo.runs.logs.log.Meter", lambda *given: made.append(given) or Meter(*given))
    assert train(tmp_path / "runs", *WORDS, "--logger", "console") == 0 and len(made) == 1
    for folder in member_folders(tmp_path / "runs"):
        assert read_config(folder, config_class).cfg.logger == "console"
    assert main(["resume", str(tmp_path / "runs"), "--total-timesteps", "384", "--logger", "console"]) == 0 and len(made) == 2


def test_the_line_that_resumes_runs_with_parts_of_a_program_names_them(tmp_path, monkeypatch, capsys):
    at_iteration(monkeypatch, 2, terminate)
    with pytest.raises(KeyboardInterrupt):
        proximo.train(framework="jax", num_seeds=2, num_envs=2, num_steps=16, num_minibatches=2, total_timesteps=320,
                      env_id="Line", anneal_lr=False, logger="none", run_dir=str(tmp_path / "runs"), **CUSTOM)
    assert f"Resume with: proximo.resume('{tmp_path / 'runs'}', make_envs=..., make_agent=..., loss_fn=...)" in capsys.readouterr().err


def test_a_group_of_which_one_run_was_continued_alone_is_refused_with_the_reason(whole, tmp_path, capsys):
    """The message names what differs, not the seeds, which are those of one command."""
    shutil.copytree(whole, tmp_path / "runs")
    assert main(["resume", str(tmp_path / "runs" / "seed-2"), "--total-timesteps", "384"]) == 0
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "runs"), "--total-timesteps", "384"]) == 2
    assert "differ in total_timesteps: one of them was continued alone. Resume them one by one" in capsys.readouterr().err
