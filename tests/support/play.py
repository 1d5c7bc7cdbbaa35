"""Random actions for tests of environments."""

import numpy as np

from proximo.envs.arrays.spaces import scripted_action


def random_actions(envs, step, rng):
    """Return one allowed random action per environment, (N, *action_shape), numpy."""
    return np.stack([scripted_action(envs.action_space, None if step.mask is None else step.mask[i], rng)
                     for i in range(envs.num_envs)])


def play_random(envs, step, steps, rng):
    """Play allowed random actions from `step` on; yield each step with the action that led to it."""
    for _ in range(steps):
        action = random_actions(envs, step, rng)
        step = envs.step(action)
        yield action, step
