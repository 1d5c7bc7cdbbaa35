"""Spaces of environments as JSON, so that a model file says what its observations and actions mean."""

from collections import OrderedDict
from typing import Any

import gymnasium as gym
import numpy as np

from proximo.envs.joint_actions import action_parts, parts_of_action
from proximo.envs.spaces import action_writer
from proximo.errors import FilesError, UsageError


def space_to_json(space: gym.Space[Any]) -> dict[str, Any]:
    """Describe a space that a policy can be trained with, or a subclass of one, in plain data."""
    if isinstance(space, gym.spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, gym.spaces.MultiBinary):
        return {"type": "MultiBinary", "n": [int(n) for n in space.shape]}
    if isinstance(space, gym.spaces.Dict):
        return {"type": "Dict", "parts": [[name, space_to_json(part)] for name, part in space.spaces.items()]}
    if isinstance(space, gym.spaces.Tuple):
        return {"type": "Tuple", "parts": [space_to_json(part) for part in space.spaces]}
    assert isinstance(space, gym.spaces.Box)
    return {"type": "Box", "low": _bound_to_json(space.low), "high": _bound_to_json(space.high),
            "shape": list(space.shape), "dtype": str(space.dtype)}


def _bound_to_json(bound: np.ndarray) -> Any:
    """Return one number where all are equal: an image has many."""
    return bound.flat[0].item() if bound.size and (bound == bound.flat[0]).all() else bound.tolist()


def space_from_json(data: dict[str, Any]) -> gym.Space[Any]:
    """Rebuild the space that `space_to_json` described.

    Raises:
        FilesError: If the type of the space is not one of the six.
    """
    if data["type"] == "Discrete":
        return gym.spaces.Discrete(data["n"], start=data["start"])
    if data["type"] == "MultiDiscrete":
        return gym.spaces.MultiDiscrete(data["nvec"], start=data["start"])
    if data["type"] == "MultiBinary":
        return gym.spaces.MultiBinary(data["n"][0] if len(data["n"]) == 1 else data["n"])
    if data["type"] == "Dict":  # a plain dict would be sorted
        return gym.spaces.Dict(OrderedDict((name, space_from_json(part)) for name, part in data["parts"]))
    if data["type"] == "Tuple":
        return gym.spaces.Tuple([space_from_json(part) for part in data["parts"]])
    if data["type"] == "Box":
        dtype: Any = np.dtype(data["dtype"])
        low, high = (np.full(data["shape"], data[name], dtype) for name in ("low", "high"))
        return gym.spaces.Box(low, high, dtype=dtype)
    raise FilesError(f"the model file has a space of type {data['type']}, which this version does not support. "
                     "Supported are Discrete, MultiDiscrete, MultiBinary, Box, Dict and Tuple; update Proximo.")


def action_for_env(action: np.ndarray, space: gym.Space[Any]) -> Any:
    """Convert sampled actions to what the environment's step function accepts.

    Box actions are clipped to the bounds (detail 27); Discrete actions are moved by `start`.

    Args:
        action: (N, ...) as the policy sampled it.
        space: The action space of one environment.

    Returns:
        (N, *space.shape) in the dtype of the space; for a Dict or Tuple a list of N actions in its structure.
    """
    converted = action_writer(space, "the model's environment")(action)
    if space.shape is None:
        return converted
    return np.array(converted, space.dtype).reshape(len(action), *space.shape)


def action_from_env(action: Any, space: gym.Space[Any], count: int) -> np.ndarray:
    """Convert actions of the environment to what the policy calls them, the inverse of `action_for_env`.

    Args:
        action: One action, or `count` of them.
        space: The action space of one environment.
        count: How many.

    Returns:
        (count, *action_shape): int64 choices from 0, or float32 components; float32 rows for a Dict or Tuple.

    Raises:
        UsageError: There is another number of actions, or they have another shape.
    """
    if space.shape is None:
        return _rows_of_parts(action if isinstance(action, list) else [action], space, count)
    given = np.asarray(action)
    if given.shape not in ((count, *space.shape), space.shape if count == 1 else None):
        raise UsageError(f"the action has shape {given.shape}. {count} observations need {(count, *space.shape)}.")
    rows = given.reshape(count, -1) if space.shape else given.reshape(count)
    if isinstance(space, gym.spaces.Box):
        return rows.astype(np.float32)
    if isinstance(space, (gym.spaces.Discrete, gym.spaces.MultiDiscrete)):
        rows = rows - space.start
    return rows.astype(np.int64)


def _rows_of_parts(actions: list[Any], space: gym.Space[Any], count: int) -> np.ndarray:
    if len(actions) != count:
        raise UsageError(f"{len(actions)} actions were given for {count} observations. Give one for each.")
    rows = [[np.ravel(action_from_env(part, leaf, 1))
             for part, leaf in zip(parts_of_action(space, one), action_parts(space), strict=True)] for one in actions]
    return np.stack([np.concatenate(row) for row in rows]).astype(np.float32)
