"""Gymnasium's spaces as a learner needs them: observations as one array, and actions as the environment takes them."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from proximo.envs.arrays.image_axes import Axes, image_axes, stored_shape
from proximo.envs.arrays.joint_actions import action_parts, action_shape, part_width, structured
from proximo.envs.arrays.masks import mask_parts
from proximo.envs.arrays.obs_faults import cast_parts, leaf_fault, space_layout, warn_of_other_keys
from proximo.envs.arrays.obs_layout import (
    Layout,
    brief,
    leaves,
    narrow_dtype,
    obs_layout,
    title,
    without_mask,
    write_rows,
)
from proximo.envs.machine.memory import memory_problem
from proximo.errors import UsageError

OF_GYM = "; docs/other-environments.md (The interface of gym) has a wrapper for environments of gym"
FIXED_SIZE = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)  # of a fixed count


class ObsReader(NamedTuple):
    """How one observation of a single environment becomes a row of one array."""

    shape: tuple[int, ...]  # of a row, channels first
    dtype: np.dtype  # of a row; numbers of 64 bits and flattened observations become float32
    native_shape: tuple[int, ...]  # of the array that is written, as the environment (or flattening) returns it
    native_dtype: np.dtype
    axes: Axes  # where the environment's images have their channels
    flatten: Callable[[Any], np.ndarray] | None  # None: the observation is an array already
    masked: bool  # a Dict observation has the key `action_mask`


class QuickDiscrete(spaces.Discrete):
    """Discrete with a membership test that takes 0.3 instead of 6 us: classic control calls it at every step."""

    def contains(self, x: Any) -> bool:
        """Return whether `x`, which must be a number, is in the space."""
        return 0 <= x - self.start < self.n


def read_space(space: spaces.Space[Any], env_id: str, num_envs: int = 1) -> ObsReader:
    """Decide how observations of a space become rows of one array.

    Dict and Tuple observations are packed (obs_layout.py); Discrete, MultiDiscrete and MultiBinary become flags.

    Args:
        space: The observation space of one environment.
        env_id: The id of the environment, for the error message.
        num_envs: How many environments there are.

    Raises:
        UsageError: The observations have no fixed size, are empty, or do not fit into the memory.
    """
    check_size(space, env_id, num_envs)
    masked = isinstance(space, spaces.Dict) and "action_mask" in space.spaces
    try:
        layout = obs_layout(space)
        if layout is not None:
            return ObsReader(shape=(layout.size,), dtype=layout.dtype, native_shape=(layout.size,),
                             native_dtype=layout.dtype, axes="", masked=masked,
                             flatten=Packer(space, layout, env_id, 2 * num_envs))
        flat = space if isinstance(space, spaces.Box) and space.shape else spaces.flatten_space(space)
        if not isinstance(space, FIXED_SIZE):
            raise ValueError("its observations are not numbers of a fixed count")
    except (NotImplementedError, ValueError) as error:
        odd = [".".join(map(str, path)) for path, part in leaves(space) if path and not isinstance(part, FIXED_SIZE)]
        named = f" because of {' and '.join(odd)}" if odd else ""
        raise UsageError(f"{env_id} has the observation space {brief(space)}, which is not supported{named}. "
                         "Use Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of these.") from error
    native_shape, native_dtype = space_layout(flat)
    axes = image_axes(space)
    same = native_dtype == np.uint8 or flat is space
    return ObsReader(shape=stored_shape(axes, native_shape),
                     dtype=narrow_dtype(native_dtype) if same else np.dtype(np.float32),
                     native_shape=native_shape, native_dtype=native_dtype, axes=axes,
                     flatten=None if flat is space else partial(_flatten, space, env_id), masked=False)


def check_size(space: spaces.Space[Any], env_id: str, num_envs: int) -> None:
    """Raise UsageError for observations without a number, or with more numbers than fit into the memory."""
    try:
        count, layout = spaces.flatdim(without_mask(space)), obs_layout(space)
    except (NotImplementedError, ValueError):  # no fixed size
        return
    if not count:
        raise UsageError(f"{env_id} has the observation space {brief(space)}, which has no numbers: there is nothing "
                         "to learn from. Add an observation.")
    if empty := [part.name for part in layout.parts if not math.prod(part.shape)] if layout is not None else []:
        raise UsageError(f"{env_id}: {' and '.join(empty)} has no numbers. Leave it out of the observation space.")
    size = count * (np.dtype(space.dtype).itemsize if isinstance(space, spaces.Box) else 1)
    what = f"{env_id}: num_envs={num_envs} x 2 observations of {count:,} numbers ({size:,} bytes)"
    if problem := memory_problem(what, 2 * num_envs * size, "Use fewer or smaller observations."):
        raise UsageError(problem[0])


class Packer:
    """Makes one row of a Dict or Tuple observation.

    Args:
        space: The observation space of one environment.
        layout: Of its rows.
        env_id: The id of the environment, for messages.
        checked: How many of the first observations must not have other keys than the space. A comparison of every
            observation would take time.
    """

    def __init__(self, space: spaces.Space[Any], layout: Layout, env_id: str, checked: int) -> None:
        self._whole, self._space, self._layout, self._env_id = space, without_mask(space), layout, env_id
        self._checked = checked

    def __call__(self, observation: Any) -> np.ndarray:
        """Return the row of an observation; ValueError if it is not of the space."""
        if self._checked:
            self._checked -= 1
            warn_of_other_keys(self._whole, observation, self._env_id)
        if leaf_fault(self._space, observation, "observation"):
            observation = cast_parts(self._space, observation, "observation", self._env_id)
        row = np.zeros(self._layout.size, self._layout.dtype)
        write_rows(self._layout, observation, row)
        return row


def _flatten(space: spaces.Space[Any], env_id: str, observation: Any) -> Any:
    if leaf_fault(space, observation, "observation"):
        observation = cast_parts(space, observation, "observation", env_id)
    return spaces.flatten(space, observation)


def answer_fault(answer: Any) -> str:
    """Return what is wrong with what the step() of an environment returned."""
    if not isinstance(answer, tuple) or len(answer) != 5:
        size = f" of {len(answer)}" if isinstance(answer, tuple) else ""
        return (f"step returned a {type(answer).__name__}{size}; it must return "
                f"(observation, reward, terminated, truncated, info){OF_GYM if size == ' of 4' else ''}")
    if np.size(answer[1]) > 1 and not isinstance(answer[1], str):
        return f"reward is {answer[1]!r}; it must be one number. Return a weighted sum of several objectives"
    return f"reward is {answer[1]!r}; it must be a number"


def action_writer(space: spaces.Space[Any], env_id: str) -> Callable[[np.ndarray], list[Any]]:
    """Return a function from the policy's actions (N, *action_shape) to a list of N actions of the environments.

    Discrete actions count from 0 for the policy and from `start` for the environment. Box actions are clipped to the
    bounds of the space (detail 27). The policy's action of a Dict or Tuple is one row of float32, part after part.

    Args:
        space: The action space of one environment.
        env_id: The id of the environment, for the error message.

    Raises:
        UsageError: There is no policy for the space.
    """
    if isinstance(space, (spaces.Dict, spaces.Tuple)) and action_parts(space):
        return _joint_writer(space, env_id)
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return (lambda action: list(action + start)) if start else list
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        starts, whole = space.start, np.dtype(space.dtype)
        return lambda action: list((action + starts).astype(whole, copy=False))
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        return lambda action: list(np.asarray(action).astype(np.int8))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and 0 not in space.shape:
        low, high, (shape, dtype) = space.low[None], space.high[None], space_layout(space)
        # two comparisons, because np.clip takes twice their time for a few numbers
        return lambda action: list(
            np.minimum(np.maximum(action.reshape(-1, *shape), low), high).astype(dtype, copy=False))
    of_integers = isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.integer) and space.is_bounded()
    advice = " A Box of whole numbers is MultiDiscrete(high - low + 1, start=low)." * of_integers
    raise UsageError(f"{env_id} has the action space {brief(space)}, for which there is no policy. "
                     "Use Discrete, one-dimensional MultiDiscrete or MultiBinary, Box of floats (not empty), or Dict "
                     f"and Tuple of these.{advice}")


def check_actions(action: np.ndarray, space: spaces.Space[Any], num_envs: int, env_id: str) -> None:
    """Raise UsageError if actions have not the shape (num_envs, *action_shape); those of a Box may be flattened."""
    wanted = (num_envs, *action_shape(space))
    rows = (num_envs, math.prod(wanted[1:])) if isinstance(space, spaces.Box) else wanted
    if np.shape(action) not in (wanted, rows):
        raise UsageError(f"The actions have the shape {np.shape(action)}, and {num_envs} environments of {env_id} take "
                         f"{wanted}. Change the head of the policy, or what is passed to step().")


def _joint_writer(space: spaces.Space[Any], env_id: str) -> Callable[[np.ndarray], list[Any]]:
    parts = action_parts(space)
    writers = [action_writer(part, f"{env_id}, {title(path, 'action')},") for path, part in leaves(space)]
    stops = np.cumsum([part_width(part) for part in parts])

    def write(action: np.ndarray) -> list[Any]:
        columns = [x if isinstance(part, spaces.Box) else x.astype(np.int64)
                   for part, x in zip(parts, np.split(action, stops[:-1], axis=1))]
        written = [writer(x[:, 0] if isinstance(part, spaces.Discrete) else x)
                   for part, writer, x in zip(parts, writers, columns)]
        return [structured(space, iter(one)) for one in zip(*written, strict=True)]

    return write


def scripted_action(space: spaces.Space[Any], mask: np.ndarray | None, rng: np.random.Generator) -> Any:
    """Return one random action, as a policy would return it. Numbers of a Box are near 0 or near its nearest bound.

    Args:
        space: A space that action_writer accepts.
        mask: (A,) bool, the actions that are allowed; None: all.
        rng: Where the random numbers come from.
    """
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return _scripted_row(space, mask, rng)
    if isinstance(space, spaces.Box):
        usual = np.clip(0.0, space.low, space.high)
        low, high = np.maximum(space.low, usual - 1.5), np.minimum(space.high, usual + 1.5)
        return np.asarray(rng.uniform(low, high), space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return rng.integers(0, 2, space.shape)
    parts = mask_parts(space)
    assert parts is not None, f"{space} is no action space of a policy"
    allowed = np.ones(int(parts.sum()), np.bool_) if mask is None else mask
    choice = [rng.choice(np.flatnonzero(part)) for part in np.split(allowed, np.cumsum(parts)[:-1])]
    return np.array(choice) if isinstance(space, spaces.MultiDiscrete) else np.int64(choice[0])


def _scripted_row(space: spaces.Space[Any], mask: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
    columns, used = [], 0
    for part in action_parts(space):
        choices = mask_parts(part)
        size = 0 if choices is None else int(choices.sum())
        allowed = None if mask is None or not size else mask[used:used + size]
        used += size
        columns.append(np.ravel(scripted_action(part, allowed, rng)))
    return np.concatenate(columns).astype(np.float32)
