"""Spaces of environments as JSON, so that a model file says what its observations and actions mean."""

import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from proximo.envs.arrays.joint_actions import action_parts, parts_of_action
from proximo.envs.arrays.obs_layout import narrow_dtype
from proximo.envs.arrays.spaces import action_writer
from proximo.errors import FilesError, UsageError
from proximo.models.act_arguments import array_of
from proximo.protocols import Spec
from proximo.runs.folder.files import typed
from proximo.runs.folder.records import SPACES, SpaceRecord

MOST_NUMBERS = 1 << 28  # of one observation or action


def space_to_json(space: gym.Space[Any]) -> dict[str, Any]:
    """Describe a space that a policy can be trained with, or a subclass of one, in plain data."""
    if isinstance(space, gym.spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        other = {} if space.dtype == np.int64 else {"dtype": str(space.dtype)}
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()} | other
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
    """Return one number where all are equal: an image has many. Booleans become 0 and 1; see _with_texts."""
    bound = bound.astype(np.uint8) if bound.dtype == np.bool_ else bound
    return _with_texts(bound.flat[0].item() if bound.size and (bound == bound.flat[0]).all() else bound.tolist())


def _with_texts(bound: Any) -> Any:
    """Return nested lists of numbers with the texts "inf" and "-inf" in place of what JSON does not have."""
    if isinstance(bound, list):
        return [_with_texts(one) for one in bound]
    return str(bound) if isinstance(bound, float) and not math.isfinite(bound) else bound


def _with_numbers(bound: Any) -> Any:
    """Return nested lists of numbers in which `_with_texts` has replaced some. Earlier versions wrote -Infinity."""
    if isinstance(bound, list):
        return [_with_numbers(one) for one in bound]
    if isinstance(bound, str) and bound not in ("inf", "-inf"):
        raise FilesError(f"the model has a bound {bound!r:.60} of a space. Use the folder that Proximo wrote.")
    return float(bound) if isinstance(bound, str) else bound


def spec_from(tree: dict[str, Any]) -> Spec:
    """Return shapes and spaces from the content of a model folder.

    Raises:
        FilesError: There are no such spaces, or an observation would have too many numbers.
    """
    try:
        check_shape(tree["obs_shape"])
        observations = tree.get("observation_space")
        return Spec(obs_shape=tuple(tree["obs_shape"]), obs_dtype=narrow_dtype(np.dtype(tree["obs_dtype"])),
                    action_space=space_from_json(tree["action_space"]),
                    observation_space=None if observations is None else space_from_json(observations),
                    masked=tree.get("masked", False))
    except FilesError:
        raise
    except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError, MemoryError, RecursionError) as error:
        raise FilesError(f"the model has spaces that are impossible ({str(error)[:200] or type(error).__name__}). Use "
                         "the folder that Proximo wrote.") from error


def check_shape(shape: list[int]) -> None:
    """Raise FilesError if an array of this shape cannot be an observation or an action."""
    if any(size < 1 for size in shape) or math.prod(shape) > MOST_NUMBERS:
        raise FilesError(f"the model has an observation or action of shape {str(shape)[:100]}. Supported are 1 to "
                         f"{MOST_NUMBERS:,} numbers.")


def space_from_json(data: dict[str, Any]) -> gym.Space[Any]:
    """Rebuild the space that `space_to_json` described.

    Raises:
        FilesError: The type of the space is not one of the six, or a part of the description has a wrong type or size.
        AssertionError, ValueError: Gymnasium refuses it.
    """
    kind = typed(data, SpaceRecord, Path("space of the model"))["type"]
    typed(data, SPACES[kind], Path(f"{kind} space of the model"))
    if kind == "Discrete":
        check_shape([data["n"]])
        return gym.spaces.Discrete(data["n"], start=data["start"])
    if kind == "MultiDiscrete":
        check_shape([int(np.sum(data["nvec"]))])
        whole: Any = np.dtype(data.get("dtype", "int64"))
        assert whole.kind in "iu", f"choices of {whole}"
        return gym.spaces.MultiDiscrete(data["nvec"], dtype=whole, start=data["start"])
    if kind == "MultiBinary":
        check_shape(data["n"])
        return gym.spaces.MultiBinary(data["n"][0] if len(data["n"]) == 1 else data["n"])
    if kind == "Dict":  # a plain dict would be sorted
        return gym.spaces.Dict(OrderedDict((name, space_from_json(part)) for name, part in data["parts"]))
    if kind == "Tuple":
        return gym.spaces.Tuple([space_from_json(part) for part in data["parts"]])
    shape = data.get("shape", np.shape(data["low"]))
    check_shape(shape)
    dtype: Any = np.dtype(data["dtype"])
    low, high = (np.full(shape, _with_numbers(data[name]), dtype) for name in ("low", "high"))
    return gym.spaces.Box(low, high, dtype=dtype)


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
    """Convert actions of the environment to actions of the policy, the inverse of `action_for_env`.

    Args:
        action: One action, or `count` of them.
        space: The action space of one environment.
        count: Number of observations.

    Returns:
        (count, *action_shape): int64 choices from 0, or float32 components; float32 rows for a Dict or Tuple.

    Raises:
        UsageError: There is another number of actions, they have another shape, or they are not in the space.
    """
    if space.shape is None:
        return _rows_of_parts(action if isinstance(action, list) else [action], space, count)
    given = array_of(action, "the action")
    if given.shape not in ((count, *space.shape), space.shape if count == 1 else None):
        raise UsageError(f"the action has shape {given.shape}. {count} observations need {(count, *space.shape)}.")
    if given.dtype.kind not in ("biuf" if isinstance(space, gym.spaces.Box) else "biu"):
        raise UsageError(f"the action has dtype {given.dtype}. {space} needs {np.dtype(space.dtype)}.")
    rows = given.reshape(count, -1) if space.shape or isinstance(space, gym.spaces.Box) else given.reshape(count)
    if isinstance(space, gym.spaces.Box):
        return rows.astype(np.float32)
    if isinstance(space, (gym.spaces.Discrete, gym.spaces.MultiDiscrete)):
        rows = rows - space.start
    choices = space.n if isinstance(space, gym.spaces.Discrete) else getattr(space, "nvec", np.int64(2))
    if wrong := given.reshape(rows.shape)[(rows < 0) | (rows >= choices)].tolist():
        raise UsageError(f"the action {wrong[0]} is not in {space}. Give actions as `act` returns them.")
    return rows.astype(np.int64)


def _rows_of_parts(actions: list[Any], space: gym.Space[Any], count: int) -> np.ndarray:
    if len(actions) != count:
        raise UsageError(f"{len(actions)} actions were given for {count} observations. Give one for each.")
    return np.stack([_row_of_parts(one, space) for one in actions]).astype(np.float32)


def _row_of_parts(action: Any, space: gym.Space[Any]) -> np.ndarray:
    leaves = action_parts(space)
    try:
        parts = parts_of_action(space, action)
    except (LookupError, TypeError, ValueError):
        parts = []
    if len(parts) != len(leaves):
        raise UsageError(f"the action {action!r:.60} does not have the parts of {space}. Give actions as `act` returns "
                         "them.")
    return np.concatenate([np.ravel(action_from_env(*pair, 1)) for pair in zip(parts, leaves, strict=True)])
