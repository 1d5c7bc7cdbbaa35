"""Checks of a functional environment that compile nothing."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from proximo.envs.arrays.obs_layout import obs_layout
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
    if isinstance(observed, spaces.Dict):
        if "action_mask" in observed.spaces:
            wrong.append(f"{name}.observation_space has the part action_mask. Leave it out, and return the mask from "
                         "state_info(state), as {'action_mask': ...}.")
        if not _are_float_vectors(observed):
            wrong.append(f"{name}.observation_space={observed!r:.100} has a part that is not a vector of floats. Use a "
                         "Dict of Boxes of floats without images, or one Box.")
    elif not isinstance(observed, spaces.Box) or not observed.shape:
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


def observed_arrays(env: Any, given: Any) -> list[Array]:
    """Return the arrays of an observation: one, or the parts of a Dict in the order of its space.

    Whole numbers may become floats.

    Args:
        env: The environment.
        given: What `env.observation` returned.

    Raises:
        UsageError: The space describes another observation, or its dtype cannot hold these numbers.
    """
    space, call = env.observation_space, f"{type(env).__name__}.observation()"
    if not isinstance(space, spaces.Dict):
        return [_checked(space, jnp.asarray(given), call, "observation_space")]
    if not isinstance(given, Mapping) or given.keys() != space.spaces.keys():
        said = f"a dict with {', '.join(map(str, given))}" if isinstance(given, Mapping) else type(given).__name__
        raise UsageError(f"{call} returned {said}, and observation_space is a Dict with {', '.join(space.spaces)}. "
                         "Return a dict with these keys.")
    return [_checked(part, jnp.asarray(given[key]), f"{call}[{key!r}]", f"observation_space[{key!r}]")
            for key, part in space.spaces.items()]


def mask_row(env: Any, given: Any) -> Array:
    """Return a mask of actions, an array or one for each component, as (A,) bool.

    Raises:
        UsageError: It has floats: a mask that is added to logits is 0 where an action is allowed.
    """
    parts = [jnp.atleast_1d(jnp.asarray(x)) for x in (given if isinstance(given, (list, tuple)) else [given])]
    if wrong := [x.dtype for x in parts if x.dtype.kind not in "biu"]:
        raise UsageError(f"{type(env).__name__}.state_info() returned an action_mask of {wrong[0]}. Return True for an "
                         "action that is allowed, and False for another one.")
    return jnp.concatenate([x.astype(bool) for x in parts])


def _checked(space: spaces.Space[Any], found: Array, call: str, described: str) -> Array:
    declared = np.dtype(space.dtype)
    if found.shape != space.shape:
        raise UsageError(f"{call} returned an array of shape {found.shape}, and {described} has the shape "
                         f"{space.shape}. Return an observation of that shape: the functions are called for one "
                         "environment.")
    if not (np.can_cast(found.dtype, declared) or (found.dtype.kind in "iu" and declared.kind == "f")):
        raise UsageError(f"{call} returned {found.dtype}, and {described} has the dtype {declared}, which does not "
                         f"hold all of these numbers. Declare the space with {found.dtype}, or return {declared}.")
    return found


def _are_float_vectors(space: spaces.Dict) -> bool:
    """Return whether every key is a Box of floats that is no image."""
    boxes = all(isinstance(part, spaces.Box) and part.dtype.kind == "f" for part in space.spaces.values())
    layout = obs_layout(space) if boxes else None
    return layout is not None and layout.dtype == np.float32
