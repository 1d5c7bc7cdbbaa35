"""Action spaces as JSON, so that a model file says what its actions mean."""

from typing import Any

import gymnasium as gym
import numpy as np

from proximo.envs.spaces import action_writer
from proximo.errors import FilesError


def space_to_json(space: gym.Space[Any]) -> dict[str, Any]:
    """Describe a Discrete, MultiDiscrete, MultiBinary or Box space, or a subclass of one, in plain data."""
    if isinstance(space, gym.spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, gym.spaces.MultiBinary):
        return {"type": "MultiBinary", "n": [int(n) for n in space.shape]}
    assert isinstance(space, gym.spaces.Box)
    return {"type": "Box", "low": space.low.tolist(), "high": space.high.tolist(), "dtype": str(space.dtype)}


def space_from_json(data: dict[str, Any]) -> gym.Space[Any]:
    """Rebuild the space that `space_to_json` described.

    Raises:
        FilesError: If the type of the space is not one of the four.
    """
    if data["type"] == "Discrete":
        return gym.spaces.Discrete(data["n"], start=data["start"])
    if data["type"] == "MultiDiscrete":
        return gym.spaces.MultiDiscrete(data["nvec"], start=data["start"])
    if data["type"] == "MultiBinary":
        return gym.spaces.MultiBinary(data["n"][0] if len(data["n"]) == 1 else data["n"])
    if data["type"] == "Box":
        dtype: Any = np.dtype(data["dtype"])
        return gym.spaces.Box(np.array(data["low"], dtype), np.array(data["high"], dtype), dtype=dtype)
    raise FilesError(f"the model file has an action space of type {data['type']}, which this version does not support. "
                     "Supported are Discrete, MultiDiscrete, MultiBinary and Box; update Proximo.")


def action_for_env(action: np.ndarray, space: gym.Space[Any]) -> np.ndarray:
    """Convert sampled actions to what the environment's step function accepts.

    Box actions are clipped to the bounds (detail 27); Discrete actions are moved by `start`.

    Args:
        action: (N, ...) as the policy sampled it.
        space: The action space of one environment.

    Returns:
        (N, *space.shape) in the dtype of the space.
    """
    assert space.shape is not None
    converted = action_writer(space, "the model's environment")(action)
    return np.array(converted, space.dtype).reshape(len(action), *space.shape)
