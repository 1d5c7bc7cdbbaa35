"""Metrics of a VectorEnv: of the last steps of episodes, and of every step."""

import logging

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper

import proximo
from proximo.config import Config
from proximo.envs.custom.suite import make_complete
from proximo.envs.vector_env import GymVectorEnvs
from proximo.errors import UsageError, warn_once
from tests.support.vector_envs import Tensors, sync_envs

MODES = ("NextStep", "SameStep", "Disabled")
NAN = np.full(2, np.nan, np.float32)


class Succeeding(gymnasium.Env):
    """Episodes of three steps with `is_success` in the last one, and `force` in every one."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {"force": 0.0}

    def step(self, action):
        self.time += 1
        info = {"force": float(self.time)} | ({"is_success": bool(action)} if self.time == 3 else {})
        return np.zeros(2, np.float32), 1.0, self.time == 3, False, info


def succeeding(mode):
    return SyncVectorEnv([Succeeding] * 2, autoreset_mode=AutoresetMode(mode))


@pytest.mark.parametrize("mode", MODES)
def test_metrics_are_those_of_the_step_that_ended_the_episode(mode):
    envs = GymVectorEnvs(succeeding(mode), 1, metrics=("is_success", "force"))
    steps = [envs.reset(), *(envs.step(np.array([0, 1])) for _ in range(3))]
    for time, step in enumerate(steps):
        np.testing.assert_array_equal(step.metrics["is_success"], [0.0, 1.0] if time == 3 else NAN)
        np.testing.assert_array_equal(step.metrics["force"], [3.0, 3.0] if time == 3 else NAN)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tensors", [False, True])
def test_step_metrics_are_those_of_every_step(mode, tensors):
    """Where Gymnasium resets in the same step, the entry of the last step is in final_info; a filler has none."""
    envs = succeeding(mode)
    envs = GymVectorEnvs(Tensors(envs) if tensors else envs, 1, metrics=["is_success"], step_metrics=["force"])
    assert envs.metric_names == ("is_success", "force")
    action = torch.tensor([0, 1]) if tensors else np.array([0, 1])
    steps = [envs.reset(), *(envs.step(action) for _ in range(5))]
    expected = [np.nan, 1, 2, 3, *([np.nan, 1] if mode == "NextStep" else [1, 2])]
    for step, force in zip(steps, expected, strict=True):
        np.testing.assert_array_equal(step.metrics["force"], np.full(2, force, np.float32))
        np.testing.assert_array_equal(step.metrics["is_success"], [0.0, 1.0] if force == 3 else NAN)


@pytest.mark.parametrize("mode", MODES)
def test_a_step_metric_that_no_reset_returns_has_its_last_value_where_all_episodes_end_at_once(mode):
    """Gymnasium then has the entry in final_info alone."""
    class Silent(Succeeding):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)[0], {}

    envs = GymVectorEnvs(SyncVectorEnv([Silent] * 2, autoreset_mode=AutoresetMode(mode)), 1, step_metrics=["force"])
    envs.reset()
    for force in (1, 2, 3):
        np.testing.assert_array_equal(envs.step(np.array([0, 1])).metrics["force"], np.full(2, force, np.float32))


class Telling(VectorWrapper):
    """Returns an info of its own, as simulators do."""

    def __init__(self, envs, info):
        super().__init__(envs)
        self.info = info

    def step(self, actions):
        return *self.env.step(actions)[:4], self.info


@pytest.mark.parametrize("tensors", [False, True])
def test_terms_of_a_reward_are_in_the_log_of_info(tensors):
    """Isaac Lab has them in extras["log"], for each robot, or one number for all."""
    terms = np.array([1.5, 2.5], np.float32)
    info = {"log": {"track": torch.as_tensor(terms) if tensors else terms, "Episode_Reward/pose": 2.0, "scale": np.float64(3)}, "speed": 4}
    envs = GymVectorEnvs(Telling(sync_envs("CartPole-v1", 2, tensors=tensors), info), 1,
                         step_metrics=("track", "Episode_Reward/pose", "scale", "speed"))
    envs.reset()
    step = envs.step(torch.zeros(2, dtype=torch.int64) if tensors else np.zeros(2, np.int64))
    assert [[*map(float, x)] for x in step.metrics.values()] == [[1.5, 2.5], [2, 2], [3, 3], [4, 4]]
    assert {str(x.dtype) for x in step.metrics.values()} == {"torch.float32" if tensors else "float32"}


def test_an_entry_with_the_name_log_may_be_a_metric():
    envs = GymVectorEnvs(Telling(succeeding("NextStep"), {"log": np.array([1, 2]), "final_info": None}), 1, step_metrics=["log", "x"])
    envs.reset()
    for _ in range(3):
        np.testing.assert_array_equal(envs.step(np.array([0, 1])).metrics["log"], [1, 2])


def test_step_metrics_are_logged(tmp_path):
    def make_envs(cfg, seeds):
        return GymVectorEnvs(Telling(sync_envs("CartPole-v1", len(seeds)), {"log": {"a/b": 2.5}}), seeds[0], step_metrics=["a/b"])

    run = proximo.train("ppo", make_envs=make_envs, num_envs=4, num_steps=16, total_timesteps=128, run_dir=tmp_path / "run")
    header, *lines = [line.split(",") for line in (run / "metrics.csv").read_text().splitlines()]
    assert [line[header.index("charts/a/b")] for line in lines] == ["2.5", "2.5"]


@pytest.mark.parametrize(("entry", "said"), [
    ({"a": 1}, r"as dict, .* Its shape has to be \(2,\)\."), (torch.zeros(2, 3), r"of shape \(2, 3\) and dtype float32, .* be \(2,\)"),
    (np.array(["a", "b"]), "It has to be numbers"), (0.5, r"as float, .* be \(2,\)")])
def test_an_entry_that_is_not_one_number_for_each_environment_is_refused(entry, said):
    envs = GymVectorEnvs(Telling(sync_envs("CartPole-v1", 2), {"x": entry}), 1, metrics=["x"])
    envs.reset()
    with pytest.raises(UsageError, match=r"^SyncVectorEnv\.step\(\) returned info\['x'\] .*" + said):
        envs.step(np.zeros(2, np.int64))


def test_a_step_metric_may_be_one_number():
    with pytest.raises(UsageError, match=r"returned info\['x'\] as list, .* Its shape has to be \(2,\) or \(\)\."):
        envs = GymVectorEnvs(Telling(sync_envs("CartPole-v1", 2), {"x": [1, 2]}), 1, step_metrics=["x"])
        envs.reset()
        envs.step(np.zeros(2, np.int64))


@pytest.mark.parametrize("mode", MODES)
def test_a_name_that_info_does_not_have_is_told_when_an_episode_ends(mode, caplog):
    """A typing error was an empty column of the log."""
    warn_once.cache_clear()
    cfg = Config(info_metrics=("is_succes", "force"))
    envs = make_complete(lambda cfg, seeds: succeeding(mode), cfg, [1, 2])
    envs.reset()
    with caplog.at_level(logging.WARNING, "proximo"):
        for time in range(7):
            assert len(caplog.messages) == (time > 2)
            envs.step(np.array([0, 1]))
    said, = caplog.messages
    assert said.startswith("SyncVectorEnv: info has no is_succes at the end of the first episode. It has force, is_success. ")


def test_a_step_metric_that_was_there_in_one_step_is_not_told(caplog):
    warn_once.cache_clear()
    envs = GymVectorEnvs(telling := Telling(succeeding("NextStep"), {"log": {"x": 1}}), 1, step_metrics=["x", "y"])
    envs.reset()
    with caplog.at_level(logging.WARNING, "proximo"):
        envs.step(np.array([0, 1]))
        telling.info = {}
        for _ in range(5):
            envs.step(np.array([0, 1]))
    said, = caplog.messages
    assert said.startswith("SyncVectorEnv: info has no y at the end of the first episode. It has no entries.")


def test_an_entry_of_the_log_is_no_metric_of_episodes_and_not_named_as_one(caplog):
    """The message said that there was no x, and that there was x."""
    warn_once.cache_clear()
    envs = GymVectorEnvs(Telling(succeeding("NextStep"), {"log": {"x": 1}}), 1, metrics=["x"])
    envs.reset()
    with caplog.at_level(logging.WARNING, "proximo"):
        for _ in range(5):
            envs.step(np.array([0, 1]))
    said, = caplog.messages
    assert said.startswith("SyncVectorEnv: info has no x at the end of the first episode. It has log. ")
