"""What EnvPool takes and returns: checked actions, observations as one array, masks."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from proximo.envs.arrays.image_axes import channels_first, image_axes, stored_shape
from proximo.envs.arrays.masks import mask_parts
from proximo.envs.arrays.obs_faults import space_layout
from proximo.envs.arrays.obs_layout import Layout, narrow_dtype, obs_layout, write_rows
from proximo.errors import EnvError, UsageError

UNUSED_MASK = "mask_of_combinations"  # the key of an action mask that is no mask of single choices
UNBOUNDED = 1e30  # EnvPool has the largest float as bound where there is none


class PoolReader(NamedTuple):
    """How EnvPool's observations become one array."""

    space: spaces.Space[Any]  # the observation space of one environment
    shape: tuple[int, ...]  # of a row, channels first
    dtype: np.dtype
    read: Callable[[Any], np.ndarray]  # (N, *shape)
    mask: Callable[[Any], np.ndarray | None]  # (N, A) bool


def pool_reader(space: spaces.Space[Any], action_space: spaces.Space[Any]) -> PoolReader:
    """Decide how EnvPool's observations become one array.

    Dict observations are packed, as those of Gymnasium. Their `action_mask` becomes the mask if it has one entry per
    action, or of several components with equally many choices one row each; a mask of combinations of choices remains
    an observation, under another key.

    Args:
        space: The observation space of one environment.
        action_space: That of the actions.
    """
    parts = mask_parts(action_space)
    choices = () if parts is None else tuple(parts.tolist())
    mask = space.spaces.get("action_mask") if isinstance(space, spaces.Dict) else None
    masked = mask is not None and _has_choices(space_layout(mask)[0], choices)
    read_mask = partial(_read_mask, len(choices)) if masked else _no_mask
    if mask is not None and not masked:
        space = spaces.Dict([(UNUSED_MASK if name == "action_mask" else name, part)
                             for name, part in space.spaces.items()])  # type: ignore[attr-defined]
    layout = obs_layout(space)
    if layout is not None:
        return PoolReader(space=space, shape=(layout.size,), dtype=layout.dtype, read=partial(_packed, layout),
                          mask=read_mask)
    if isinstance(space, spaces.Discrete):
        return PoolReader(space=space, shape=(int(space.n),), dtype=np.dtype(np.float32), read=partial(_flags, space),
                          mask=read_mask)
    (shape, dtype), axes = space_layout(space), image_axes(space)
    stored = narrow_dtype(dtype)
    return PoolReader(space=space, shape=stored_shape(axes, shape), dtype=stored,
                      read=lambda obs: np.ascontiguousarray(channels_first(axes, obs), stored), mask=read_mask)


def _packed(layout: Layout, obs: Any) -> np.ndarray:
    if "action_mask" in obs:
        obs = obs | {UNUSED_MASK: obs["action_mask"]}
    first = obs
    for key in layout.parts[0].path:
        first = first[key]
    rows = np.zeros((len(first), layout.size), layout.dtype)
    write_rows(layout, obs, rows)
    return rows


def _flags(space: spaces.Discrete, obs: np.ndarray) -> np.ndarray:
    """Return a number of Discrete(n) as n flags, (N, n) float32."""
    return (np.ravel(obs)[:, None] == np.arange(space.start, space.start + space.n)).astype(np.float32)


def _no_mask(obs: Any) -> None:
    return None


def _has_choices(shape: tuple[int, ...], choices: tuple[int, ...]) -> bool:
    """Return whether a mask of this shape is one of single choices. (2, 2) may be one of combinations, too."""
    if len(choices) <= 1:
        return (math.prod(shape),) == choices
    return shape == (len(choices), choices[0]) != (2, 2) and len({*choices}) == 1


def _read_mask(components: int, obs: dict[str, np.ndarray]) -> np.ndarray:
    """Return the masks. A component with no choice (the game is over) then has all: a head needs one."""
    rows = len(obs["action_mask"])
    mask = obs["action_mask"].reshape(rows, components, -1).astype(bool)
    mask[~mask.any(2)] = True
    return mask.reshape(rows, -1)


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
