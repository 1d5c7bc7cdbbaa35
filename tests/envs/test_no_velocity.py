"""Environments without velocities against the environments that they hide them of."""

import gymnasium as gym
import numpy as np
import pytest

from proximo.envs.no_velocity import VELOCITIES

HIDDEN = {"CartPole-v1": [1, 3], "Pendulum-v1": [2], "MountainCarContinuous-v0": [1]}  # from Gymnasium's documentation


def test_every_environment_is_tested():
    assert VELOCITIES.keys() == HIDDEN.keys()


@pytest.mark.parametrize("env_id", HIDDEN)
def test_only_the_velocities_are_hidden(env_id):
    """The same seed and actions give the same rewards, ends and positions; velocities are 0, and were not."""
    name, version = env_id.rsplit("-", 1)
    hidden, whole = gym.make(f"{name}NoVel-{version}"), gym.make(env_id)
    assert hidden.spec.max_episode_steps == whole.spec.max_episode_steps
    whole.action_space.seed(1)
    pairs = [(hidden.reset(seed=3), whole.reset(seed=3))]
    for _ in range(20):
        action = whole.action_space.sample()
        pairs.append((hidden.step(action), whole.step(action)))
    velocities = HIDDEN[env_id]
    for (ours, *rest), (theirs, *others) in pairs:
        assert ours.dtype == theirs.dtype and rest == others
        kept = np.delete(theirs, velocities)
        assert np.array_equal(np.delete(ours, velocities), kept) and not ours[velocities].any()
        assert theirs[velocities].any() or theirs is pairs[0][1][0]  # some environments begin at rest
