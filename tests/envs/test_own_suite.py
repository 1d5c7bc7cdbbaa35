"""Environments from a function of the user's are checked before training."""

import pytest

import proximo
from proximo.envs.gym import make_gym
from proximo.envs.own_suite import MEMBERS, make_complete
from proximo.errors import UsageError


class Wrapped:
    """Has everything, by __getattr__; `keeps_state` must not be read before the first reset."""

    def __init__(self, envs):
        self.envs = envs

    def __getattr__(self, name):
        return getattr(self.envs, name)

    @property
    def keeps_state(self):
        raise AssertionError("was read")


class Bare:
    num_envs = 4

    def step(self, action):
        """A method that it has."""


def test_everything_that_is_missing_is_named_at_once(tmp_path):
    with pytest.raises(UsageError) as caught:
        proximo.train(make_envs=lambda cfg, seeds: Bare(), total_timesteps=1024, run_dir=tmp_path / "run")
    said = str(caught.value)
    assert "make_envs returned Bare, which lacks" in said and "add-an-environment.md" in said
    named = {word.strip(",") for word in said.partition("lacks")[2].split()}
    assert named >= {*MEMBERS} - {"num_envs", "step"} and not named & {"num_envs", "step"}
    assert not (tmp_path / "run").exists()


def test_another_number_of_environments_is_refused():
    """Steps would be counted wrong."""
    cfg = proximo.Config(num_envs=4, total_timesteps=1024)
    with pytest.raises(UsageError, match="make_envs returned 8 environments, and not one .* Make len"):
        proximo.iterations(cfg, make_envs=lambda cfg, seeds: make_gym(cfg, [*seeds, *seeds])).__next__()


def test_a_wrapper_is_complete_and_no_property_is_read():
    cfg = proximo.Config(num_envs=1)
    envs = make_complete(lambda cfg, seeds: Wrapped(make_gym(cfg, seeds)), cfg, [0])
    assert isinstance(envs, Wrapped)
    envs.close()
