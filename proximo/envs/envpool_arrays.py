"""What goes into EnvPool and what comes out: checked actions, one array of observations, masks."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from proximo.errors import EnvError, UsageError

GARBAGE = 1e30  # EnvPool gives the largest float as bound where it has none


class PoolReader(NamedTuple):
    """How EnvPool's observations become one array."""

    shape: tuple[int, ...]  # of a row, channels first
    dtype: np.dtype
    read: Callable[[Any], np.ndarray]  # (N, *shape)
    mask: Callable[[Any], np.ndarray | None]  # (N, A) bool


def pool_reader(space: spaces.Space, num_actions: int) -> PoolReader:
    """Dict observations are flattened in the order of their sorted names, as Gymnasium does; their `action_mask` is
    taken out where it fits the actions."""
    if isinstance(space, spaces.Dict):
        masked = "action_mask" in space.spaces and np.prod(space["action_mask"].shape) == num_actions
        parts = {name: part for name, part in space.spaces.items() if not (masked and name == "action_mask")}
        width = sum(_width(part) for part in parts.values())
        return PoolReader((width,), np.dtype(np.float32), lambda obs: _flat(parts, obs),
                          _read_mask if masked else _no_mask)
    if isinstance(space, spaces.Discrete):
        return PoolReader((int(space.n),), np.dtype(np.float32), lambda obs: _flat({"": space}, {"": obs}), _no_mask)
    shape, dtype = space.shape, np.dtype(space.dtype)
    if dtype == np.uint8 and len(shape) == 3 and shape[2] <= 4 < shape[0]:
        return PoolReader((shape[2], *shape[:2]), dtype, _channels_first, _no_mask)
    if dtype == np.float64:
        return PoolReader(shape, np.dtype(np.float32), lambda obs: obs.astype(np.float32), _no_mask)
    return PoolReader(shape, dtype, lambda obs: obs, _no_mask)


def _channels_first(obs: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(obs, -1, 1))


def _no_mask(obs: Any) -> None:
    return None


def _read_mask(obs: dict[str, np.ndarray]) -> np.ndarray:
    """A row that allows nothing (the game is over) allows all, so that every head stays finite."""
    mask = obs["action_mask"].reshape(len(obs["action_mask"]), -1).astype(bool)
    mask[~mask.any(1)] = True
    return mask


def _width(space: spaces.Space) -> int:
    if isinstance(space, spaces.Dict):
        return sum(_width(part) for part in space.spaces.values())
    return int(space.n) if isinstance(space, spaces.Discrete) else int(np.prod(space.shape))


def _flat(parts: dict[str, spaces.Space], obs: dict[str, Any]) -> np.ndarray:
    """(N, width) float32; whole numbers below n become n flags."""
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


def true_action_space(space: spaces.Space, name: str) -> spaces.Space:
    """The single action space with bounds that mean something. Raises UsageError where there is no policy for it."""
    if isinstance(space, spaces.Discrete):
        return space
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        with np.errstate(over="ignore"):
            unknown = (np.abs(space.high) > GARBAGE) | (np.abs(space.low) > GARBAGE)
            low = np.where(unknown, -np.inf, space.low).astype(np.float32)
            high = np.where(unknown, np.inf, space.high).astype(np.float32)
        return spaces.Box(low, high, dtype=np.float32)
    if isinstance(space, spaces.Box) and space.low.ndim == 1 and not space.low.any():
        return spaces.MultiDiscrete(space.high.astype(np.int64) + 1)
    raise UsageError(f"{name} has the action space {space}, for which there is no policy")


class ActionWriter:
    """Checks the policy's actions and gives EnvPool its own: it ends the interpreter, or plays on, with wrong ones."""

    def __init__(self, space: Any, native: Any, num_envs: int, name: str) -> None:
        self._space = space
        self._dtype, self._name = native.dtype, name
        self._shape = (num_envs, *space.shape)
        self._whole = not isinstance(space, spaces.Box)
        if self._whole:
            self._most = (self._space.n if isinstance(space, spaces.Discrete) else self._space.nvec) - 1
            self._dtype, self._start = np.dtype(np.int32), self._space.start

    def write(self, action: np.ndarray, time: int) -> np.ndarray:
        """(N, *action_shape), clipped to the bounds (detail 27). Raises EnvError for a wrong shape, dtype or value."""
        action = np.asarray(action)
        kinds = "iu" if self._whole else "fiu"
        if action.shape != self._shape or action.dtype.kind not in kinds:
            raise EnvError(f"{self._name}, step {time}: actions are {action.dtype} of shape {action.shape}, wanted "
                           f"{'integers' if self._whole else 'floats'} of shape {self._shape}")
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
