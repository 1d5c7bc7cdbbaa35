"""Which environments an agent may play in: those with the same observations and actions, part by part, in order."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.config import Config
from proximo.envs.gym_checks import check_envs
from proximo.errors import UsageError
from proximo.models.task import check_bounds, task_difference
from proximo.protocols import Spec

UNIT = spaces.Box(-1, 1, (2,), np.float32)
SORTED, GIVEN = spaces.Dict({"b": UNIT, "a": UNIT}), spaces.Dict(b=UNIT, a=UNIT)


def spec(action_space=spaces.Discrete(2), observation_space=None):  # noqa: B008
    return Spec((4,), np.dtype(np.float32), action_space, observation_space)


@pytest.mark.parametrize(("before", "after", "sentence"), [
    (spec(observation_space=GIVEN), spec(observation_space=SORTED), "observations are in the order"),
    (spec(spaces.Dict(turn=UNIT, grip=UNIT)), spec(spaces.Dict({"turn": UNIT, "grip": UNIT})),
     "parts of actions are in the order grip, turn, but the agent was trained with turn, grip"),
    (spec(spaces.Discrete(3)), spec(spaces.Discrete(3, start=1)), r"actions Discrete\\(3, start=1\\)"),
    (spec(spaces.MultiDiscrete([3, 2])), spec(spaces.MultiDiscrete([3, 2], start=[1, 0])), "actions MultiDiscrete"),
    (spec(spaces.Discrete(3)), spec(spaces.Discrete(4)), "actions Discrete"),
    (spec(), spec(), "^$"),
    (spec(observation_space=GIVEN), spec(observation_space=GIVEN), "^$"),
])
def test_differences(before, after, sentence):
    assert re.search(sentence.replace("\\\\", "\\"), task_difference(before, after, False))


def test_bounds_to_which_actions_are_scaled_must_be_the_same(caplog):
    wide = spec(spaces.Box(-5, 5, (2,), np.float32))
    with pytest.raises(UsageError, match="scales actions to their bounds"):
        check_bounds(spec(UNIT), wide, Config(distribution="squashed"))
    check_bounds(spec(UNIT), wide, Config())
    assert "Actions are clipped to the new bounds" in caplog.text


class Ordered(gymnasium.Env):
    """Observations of two parts, in the order of `space`."""

    action_space = spaces.Discrete(2)

    def __init__(self, space=GIVEN):
        self.observation_space, self.time = space, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.time += 1
        return self.observation_space.sample(), 1.0, self.time == 5, False, {}


def test_parts_in_another_order_are_refused_wherever_an_agent_plays(tmp_path):
    """The network would read each part for another one."""
    run = proximo.train(env=Ordered, total_timesteps=64, num_envs=2, num_steps=16, num_minibatches=2, run_dir=tmp_path / "run")
    with pytest.raises(UsageError, match="parts of observations are in the order"):
        proximo.evaluate(run, 2, env=lambda: Ordered(SORTED))
    with pytest.raises(UsageError, match="keys in the same order"):
        check_envs([Ordered(), Ordered(SORTED)], "Ordered")


def test_a_run_that_begins_with_the_weights_of_another_task_says_so(tmp_path, caplog):
    run = proximo.train(env=Ordered, total_timesteps=64, num_envs=2, num_steps=16, num_minibatches=2, run_dir=tmp_path / "run")
    proximo.train(env=lambda: Ordered(SORTED), init_from=str(run), total_timesteps=64, num_envs=2, num_steps=16,
                  num_minibatches=2, run_dir=tmp_path / "next")
    assert "The parts of observations are in the order" in caplog.text and "used as it is" in caplog.text
