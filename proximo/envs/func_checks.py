"""Checks of a functional environment that compile nothing."""

from numbers import Integral
from typing import Any

import numpy as np
from gymnasium import spaces

from proximo.errors import UsageError

FUNCTIONS = ("observation_space", "action_space", "initial", "transition", "observation", "reward", "terminal")


def check_func_env(env: Any, max_episode_steps: Any) -> None:
    """Check what can be checked before training.

    Raises:
        UsageError: The environment is a class or lacks a function, a space is not supported, or the time limit is no
            whole number from 1. All problems are listed.
    """
    name = type(env).__name__
    if isinstance(env, type):
        raise UsageError(f"{env.__name__} is a class. Give an environment: {env.__name__}().")
    if lacking := [part for part in FUNCTIONS if not hasattr(env, part)]:
        raise UsageError(f"{name} lacks {', '.join(lacking)} of a functional environment of Gymnasium (FuncEnv).")
    wrong, observed, acted = list[str](), env.observation_space, env.action_space
    if not isinstance(observed, spaces.Box) or not observed.shape:
        wrong.append(f"{name}.observation_space={observed!r:.100} is not a Box of one axis or more. Return an array "
                     "from observation(), such as jax.nn.one_hot(state, n), and describe it as a Box.")
    elif observed.dtype.kind in "iu" and observed.dtype.itemsize > 4:
        wrong.append(f"{name}.observation_space has the dtype {observed.dtype}, which JAX does not have. Use int32 or "
                     "float32.")
    rows = isinstance(acted, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary))
    discrete = rows and len(acted.shape or ()) < 2
    if not (discrete or (isinstance(acted, spaces.Box) and acted.dtype.kind == "f")):
        wrong.append(f"{name}.action_space={acted!r:.100} is not supported. Use Discrete, a MultiDiscrete or "
                     "MultiBinary of one axis, or a Box of floats.")
    number = isinstance(max_episode_steps, Integral) and not isinstance(max_episode_steps, bool)
    if max_episode_steps is not None and not (number and max_episode_steps > 0):
        wrong.append(f"max_episode_steps={max_episode_steps!r} is not allowed. Use a whole number from 1, or None for "
                     "episodes without a time limit.")
    if wrong:
        raise UsageError("\n".join(wrong))


def check_observed(env: Any, found: Any) -> None:
    """Raise UsageError if the space describes another observation, or its dtype cannot hold these numbers.

    Whole numbers may become floats.

    Args:
        env: The environment.
        found: What `env.observation` returned, an array of JAX.
    """
    space = env.observation_space
    name, declared = f"{type(env).__name__}.observation()", np.dtype(space.dtype)
    if found.shape != space.shape:
        raise UsageError(f"{name} returned an array of shape {found.shape}, and observation_space has the shape "
                         f"{space.shape}. Return an observation of that shape: the functions are called for one "
                         "environment.")
    if not (np.can_cast(found.dtype, declared) or (found.dtype.kind in "iu" and declared.kind == "f")):
        raise UsageError(f"{name} returned {found.dtype}, and observation_space has the dtype {declared}, which does "
                         f"not hold all of these numbers. Declare the space with {found.dtype}, or return {declared}.")
