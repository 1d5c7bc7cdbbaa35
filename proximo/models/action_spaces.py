"""Action spaces as JSON, so that a model file knows what its actions mean."""

import gymnasium as gym
import numpy as np

from proximo.envs.spaces import action_writer
from proximo.errors import FilesError


def space_to_json(space: gym.Space) -> dict:
    """Discrete, MultiDiscrete, MultiBinary or Box as plain data."""
    if isinstance(space, gym.spaces.Discrete):  # or a subclass of it
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, gym.spaces.MultiBinary):
        return {"type": "MultiBinary", "n": [int(n) for n in space.shape]}
    assert isinstance(space, gym.spaces.Box)
    return {"type": "Box", "low": space.low.tolist(), "high": space.high.tolist(), "dtype": str(space.dtype)}


def space_from_json(data: dict) -> gym.Space:
    """The space that space_to_json described."""
    if data["type"] == "Discrete":
        return gym.spaces.Discrete(data["n"], start=data["start"])
    if data["type"] == "MultiDiscrete":
        return gym.spaces.MultiDiscrete(data["nvec"], start=data["start"])
    if data["type"] == "MultiBinary":
        return gym.spaces.MultiBinary(data["n"][0] if len(data["n"]) == 1 else data["n"])
    if data["type"] == "Box":
        dtype = np.dtype(data["dtype"])
        return gym.spaces.Box(np.array(data["low"], dtype), np.array(data["high"], dtype), dtype=dtype)
    raise FilesError(f"the model file names an action space {data['type']} that this version does not know")


def action_for_env(action: np.ndarray, space: gym.Space) -> np.ndarray:
    """(N, ...) as the policy sampled it -> (N, *space.shape) as the environment takes it: clipped (detail 27), moved by
    `start`, in the space's dtype."""
    taken = action_writer(space, "the model's environment")(action)
    return np.array(taken, space.dtype).reshape(len(action), *space.shape)
