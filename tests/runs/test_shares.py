"""The shares of an iteration, against parts whose time is known."""

import time

import pytest

from proximo.catalog import config_class, parts_of
from proximo.on_torch.loss import ppo_loss
from proximo.runs.resolve import resolve
from proximo.runs.shares import Recorder, Shares, TimedEnvs, measure_shares

SMALL = {"num_envs": 2, "num_steps": 8, "num_minibatches": 2, "update_epochs": 1, "hidden_sizes": (8, 8), "checkpoint_every": 4}


def test_the_parts_of_an_iteration_add_up():
    """From times that are given; a loss that is compiled is not called, and a compiled iteration calls nothing."""
    recorder = Recorder()
    recorder.environment, recorder.played, recorder.learning = 2.0, 15.0, 16.0
    assert recorder.parts(10.0, 20.0) == {"environment": 2, "acting": 3, "evaluation and advantages": 1, "learning": 4}
    recorder.environment, recorder.played = 2.0, 25.0
    assert recorder.parts(20.0, 30.0) == {"environment": 2, "acting": 3, "learning": 5}
    assert recorder.parts(30.0, 40.0) == {"compiled iteration": 10}


class Slow:
    """Environments whose step takes 5 ms longer."""

    def __init__(self, envs):
        self._envs = envs

    def __getattr__(self, name):
        return getattr(self._envs, name)

    def step(self, action):
        time.sleep(0.005)
        return self._envs.step(action)


def slow_loss(batch, cfg):
    time.sleep(0.05)
    return ppo_loss(batch, cfg)


def test_environments_and_learning_get_their_time(tmp_path, monkeypatch):
    """8 steps of 5 ms, 2 minibatches of 50 ms: at least so much, of which the first, before its end, is learning too."""
    monkeypatch.chdir(tmp_path)
    cfg, parts = resolve(config_class("ppo")(**SMALL), "ppo", 1, 1), parts_of("ppo", "torch")
    slow = parts._replace(make_envs=lambda cfg, seeds: Slow(parts.make_envs(cfg, seeds)))
    found = measure_shares(cfg, "ppo", slow, slow_loss, iterations=2)
    assert list(found.seconds) == ["environment", "acting", "evaluation and advantages", "learning", "logging", "checkpoints"]
    assert found.seconds["environment"] >= 0.04 and found.seconds["learning"] >= 0.1
    assert found.steps == 16 and found.sps == pytest.approx(16 / sum(found.seconds.values()))
    assert sum(map(found.share, found.seconds)) == pytest.approx(1) and found.share("flying") == 0
    assert list(tmp_path.iterdir()) == []


def test_timed_environments_are_those_that_they_hold():
    recorder = Recorder()
    envs = parts_of("ppo", "torch").make_envs(config_class("ppo")(**SMALL), [0, 1])
    timed = TimedEnvs(envs, recorder)
    assert timed.num_envs == 2 and timed.reset().obs.shape == (2, 4) and recorder.played == 0
    assert timed.step(envs.reset().first.astype(int)).reward.shape == (2,)
    assert 0 < recorder.environment < 1 and recorder.played > 0
    timed.close()


def test_shares_are_plain_numbers():
    assert Shares({"learning": 3.0, "acting": 1.0}, 8, 2.0, 0.0).share("learning") == 0.75
