"""Environments that a program passes as a function, a class or an object."""

import gc
import re
from functools import partial

import gymnasium
import numpy as np
import pytest

from proximo.config import Config
from proximo.envs.factory import env_factory, env_name, make_from_factory, make_new
from proximo.envs.gym import make_gym
from proximo.envs.gym_source import EnvSource
from proximo.errors import UsageError
from tests.support.probes import Truncated

SOURCE = EnvSource(name="mine")


@pytest.mark.parametrize(("env", "name"), [
    (Truncated, "Truncated"), (Truncated(), "Truncated"), (lambda: Truncated(), "Truncated"),
    (gymnasium.make("CartPole-v1"), "CartPole-v1"), (partial(gymnasium.make, "CartPole-v1"), "CartPole-v1")])
def test_names_are_ids_or_classes(env, name):
    assert env_name(env) == name


@pytest.mark.parametrize("env", [gymnasium.make("CartPole-v1"), partial(gymnasium.make, "CartPole-v1")])
def test_they_play_as_the_same_environments_by_id(env):
    """Copies of one object are independent of each other."""
    cfg = Config(num_envs=3)
    mine, theirs = make_from_factory(env_factory(env), cfg, [1, 2, 3]), make_gym(cfg, [1, 2, 3])
    one, other = mine.reset(), theirs.reset()
    for _ in range(60):
        assert all(np.array_equal(x, y) for x, y in zip(one[:6], other[:6]))
        one, other = (envs.step(np.array([0, 1, 1])) for envs in (mine, theirs))
    assert len({tuple(row) for row in one.obs}) == 3


def test_an_object_that_is_made_again_is_refused_also_after_a_collection():
    kept = Truncated()
    earlier = []
    for _ in range(3):
        make_new(Truncated, SOURCE, earlier)
        gc.collect()
    make_new(lambda: kept, SOURCE, earlier)
    for make in (lambda: kept, lambda: gymnasium.wrappers.TimeLimit(kept, 9)):
        with pytest.raises(UsageError, match="the same environment twice"):
            make_new(make, SOURCE, earlier)


def test_the_environment_that_has_the_name_is_closed_whatever_close_does(caplog):
    """A fault of close() is a warning here too."""
    class Stuck(Truncated):
        def close(self):
            raise RuntimeError("cannot close")

    assert env_name(lambda: Stuck()) == "Stuck"
    assert re.search(r"close\(\) raised RuntimeError: cannot close \(.*\.py, line \d+\)\. This is ignored\.", caplog.text)
