"""What EnvPool takes and returns: checked actions, observations as one array, masks."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from proximo.envs.spaces import is_image, space_layout
from proximo.errors import EnvError, UsageError

UNBOUNDED = 1e30  # EnvPool has the largest float as bound where there is none


class PoolReader(NamedTuple):
    """How EnvPool's observations become one array."""

    shape: tuple[int, ...]  # of a row, channels first
    dtype: np.dtype
    read: Callable[[Any], np.ndarray]  # (N, *shape)
    mask: Callable[[Any], np.ndarray | None]  # (N, A) bool


def pool_reader(space: spaces.Space[Any], num_actions: int) -> PoolReader:
    """Decide how EnvPool's observations become one array.

    Dict observations are flattened in the order of their sorted names, as in Gymnasium. Their `action_mask` becomes the
    mask if it has one entry per action.

    Args:
        space: The observation space of one environment.
        num_actions: Number of discrete actions; 0 for other action spaces.
    """
    if isinstance(space, spaces.Dict):
        masked = "action_mask" in space.spaces and _width(space["action_mask"]) == num_actions
        parts = {name: part for name, part in space.spaces.items() if not (masked and name == "action_mask")}
        width = sum(_width(part) for part in parts.values())
        return PoolReader(shape=(width,), dtype=np.dtype(np.float32), read=lambda obs: _flat(parts, obs),
                          mask=_read_mask if masked else _no_mask)
    if isinstance(space, spaces.Discrete):
        return PoolReader(shape=(int(space.n),), dtype=np.dtype(np.float32),
                          read=lambda obs: _flat({"": space}, {"": obs}), mask=_no_mask)
    shape, dtype = space_layout(space)
    if is_image(shape, dtype):
        return PoolReader(shape=(shape[2], *shape[:2]), dtype=dtype, read=_channels_first, mask=_no_mask)
    if dtype == np.float64:
        return PoolReader(shape=shape, dtype=np.dtype(np.float32), read=lambda obs: obs.astype(np.float32),
                          mask=_no_mask)
    return PoolReader(shape=shape, dtype=dtype, read=lambda obs: obs, mask=_no_mask)


def _channels_first(obs: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(obs, -1, 1))


def _no_mask(obs: Any) -> None:
    return None


def _read_mask(obs: dict[str, np.ndarray]) -> np.ndarray:
    """Return the masks. A row that allows nothing (the game is over) then allows all: a head needs one action."""
    mask = obs["action_mask"].reshape(len(obs["action_mask"]), -1).astype(bool)
    mask[~mask.any(1)] = True
    return mask


def _width(space: spaces.Space[Any]) -> int:
    if isinstance(space, spaces.Dict):
        return sum(_width(part) for part in space.spaces.values())
    return int(space.n) if isinstance(space, spaces.Discrete) else math.prod(space_layout(space)[0])


def _flat(parts: dict[str, spaces.Space[Any]], obs: dict[str, Any]) -> np.ndarray:
    """Flatten to (N, width) float32. A number of Discrete(n) becomes n flags."""
    columns = []
    for name in sorted(parts):
        part, value = parts[name], obs[name]
        if isinstance(part, spaces.Dict):
            columns.append(_flat(part.spaces, value))
        elif isinstance(part, spaces.Discrete):
            columns.append(np.ravel(value)[:, None] == np.arange(part.start, part.start + part.n))
        else:
            columns.append(value.reshape(len(value), -1))
    return np.concatenate(columns, axis=1, dtype=np.float32)


def true_action_space(space: spaces.Space[Any], name: str) -> spaces.Space[Any]:
    """Return the action space of one environment, with infinite bounds where EnvPool has the largest float.

    Raises:
        UsageError: There is no policy for the space.
    """
    if isinstance(space, spaces.Discrete):
        return space
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        with np.errstate(over="ignore"):
            unknown = (np.abs(space.high) > UNBOUNDED) | (np.abs(space.low) > UNBOUNDED)
            low = np.where(unknown, -np.inf, space.low).astype(np.float32)
            high = np.where(unknown, np.inf, space.high).astype(np.float32)
        return spaces.Box(low, high, dtype=np.float32)
    if isinstance(space, spaces.Box) and space.low.ndim == 1 and not space.low.any():
        return spaces.MultiDiscrete(space.high.astype(np.int64) + 1)
    raise UsageError(f"{name} has the action space {space}, for which there is no policy. Use an environment with "
                     "Discrete, MultiDiscrete or Box actions.")


class ActionWriter:
    """Checks the policy's actions and converts them to EnvPool's.

    With a wrong action, EnvPool ends the interpreter or takes it for another one.

    Args:
        space: The action space of one environment; see true_action_space.
        native: EnvPool's own action space.
        num_envs: N.
        name: EnvPool's name of the environment, for error messages.
    """

    def __init__(self, space: Any, native: Any, num_envs: int, name: str) -> None:
        self._space = space
        self._dtype, self._name = native.dtype, name
        self._shape = (num_envs, *space.shape)
        self._whole = not isinstance(space, spaces.Box)
        if self._whole:
            self._most = (self._space.n if isinstance(space, spaces.Discrete) else self._space.nvec) - 1
            self._dtype, self._start = np.dtype(np.int32), self._space.start

    def write(self, action: np.ndarray, time: int) -> np.ndarray:
        """Return actions (N, *action_shape) for EnvPool, clipped to the bounds (detail 27).

        Args:
            action: (N, *action_shape), as the policy sampled it.
            time: Number of the step, for error messages.

        Raises:
            EnvError: Shape, dtype or a value is wrong.
        """
        action = np.asarray(action)
        kinds = "iu" if self._whole else "fiu"
        if action.shape != self._shape or action.dtype.kind not in kinds:
            raise EnvError(f"{self._name}, step {time}: actions are {action.dtype} of shape {action.shape}; they must "
                           f"be {'integers' if self._whole else 'floats'} of shape {self._shape}")
        if self._whole:
            good = (action >= 0) & (action <= self._most)
            answer = (action + self._start).astype(self._dtype)
        else:
            good = np.isfinite(action)
            answer = np.clip(action, self._space.low, self._space.high).astype(self._dtype)
        if not good.all():
            i = int(np.flatnonzero(~good.reshape(len(action), -1).all(1))[0])
            raise EnvError(f"environment {i} ({self._name}), step {time}: action {action[i]} is not in {self._space}")
        return answer
