"""Observations as an environment returns them, one or several, as the rows that a network takes."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from proximo.envs.arrays.image_axes import channels_first
from proximo.envs.arrays.masks import mask_row
from proximo.envs.arrays.obs_faults import cast_numbers, leaf_fault
from proximo.envs.arrays.spaces import ObsReader, read_space
from proximo.errors import ProximoError, UsageError, first_line

Space = spaces.Space[Any]
Convert = Callable[[Space, Any, str], Any]  # (space of a leaf, its value, its name in messages)


class Rows(NamedTuple):
    """Observations as a network takes them."""

    obs: np.ndarray  # (N, *obs_shape)
    mask: np.ndarray | None  # (N, A) bool, where the observations contain an action mask
    single: bool  # there was one observation, not N of them


def space_reader(space: Space | None, obs_shape: tuple[int, ...], dtype: Any = np.float32) -> ObsReader:
    """Return how observations of a model's space become rows, (*obs_shape) of `dtype`; UsageError if they cannot."""
    if space is not None:
        return read_space(space, "the model's environment")
    return ObsReader(shape=obs_shape, dtype=np.dtype(dtype), native_shape=obs_shape, native_dtype=np.dtype(dtype),
                     axes="", flatten=None, masked=False)


def read_raw(space: Space | None, obs_shape: tuple[int, ...], raw: Any, unseen: str = "",
             reader: ObsReader | None = None) -> Rows:
    """Convert what an environment returned to rows.

    Args:
        space: The observation space of one environment; None if an observation is a row already.
        obs_shape: The shape of a row.
        raw: One observation, N of them in one structure (every array has a first axis of N more), or for Dict and
            Tuple spaces a list of N observations.
        unseen: A key of a Dict space that the policy does not see: it may be missing.
        reader: What `space_reader` returned, so that it need not be made again; None: it is made.

    Raises:
        UsageError: The structure or a shape is another one, a value is no array or not finite, or its conversion to
            the dtype of its space would change more than the precision of floats.
    """
    if isinstance(raw, tuple) and dict in map(type, raw[-1:]) and not isinstance(space, spaces.Tuple):
        raise UsageError(f"the observation is a tuple of {len(raw)} with an info, as reset() or step() of an "
                         "environment returns it. Give its first part.")
    try:
        return _read_rows(space, obs_shape, raw, unseen, reader)
    except (LookupError, RuntimeError, TypeError, ValueError) as error:  # of ragged lists, of a tensor's gradient
        if isinstance(error, ProximoError):
            raise
        raise UsageError(f"the observation cannot be read ({type(error).__name__}: {first_line(error)}). Give it as "
                         "the environment returns it: arrays, numbers, dicts or tuples.") from error


def _read_rows(space: Space | None, obs_shape: tuple[int, ...], raw: Any, unseen: str,
               reader: ObsReader | None) -> Rows:
    reader = reader or space_reader(space, obs_shape)
    if space is None or isinstance(space, spaces.Box):
        return _read_arrays(reader, np.asarray(raw) if space is None or space.shape else np.asarray(raw)[..., None])
    if unseen:
        raw = _with_key(space, unseen, raw)
    several, single = _observations(space, raw)
    if not several:
        raise UsageError("no observation was given. Give at least one.")
    return Rows(obs=np.stack([_flat_row(space, reader, one) for one in several]),
                mask=_masks(several) if reader.masked else None, single=single)


def _read_arrays(reader: ObsReader, obs: np.ndarray) -> Rows:
    shape = reader.native_shape
    extra = obs.ndim - len(shape)
    if not obs.size:
        raise UsageError("no observation was given. Give at least one.")
    if obs.shape[max(extra, 0):] != shape or extra not in (0, 1):
        several = f"(N{''.join(f', {size}' for size in shape)}{'' if shape else ','})"
        raise UsageError(f"the observation has shape {obs.shape}. This model takes {shape} or {several}.")
    rows = channels_first(reader.axes, _cast(obs if extra else obs[None], reader.native_dtype, "observation"))
    return Rows(obs=_finite(rows.astype(reader.dtype, copy=False), "observation"), mask=None, single=not extra)


def _cast(given: np.ndarray, dtype: np.dtype, where: str) -> np.ndarray:
    """Return an array in the dtype of its space, by the rule of training; UsageError if it cannot hold the numbers."""
    if given.dtype == dtype:
        return given
    cast = cast_numbers(given, dtype)
    if cast is None:
        raise UsageError(f"the {where} has dtype {given.dtype}. This model takes {dtype}, which cannot hold its "
                         "numbers: give them as the environment returns them, not scaled.")
    return cast


def _finite(numbers: np.ndarray, where: str) -> np.ndarray:
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        raise UsageError(f"the {where} is not finite in {numbers.dtype} (NaN, infinity or beyond its range). Give "
                         "finite numbers.")
    return numbers


def _observations(space: Space, raw: Any) -> tuple[list[Any], bool]:
    """Return a list of single observations, and whether `raw` was one of them."""
    compound = isinstance(space, (spaces.Dict, spaces.Tuple))
    if compound and isinstance(raw, list):
        return raw, False
    sizes: list[int | None] = []  # of each leaf: number of observations, None for one

    def measure(leaf: Space, value: Any, where: str) -> None:
        assert leaf.shape is not None
        extra = np.ndim(value) - len(leaf.shape)
        if extra not in (0, 1):
            raise UsageError(f"the {where} has shape {np.shape(value)}. This model takes {leaf.shape} or "
                             f"(N, {str(leaf.shape)[1:]}.")
        sizes.append(len(value) if extra else None)

    _convert(space, raw, measure)
    if len(set(sizes)) != 1:
        raise UsageError(f"the parts of the observation have different numbers of rows, {sizes}. Give one observation, "
                         "or the same number of them in each part.")
    if sizes[0] is None:
        return [raw], True
    return [_convert(space, raw, partial(_row, i)) for i in range(sizes[0])], False


def _row(i: int, leaf: Space, value: Any, where: str) -> Any:
    return value[i]


def _with_key(space: Any, key: str, raw: Any) -> Any:
    """Return observations in which a missing key has zeros."""
    if isinstance(raw, list):
        return [_with_key(space, key, one) for one in raw]
    if not isinstance(raw, Mapping) or key in raw:
        return raw
    rest = spaces.Dict([(name, part) for name, part in space.spaces.items() if name != key])
    several, single = _observations(rest, raw)
    filled = [{**one, key: _zeros(space[key])} for one in several]
    return filled[0] if single else filled


def _zeros(space: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: _zeros(part) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_zeros(part) for part in space.spaces)
    return space.start if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)) else np.zeros(space.shape)


def _convert(space: Space, value: Any, convert: Convert, where: str = "observation") -> Any:
    """Return the same structure with every leaf converted; UsageError if `value` has another structure."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or set(space.spaces) - set(value):
            raise UsageError(f"the {where} is {_described(value)}. This model takes a dict with "
                             f"{', '.join(map(str, space.spaces))}.")
        return {name: _convert(part, value[name], convert, f"{where}[{name!r}]") for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, (tuple, list)) or len(value) != len(space.spaces):
            raise UsageError(f"the {where} is {_described(value)}. This model takes a tuple of {len(space.spaces)}.")
        return tuple(_convert(part, value[i], convert, f"{where}[{i}]") for i, part in enumerate(space.spaces))
    return convert(space, value, where)


def _described(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dict with {', '.join(map(str, value))}"
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, (tuple, list)) else "")


def _flat_row(space: Space, reader: ObsReader, raw: Any) -> np.ndarray:
    """Return one observation as a row. Numbers are cast to the dtypes of the space."""
    def cast(leaf: Space, value: Any, where: str) -> Any:
        number = np.asarray(value)
        if not isinstance(leaf, spaces.Discrete):
            number = _finite(_cast(number, np.dtype(leaf.dtype), where), where)
        elif number.dtype.kind == "f":
            raise UsageError(f"the {where} has dtype {number.dtype}. This model takes {leaf.dtype}.")
        else:
            number = number[()]
        if fault := leaf_fault(leaf, number, where):
            raise UsageError(f"the {fault}. Give it as the environment returns it.")
        return number

    assert reader.flatten is not None
    return reader.flatten(_convert(space, raw, cast)).astype(reader.dtype)


def _masks(observations: list[Any]) -> np.ndarray:
    given = [one["action_mask"] for one in observations]
    width = sum(np.size(part) for part in given[0]) if isinstance(given[0], (tuple, list)) else np.size(given[0])
    return np.stack([mask_row(mask, width) for mask in given])
