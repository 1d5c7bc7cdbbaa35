"""Entries of info at the ends of episodes (--info-metrics), in training and in evaluations, in this process and in workers."""

import csv
import logging
import math
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.errors import EnvError, UsageError, warn_once


class Succeeds(gymnasium.Env):
    """Episodes of `length` steps; the one with the number k since the seed succeeds where k is odd. Every step says False
    before, and `force` has a value in the last step of successes only."""

    observation_space, action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)

    def __init__(self, length=3, value=None):
        self.length, self.value, self.games = length, value, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.games = 0 if seed is not None else self.games + 1
        self.time = 0
        return np.zeros(2, np.float32), {"is_success": True}

    def step(self, action):
        self.time += 1
        success = self.time == self.length and self.games % 2 == 1
        info = {"is_success": success if self.value is None else self.value} | ({"force": 2.5} if success else {})
        return np.zeros(2, np.float32), 1.0, self.time == self.length, False, info


gymnasium.register("Succeeds-v0", entry_point=Succeeds)
CFG = Config(env_id="tests.envs.test_info_metrics:Succeeds-v0", info_metrics=("is_success", "force"), num_envs=4, num_steps=16,
             num_minibatches=2, total_timesteps=256)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("autoreset", ["same-step", "next-step"])
def test_only_last_steps_have_values(workers, autoreset):
    envs = make_gym(replace(CFG, env_workers=workers, autoreset=autoreset), [1, 2, 3, 4])
    try:
        assert envs.metric_names == ("is_success", "force")
        steps, ended = [envs.reset()], 0
        assert all(np.isnan(steps[0].metrics[name]).all() for name in envs.metric_names)
        for _ in range(16):
            step = envs.step(np.zeros(4, np.int64))
            over = step.terminated
            assert over.all() or not over.any()
            expected = (float(ended % 2), 2.5 if ended % 2 else math.nan) if over.all() else (math.nan, math.nan)
            ended += over.all()
            for name, value in zip(envs.metric_names, expected, strict=True):
                np.testing.assert_array_equal(step.metrics[name], np.full(4, value, np.float32))
        while not step.terminated.all():
            step = envs.step(np.zeros(4, np.int64))
        assert np.isnan(envs.reset().metrics["is_success"]).all()
        assert ended == (5 if autoreset == "same-step" else 4)
    finally:
        envs.close()


@pytest.mark.parametrize("settings", [{}, {"env_workers": 2}, {"env_workers": 2, "restart_envs": 1}, {"env_workers": 2, "env_groups": 2},
                                      {"overlap": True}, {"recurrent": "lstm"}, {"compile": True}, {"framework": "jax"}], ids=str)
def test_log_and_evaluations_have_the_success_rate(settings, tmp_path, monkeypatch):
    """Half of the episodes succeed. The log of all loops is the same."""
    if settings.get("framework") == "jax":
        pytest.importorskip("jax")
    run = proximo.train(CFG, run_dir=tmp_path / "run", eval_every=128, eval_episodes=16, **settings)
    with open(run / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["charts/is_success"]) for row in rows] == pytest.approx([2 / 5, 3 / 5, 3 / 6, 2 / 5])
    assert [row["charts/force"] for row in rows] == ["2.5"] * 4
    assert [row["eval/is_success"] for row in rows] == ["", "0.5", "", "0.5"]
    found = proximo.evaluate(run, episodes=16, allow_import=["tests.envs.test_info_metrics"])
    assert sum(found.metrics["is_success"]) == 8
    assert [x for x in found.metrics["force"] if not math.isnan(x)] == [2.5] * 8


def test_an_environment_of_a_program_has_them_and_a_callback_reads_them(tmp_path):
    def stop(it):
        if it.stats["charts/is_success"] > 0.5:
            raise proximo.StopTraining("it succeeds")

    run = proximo.train(replace(CFG, env_id="Mine"), env=Succeeds, callbacks=[stop], run_dir=tmp_path / "run")
    assert len((run / "metrics.csv").read_text().splitlines()) < 6


@pytest.mark.parametrize("workers", [0, 2])
def test_a_name_that_info_does_not_have_is_told_when_an_episode_ends(workers, caplog):
    """A typing error was an empty column of the log."""
    warn_once.cache_clear()
    envs = make_gym(replace(CFG, env_workers=workers, info_metrics=("is_succes", "is_success")), [1, 2, 3, 4])
    try:
        envs.reset()
        with caplog.at_level(logging.WARNING, "proximo"):
            for time in range(7):
                assert len(caplog.messages) == (time > 2)
                envs.step(np.zeros(4, np.int64))
    finally:
        envs.close()
    assert caplog.messages[0].startswith(f"{CFG.env_id}: info has no is_succes at the end of the first episode. It has is_success. ")


@pytest.mark.parametrize("value", ["yes", [1, 2]])
def test_what_is_no_number_is_a_fault(value):
    envs = make_gym(Config(env_id=CFG.env_id, info_metrics=("is_success",), env_kwargs=(f"value={value!r}",)), [1])
    envs.reset()
    with pytest.raises(EnvError, match=r"step 3: info\['is_success'\] is .* at the end of an episode; info_metrics needs a number"):
        for _ in range(3):
            envs.step(np.zeros(1, np.int64))


@pytest.mark.parametrize("value", ["[3.0]", "[[3]]"])
def test_an_array_of_one_number_is_that_number(value):
    envs = make_gym(Config(env_id=CFG.env_id, info_metrics=("is_success",), env_kwargs=(f"value={value}",)), [1])
    envs.reset()
    steps = [envs.step(np.zeros(1, np.int64)) for _ in range(3)]
    assert steps[-1].metrics["is_success"] == [3]


@pytest.mark.parametrize(("settings", "sentence"), [
    ({"info_metrics": ["SPS"]}, "info_metrics: SPS, which the log writes itself"),
    ({"info_metrics": ["a,b"]}, "info_metrics: 'a,b'. Use printable characters"),
    ({"info_metrics": ["is_success"], "engine": "envpool"}, "info_metrics is not available with engine=envpool")])
def test_what_cannot_be_logged_is_refused(settings, sentence):
    with pytest.raises(UsageError, match=sentence):
        next(proximo.iterations("ppo", **settings))


def test_a_task_that_jax_has_is_stepped_from_outside_to_have_info():
    pytest.importorskip("jax")
    from proximo.envs.inside import control_inside

    assert control_inside(Config(framework="jax")) and not control_inside(Config(framework="jax", info_metrics=("is_success",)))
