"""Observations and actions of N environments at once, in the structure of a VectorEnv, as rows of one array."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from proximo.envs.arrays.image_axes import channels_first
from proximo.envs.arrays.obs_layout import (
    Layout,
    leaves,
    obs_layout,
    part_not_inside,
    part_views,
    without_mask,
    write_rows,
)
from proximo.envs.arrays.spaces import action_writer, read_space
from proximo.envs.custom.steps import described, dtype_name
from proximo.envs.custom.vector_checks import VectorChecks
from proximo.errors import AnswerError, EnvError, UsageError
from proximo.protocols import Array

if TYPE_CHECKING:
    from proximo.envs.arrays.torch_arrays import TensorArrays


class NumpyArrays:
    """The functions of an array library that are needed here; TensorArrays are those of torch."""

    name = "numpy"  # VecEnv.arrays

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return np.zeros(shape, dtype)

    def cast(self, x: Any, dtype: Any) -> Array:
        """Return a copy of an array, in another dtype."""
        return np.array(x, dtype)

    def where(self, condition: Array, x: Any, y: Any) -> Array:
        return np.where(condition, x, y)

    def rows_of(self, x: Any, which: Array) -> Array:
        """Return those rows of an array where `which`, (N,) bool, is True."""
        return np.asarray(x)[which]

    def write_parts(self, layout: Layout, observation: Any, rows: Array, read: Any) -> None:
        """Write an observation of several parts into rows; see write_rows. A choice outside of its space is a fault."""
        write_rows(layout, observation, rows, read)
        for part, view in zip(layout.parts, part_views(layout, rows)):
            if part.kind == "discrete" and not ((view >= 0) & (view < part.choices)).all():
                raise part_not_inside(part)


ArrayKind = Union[NumpyArrays, "TensorArrays"]


def arrays_of(obs: Any) -> ArrayKind:
    """Return the array library of observations: that of their first part."""
    while isinstance(obs, (dict, tuple)):
        obs = next(iter(obs.values() if isinstance(obs, dict) else obs), None)
    if not hasattr(obs, "detach"):
        return NumpyArrays()
    from proximo.envs.arrays.torch_arrays import TensorArrays

    return TensorArrays(obs.device)


class BatchRows:
    """Converts observations in the structure of their space to rows, which are copies.

    Attributes:
        shape: Of one row; images have their channels first.
        dtype: Of a row, in numpy; numbers of 64 bits become float32.
        masked: A Dict observation has the key `action_mask`.

    Args:
        space: The observation space of one environment.
        kind: The arrays of the observations.
        checks: Those of the environments.

    Raises:
        UsageError: The space is not supported.
    """

    def __init__(self, space: spaces.Space[Any], kind: ArrayKind, checks: VectorChecks) -> None:
        self._kind, self._checks, self._batched = kind, checks, batch_space(space, checks.num_envs)
        reader, self._layout = read_space(space, checks.name, checks.num_envs), obs_layout(space)
        self.shape, self.dtype, self.masked, self._axes = reader.shape, reader.dtype, reader.masked, reader.axes
        self._flatten = reader.flatten if self._layout is None else None  # to one-hot flags, one observation at a time
        if self._flatten is not None and kind.name == "torch":
            raise UsageError(f"{checks.name} returns tensors for the observation space {space}. Tensors need a Box, or "
                             "a Dict or Tuple.")
        stored = [part.dtype for part in self._layout.parts] if self._layout is not None else \
            [reader.dtype if self._flatten is None else np.dtype(space.dtype)]
        self._arrays = [(path, "".join(f"[{key!r}]" for key in path), (checks.num_envs, *(leaf.shape or ())), dtype)
                        for (path, leaf), dtype in zip(leaves(without_mask(space)), stored, strict=True)]

    def __call__(self, obs: Any, call: str, read: Any = ...) -> Array:
        """Return the rows of N observations (N, *shape), which the method `call` returned; see write_rows for `read`.

        Raises:
            UsageError: They do not have the shapes of their space, or numbers that would be cut off.
            EnvError: A number is too large for the dtype of the space, is not finite, or is no choice of the space.
        """
        self._check(obs, call, "obs")
        return self._rows(obs, self._checks.num_envs, read=read)

    def _check(self, obs: Any, call: str, what: str) -> None:
        for path, suffix, shape, dtype in self._arrays:
            self._checks.array(self._checks.part(obs, path, call, what), call, what + suffix, shape, dtype)

    def mask(self, obs: Any, info: Mapping[str, Any], call: str) -> Array | None:
        """Return the masks of actions (N, A), None if there are none; UsageError for other values than 0 and 1."""
        part = self._checks.part(obs, ("action_mask",), call, "obs") if self.masked else info.get("action_mask")
        if part is None:
            return None
        rows = self._checks.num_envs
        if getattr(part, "shape", ())[:1] != (rows,):
            raise UsageError(f"{self._checks.name}.{call}() returned action_mask {described(part)}. It has to have one "
                             f"row for each of the {rows} environments.")
        allowed = self._kind.cast(part, np.bool_)
        if dtype_name(part) != "bool" and not bool((allowed == part).all()):  # such as the 0 and -inf of added masks
            raise UsageError(f"{self._checks.name}.{call}() returned action_mask with other values than True, False, 1 "
                             "and 0. Return True for an action that is allowed, and False for another one.")
        return allowed.reshape(rows, -1)

    def of_ended(self, given: Any, rows: Array, over: Array, truncated: Array) -> Array:
        """Return the last observations of episodes that ended, and `rows` elsewhere.

        Args:
            given: N observations, or (from Gymnasium's own environments) an object array of single ones.
            rows: (N, *shape) what the environments returned after the reset.
            over: (N,) bool, where episodes ended.
            truncated: (N,) bool, where they were cut off. Elsewhere, floats may be NaN: nobody reads them.
        """
        final = self._kind.cast(rows, self.dtype)
        if getattr(given, "dtype", None) == np.dtype(object):
            for i in np.flatnonzero(over):
                final[i] = self._rows(given[i], read=... if truncated[i] else slice(0))
        else:
            self._check(given, "step", "final_obs")
            final[over] = self._rows(self._ended(given, over), int(over.sum()), read=truncated[over])
        return final

    def _ended(self, obs: Any, over: Array) -> Any:
        """Return those of N observations whose episode has ended."""
        if isinstance(obs, Mapping):
            return {name: self._ended(part, over) for name, part in obs.items()}
        if isinstance(obs, (tuple, list)):
            return tuple(self._ended(part, over) for part in obs)
        return self._kind.rows_of(obs, over)

    def _rows(self, obs: Any, *lead: int, read: Any = ...) -> Array:
        """Return rows (*lead, *shape)."""
        try:
            if self._flatten is not None:
                found = [self._flatten(one) for one in (iterate(self._batched, obs) if lead else [obs])]
                return np.asarray(found, self.dtype).reshape(*lead, *self.shape)
            if self._layout is None:
                return self._kind.cast(channels_first(self._axes, obs), self.dtype).reshape(*lead, *self.shape)
            rows = self._kind.zeros((*lead, self._layout.size), self._layout.dtype)
            self._kind.write_parts(self._layout, obs, rows, read)
        except AnswerError as error:
            raise EnvError(f"{self._checks.name}: {error}") from error
        return rows


def batch_actions(space: spaces.Space[Any], kind: ArrayKind, name: str, num_envs: int) -> Callable[[Array], Any]:
    """Return a function from the policy's actions (N, *action_shape) to those that a VectorEnv takes.

    Args:
        space: The action space of one environment.
        kind: The arrays of actions.
        name: The name of the environments, for messages.
        num_envs: N.

    Raises:
        UsageError: There is no policy for the space, or not for tensors.
    """
    single = action_writer(space, name)
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        if kind.name == "torch":
            raise UsageError(f"{name} takes tensors for the action space {space}. Tensors need Discrete, "
                             "MultiDiscrete, MultiBinary or Box.")
        return lambda action: concatenate(space, single(action), create_empty_array(space, num_envs))  # type: ignore[arg-type]
    if isinstance(space, spaces.Box):
        low, high = (kind.cast(bound[None], space.dtype) for bound in (space.low, space.high))
        return lambda action: kind.cast(action.reshape(-1, *low.shape[1:]).clip(low, high), space.dtype)
    start = kind.cast(getattr(space, "start", 0), space.dtype)
    return lambda action: kind.cast(action, space.dtype) + start
