"""What a model does with stored observations: written by tools/make_fixtures.py, compared by tests/test_old_files.py."""

import json

import numpy as np
from gymnasium import spaces

ROWS, STEPS = 2, 2


def space_of(model):
    """The space of its observations; environments in JAX have a shape and a dtype only."""
    spec = model.spec
    return spec.observation_space or spaces.Box(-np.inf, np.inf, spec.obs_shape, spec.obs_dtype)


def sampled_observations(model):
    """Random observations, ready for JSON; every action is allowed."""
    space = space_of(model)
    space.seed(0)
    found = [space.sample() for _ in range(ROWS * STEPS)]
    for obs in found:
        if isinstance(obs, dict) and "action_mask" in obs:
            obs["action_mask"][:] = 1
        if isinstance(obs, np.ndarray) and obs.dtype == np.uint8:
            obs &= 0x80  # black and grey: such images are small in an archive
    return json.loads(json.dumps(space.to_jsonable(found), default=np.ndarray.tolist))


def rows_of_steps(model, observations):
    """The observations as a model takes them, for each step."""
    space = space_of(model)
    every = space.from_jsonable(observations)
    every = np.stack(every) if isinstance(space, spaces.Box) else every
    return [every[step * ROWS:(step + 1) * ROWS] for step in range(STEPS)]


def behaviour(model, observations):
    """Most likely actions, their log-probabilities and values, (STEPS, ROWS) each; the memory begins empty."""
    steps = rows_of_steps(model, observations)
    model.reset()
    actions = [model.act(obs, deterministic=True) for obs in steps]
    model.reset()
    values, logprobs = [], []
    for obs, action in zip(steps, actions):
        values.append(model.value(obs).tolist())
        logprobs.append(model.logprob(obs, action).tolist())
        model.act(obs, deterministic=True)
    return {"action": [action.tolist() for action in actions], "logprob": logprobs, "value": values}
