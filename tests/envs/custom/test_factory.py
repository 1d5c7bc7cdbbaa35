"""Environments that a program passes as a function, a class or an object."""

import gc
import re
from functools import partial

import gymnasium
import numpy as np
import pytest

import proximo
from proximo.config import Config
from proximo.envs.custom.factory import env_factory, env_name, make_from_factory, make_new
from proximo.envs.gym import make_gym
from proximo.envs.gym_source import EnvSource, passed_env_problems
from proximo.errors import UsageError
from proximo.variants import Atari, Compact, Continuous, Procgen
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


@pytest.mark.parametrize(("cfg", "problem"), [
    (Atari(), "settings of this variant are for the environments of its suite only"), (Procgen(), "of its suite only"),
    (Compact(env_id="ALE/Pong-v5", frame_stack=2), "frame_stack=2 has no effect"), (Config(engine="envpool"), "engine=envpool has no effect"),
    (Config(engine="gym"), ""), (Compact(env_id="Mine"), ""), (Continuous(), "")])
def test_settings_that_would_have_no_effect_are_refused(cfg, problem):
    """They were recorded as applied: an own environment named ALE/Pong-v5 was not stacked, nor its rewards clipped."""
    found = passed_env_problems(cfg)
    assert bool(found) == bool(problem) and problem in " ".join(found)


def test_a_variant_of_a_suite_does_not_train_an_environment_of_a_program(tmp_path):
    with pytest.raises(UsageError, match="Use a variant for Gymnasium's environments, such as ppo, or make_envs"):
        proximo.train("ppo_atari", env=Truncated, total_timesteps=1024, run_dir=tmp_path / "run")
    with pytest.raises(UsageError, match="engine=jax has no effect"):
        next(proximo.iterations("ppo", env=Truncated, total_timesteps=1024, engine="jax"))
    assert not (tmp_path / "run").exists()
