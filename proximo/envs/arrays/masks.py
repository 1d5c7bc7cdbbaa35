"""Action masks: of one environment, and of N environments as one array."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from proximo.envs.arrays.joint_actions import action_parts
from proximo.errors import AnswerError, UsageError

NO_CHOICE = ("action_mask allows no action. Allow at least one choice of each component, or return terminated=True "
             "from the step that leads there")
LATE_MASK = "action_mask was returned, and the first reset() returned none. Return it from every reset() and step()"


def mask_parts(space: spaces.Space[Any]) -> np.ndarray | None:
    """Return the number of choices of each component of an action, (components,).

    Returns:
        None for a space whose actions cannot be masked, which is every space but Discrete, MultiDiscrete, and Dict and
        Tuple that have such parts.
    """
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        found = [parts for leaf in action_parts(space) if (parts := mask_parts(leaf)) is not None]
        return np.concatenate(found) if found else None
    if isinstance(space, spaces.Discrete):
        return np.array([space.n])
    return space.nvec if isinstance(space, spaces.MultiDiscrete) else None


def mask_row(mask: Any, width: int) -> np.ndarray:
    """Convert the mask of one environment to one row.

    Args:
        mask: An array, or a tuple or list of arrays, one per component of the action.
        width: Number of choices of all components together.

    Returns:
        (width,) bool.

    Raises:
        AnswerError: The mask is None, or has another number of entries, or other values than True, False, 1 and 0.
    """
    if mask is None:
        raise AnswerError(f"action_mask is None. Give one entry for each of the {width} choices of the action space, "
                          "all of them True where every action is allowed")
    several = isinstance(mask, tuple | list) and len(mask) and np.ndim(mask[0])
    row = np.concatenate([np.ravel(part) for part in mask]) if several else np.ravel(np.asarray(mask))
    if row.size != width:
        raise AnswerError(f"action_mask has {row.size} entries, the action space has {width} choices")
    allowed = row.astype(bool)
    if row.dtype != bool and not (row == allowed).all():
        raise AnswerError(f"action_mask has the value {row[row != allowed][0]}; it must be True or 1 for an action "
                          "that is allowed, and False or 0 for another one")
    return allowed


def mask_in(observation: Any) -> Any:
    """Return the key `action_mask` of a Dict observation; AnswerError if it has none."""
    if not hasattr(observation, "keys"):
        raise AnswerError(f"observation has the type {type(observation).__name__}; its space requires a dict")
    if "action_mask" not in observation:
        raise AnswerError("observation has no key 'action_mask'")
    return observation["action_mask"]


def mask_methods(envs: Sequence[gym.Env]) -> list[Callable[[], Any]]:
    """Return what reads `action_masks` of each environment, a method (as for sb3-contrib), a property or an attribute.

    Returns:
        One function per environment; nothing if they have none, or it is None.
    """
    found = [one for env in envs for one in _masks_now(env)]
    later = len(found) < len(envs) and all(map(has_mask_property, envs))  # which needs reset() first
    if not later and (len(found) < len(envs) or any(one is None for one in found)):
        return []
    attributes = later or not all(map(callable, found))
    return [partial(env.get_wrapper_attr, "action_masks") for env in envs] if attributes else found


def _masks_now(env: gym.Env) -> list[Any]:
    """Return the attribute `action_masks` in a list, which is empty where there is none or reading it fails now."""
    try:
        return [env.get_wrapper_attr("action_masks")] if env.has_wrapper_attr("action_masks") else []
    except Exception:  # of a property that needs what reset() makes
        return []


def has_mask_property(env: gym.Env) -> bool:
    """Return whether the masks of an environment are in a property of the outermost class that has any."""
    while isinstance(env, gym.Wrapper) and not hasattr(type(env), "action_masks"):
        env = env.env
    return isinstance(getattr(type(env), "action_masks", None), property)


def mask_reader(env: gym.Env) -> Callable[[Any, dict[str, Any] | None], np.ndarray | None]:
    """Return a function that reads the mask of one environment, (A,) bool, where MaskReader reads it.

    It takes an observation and its `info`, returns None where there is no mask, and raises AnswerError for a mask of
    another size and for one that allows no action.
    """
    space, methods = env.observation_space, mask_methods([env])
    in_obs = isinstance(space, spaces.Dict) and "action_mask" in space.spaces
    maskable = mask_parts(env.action_space) is not None
    reader = MaskReader(env.action_space, 1, in_obs, "", methods) if maskable else None

    def read(observation: Any, info: dict[str, Any] | None) -> np.ndarray | None:
        if reader is None or not (in_obs or methods or (info and "action_mask" in info)):
            return None
        if not reader.read(0, observation, info, False):
            raise AnswerError(NO_CHOICE)
        return reader.rows[0]

    return read


class MaskReader:
    """Reads the masks of N environments into one array.

    Attributes:
        rows: (N, A) bool, the actions that are allowed; A counts the choices of all components of an action.

    Args:
        space: The action space of one environment.
        num_envs: N.
        in_obs: Whether the mask is the key `action_mask` of the observation. Otherwise it is a key of `info`; if it is
            missing there, `methods` are called, and without them every action is allowed.
        env_id: The id of the environment, for the error message.
        methods: What mask_methods returned.

    Raises:
        UsageError: Actions of this space cannot be masked.
    """

    def __init__(self, space: spaces.Space[Any], num_envs: int, in_obs: bool, env_id: str,
                 methods: Sequence[Callable[[], Any]] = ()) -> None:
        parts = mask_parts(space)
        if parts is None:
            raise UsageError(f"{env_id} returns an action_mask, but its action space is {space}. Only Discrete and "
                             "MultiDiscrete actions can be masked: remove the mask or change the action space.")
        self.rows = np.ones((num_envs, int(parts.sum())), bool)
        self._methods = methods
        self._in_obs, self._starts = in_obs, np.concatenate([[0], np.cumsum(parts)[:-1]])

    def read(self, i: int, observation: Any, info: dict[str, Any] | None, over: bool) -> bool:
        """Write row i. Return False if an action must be chosen and none is allowed.

        At the end of an episode (`over`) nothing is chosen: a mask that allows no action then allows all of them. A
        method is not called there. That of sb3-contrib is called only before an action.
        """
        row = self.rows[i]
        if self._in_obs:
            row[:] = mask_row(mask_in(observation), len(row))
        elif info and "action_mask" in info:
            row[:] = mask_row(info["action_mask"], len(row))
        elif self._methods and not over:
            row[:] = mask_row(self._methods[i](), len(row))
        else:
            row[:] = True
        if np.logical_or.reduceat(row, self._starts).all():
            return True
        row[:] = True
        return over
