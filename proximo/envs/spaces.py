"""Gymnasium's spaces as a learner needs them: one array to observe, actions the environment takes, masks in one row."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from proximo.errors import UsageError


class ObsReader(NamedTuple):
    """How one observation of a single environment becomes a row of one array."""

    shape: tuple[int, ...]  # of a row, channels first
    dtype: np.dtype  # of a row; float64 and what was flattened become float32
    native_shape: tuple[int, ...]  # of the array that is written, as the environment (or flattening) gives it
    native_dtype: np.dtype
    channels_last: bool  # the environment gives (H, W, C) images
    flatten: Callable[[Any], np.ndarray] | None  # None: the observation is an array already
    masked: bool  # a Dict observation holds `action_mask`


class QuickDiscrete(spaces.Discrete):
    """Discrete with a membership test in 0.3 instead of 6 us: classic control asks it at every step."""

    def contains(self, x: Any) -> bool:
        return 0 <= x - self.start < self.n


def read_space(space: spaces.Space, env_id: str) -> ObsReader:
    """Dict, Tuple, Discrete, ... are flattened by Gymnasium. Raises UsageError for a space without a fixed size."""
    masked = False
    if isinstance(space, spaces.Dict) and "action_mask" in space.spaces:
        masked = True
        space = spaces.Dict({name: part for name, part in space.spaces.items() if name != "action_mask"})
    flatten = None
    box = space
    if not isinstance(space, spaces.Box):
        box = _flat_box(space, env_id)
        flatten = _flattener(space)
    image = box.dtype == np.uint8 and len(box.shape) == 3 and box.shape[2] <= 4 < box.shape[0]
    shape = (box.shape[2], *box.shape[:2]) if image else box.shape
    kept = box.dtype == np.uint8 or (flatten is None and box.dtype != np.float64)
    dtype = box.dtype if kept else np.dtype(np.float32)
    return ObsReader(shape, dtype, box.shape, box.dtype, image, flatten, masked)


def _flat_box(space: spaces.Space, env_id: str) -> spaces.Box:
    flat = None
    try:
        if space.is_np_flattenable:
            flat = spaces.flatten_space(space)
    except (NotImplementedError, ValueError):
        pass
    if not isinstance(flat, spaces.Box):
        raise UsageError(f"{env_id} has the observation space {space}, which has no fixed size; "
                         "use Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of these")
    return flat


def _flattener(space: spaces.Space) -> Callable[[Any], np.ndarray]:
    def flatten(observation: Any) -> Any:
        fault = leaf_fault(space, observation, "observation")
        if fault:
            raise ValueError(fault)
        return spaces.flatten(space, observation)

    return flatten


def leaf_fault(space: spaces.Space, value: Any, where: str) -> str:
    """What is wrong with the shape or dtype of a (nested) observation, or an empty string."""
    if isinstance(space, spaces.Dict):
        lost = [name for name in space.spaces if name not in value]
        if lost:
            return f"{where} lacks the key {lost[0]!r}"
        faults = (leaf_fault(part, value[name], f"{where}[{name!r}]") for name, part in space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        if len(value) != len(space.spaces):
            return f"{where} has {len(value)} parts, its space {len(space.spaces)}"
        faults = (leaf_fault(part, value[i], f"{where}[{i}]") for i, part in enumerate(space.spaces))
    elif isinstance(space, spaces.Discrete):
        return "" if space.contains(value) else f"{where} is {value!r}, which is not in {space}"
    else:
        return array_fault(space.shape, space.dtype, value, where)
    return next((fault for fault in faults if fault), "")


def array_fault(shape: tuple[int, ...], dtype: np.dtype, value: Any, where: str) -> str:
    """What is wrong with the shape or dtype of an array, or an empty string."""
    if not isinstance(value, np.ndarray | np.generic):
        return f"{where} is a {type(value).__name__}, its space wants an array of {dtype} with shape {shape}"
    if value.shape != shape:
        return f"{where} has shape {value.shape}, its space wants {shape}"
    if value.dtype != dtype:
        return f"{where} has dtype {value.dtype}, its space wants {dtype}"
    return ""


def action_writer(space: spaces.Space, env_id: str) -> Callable[[np.ndarray], list]:
    """A function from the policy's actions (N, *action_shape) to what each environment takes (detail 27).

    Discrete choices count from 0 for the policy and from `start` for the environment; Box actions are clipped to the
    true bounds. Raises UsageError naming a space that has no policy.
    """
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return (lambda action: list(action + start)) if start else list
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        starts, whole = space.start, space.dtype
        return lambda action: list((action + starts).astype(whole, copy=False))
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        return lambda action: list(np.asarray(action).astype(np.int8))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high, dtype, shape = space.low, space.high, space.dtype, space.shape
        # two comparisons, since np.clip takes twice their time for a few numbers
        return lambda action: list(np.minimum(np.maximum(action.reshape(-1, *shape), low), high).astype(dtype))
    raise UsageError(f"{env_id} has the action space {space}, for which there is no policy; "
                     "use Discrete, MultiDiscrete or MultiBinary in one dimension, or Box of floats")


def mask_parts(space: spaces.Space) -> np.ndarray | None:
    """Choices of each component of the action, (components,); None where actions cannot be masked."""
    if isinstance(space, spaces.Discrete):
        return np.array([space.n])
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec
    return None


def mask_row(mask: Any, width: int) -> np.ndarray:
    """(A,) bool from an array, or from a tuple of arrays, one a component. Raises ValueError where the size differs."""
    row = np.concatenate([np.ravel(part) for part in mask]) if isinstance(mask, tuple | list) and np.ndim(mask[0]) \
        else np.ravel(np.asarray(mask))
    if row.size != width:
        raise ValueError(f"action_mask has {row.size} entries, the action space has {width} choices")
    return row.astype(bool)


def scripted_action(space: spaces.Space, mask: np.ndarray | None, rng: np.random.Generator) -> Any:
    """One random action as a policy would give it, allowed by `mask` (A,) where there is one."""
    if isinstance(space, spaces.Box):
        low, high = np.maximum(space.low, -1.5), np.minimum(space.high, 1.5)
        return rng.uniform(low, high).astype(space.dtype) if np.all(low <= high) else (low + high) / 2
    if isinstance(space, spaces.MultiBinary):
        return rng.integers(0, 2, space.shape)
    parts = mask_parts(space)
    allowed = np.ones(int(parts.sum()), bool) if mask is None else mask
    choice = [rng.choice(np.flatnonzero(part)) for part in np.split(allowed, np.cumsum(parts)[:-1])]
    return np.array(choice) if isinstance(space, spaces.MultiDiscrete) else np.int64(choice[0])
