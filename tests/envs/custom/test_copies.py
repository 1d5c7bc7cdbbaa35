"""Copies of an environment object: what they share without being told, and arguments that come too late."""

import random

import gymnasium
import numpy as np
import pytest

from proximo.config import Config
from proximo.envs.custom.copies import Copies
from proximo.envs.custom.factory import env_factory, make_from_factory
from proximo.errors import UsageError
from proximo.runs.check.env import check_env


class Drawing(gymnasium.Env):
    """Draws from `rng`, which reset does not seed, or from `np_random`."""

    observation_space = gymnasium.spaces.Box(-9, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, rng=None):
        self.rng, self.t = rng, 0
        self.parts = {"inner": [self.rng]}

    def observe(self):
        draw = self.np_random.random if self.rng is None else self.rng.random
        return np.array([draw() + self.action_space.sample()], np.float32), {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.action_space.seed(seed)
        self.t = 0
        return self.observe()

    def step(self, action):
        self.t += 1
        return self.observe()[0], 1.0, self.t == 5, False, {}


def used(env):
    """An environment that was tried before it is passed."""
    env.reset()
    env.action_space.sample()
    return env


@pytest.mark.parametrize("rng", [np.random.default_rng(), random.Random(), np.random.RandomState()])
def test_copies_that_draw_the_same_numbers_are_told(rng, capsys):
    env = gymnasium.wrappers.ClipReward(Drawing(rng), -1, 1)
    make_from_factory(env_factory(env), Config(env_id=type(rng).__name__), [1, 2])
    assert "its copies have a random generator that reset(seed=...) does not seed" in capsys.readouterr().err
    assert [finding.ok for finding in check_env(env) if "copies" in finding.what] == [False]


@pytest.mark.parametrize("env", [Drawing(), used(Drawing()), used(gymnasium.make("CartPole-v1")),
                                 used(gymnasium.make("FrozenLake-v1", is_slippery=False))])
def test_copies_that_are_seeded_and_those_without_chance_are_not(env, capsys):
    make_from_factory(env_factory(env), Config(env_id="Seeded"), [1, 2])
    assert not Copies(env).draw_equally and "copies" not in capsys.readouterr().err


def test_arguments_of_an_object_are_refused():
    with pytest.raises(UsageError, match="is an object, which has its arguments already, and env_kwargs has size. Pass its class"):
        make_from_factory(env_factory(Drawing()), Config(env_kwargs=("size=3",)), [1])
