"""Observations of several parts (Dict, Tuple) as one row of numbers: where each part is, writing and normalising.

A row is an array of bytes in which every part keeps its own dtype, so that storage, shared memory and checkpoints need
to know nothing of parts. Where all parts are vectors of floats, a row is a plain float32 vector. The network begins
with an encoder that takes a row apart (on_torch/encoders.py, on_jax/encoders.py).
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from gymnasium import spaces

from proximo.envs.arrays.image_axes import channels_first, image_axes, is_image_part, stored_shape
from proximo.errors import AnswerError

ROW_MULTIPLE = 8  # bytes, so that the parts of every row are aligned


class Part(NamedTuple):
    """One array of a structured observation."""

    path: tuple[Any, ...]  # keys of Dict spaces and indices of Tuple spaces
    space: spaces.Space[Any]
    kind: Literal["image", "vector", "discrete"]
    shape: tuple[int, ...]  # in the row; images have their channels first, other parts one axis
    dtype: np.dtype  # in the row
    start: int  # its first item in the row, in items of the row's dtype
    stop: int

    @property
    def name(self) -> str:
        """The name of the part in messages."""
        return title(self.path)

    @property
    def is_float_vector(self) -> bool:
        """Whether --norm-obs normalises it."""
        return self.kind == "vector" and np.issubdtype(self.space.dtype, np.floating)

    @property
    def choices(self) -> list[int]:
        """The number of choices of each of its numbers, where it is discrete."""
        return np.ravel(self.space.n if isinstance(self.space, spaces.Discrete)
                        else self.space.nvec).tolist()  # type: ignore[attr-defined]


class Layout(NamedTuple):
    """Where the parts of a structured observation are in a row."""

    parts: tuple[Part, ...]
    size: int  # of a row, in items of `dtype`
    dtype: np.dtype  # float32 if every part is a vector of floats, otherwise uint8

    @property
    def has_images(self) -> bool:
        """Whether one of the parts is an image."""
        return any(part.kind == "image" for part in self.parts)


@overload
def obs_layout(space: "spaces.Dict | spaces.Tuple[Any]") -> Layout: ...
@overload
def obs_layout(space: spaces.Space[Any] | None) -> Layout | None: ...
def obs_layout(space: spaces.Space[Any] | None) -> Layout | None:
    """Return the layout of the rows of an observation space. The key `action_mask` is no part.

    Args:
        space: The observation space of one environment.

    Returns:
        None if the space is neither a Dict nor a Tuple.

    Raises:
        ValueError: A part has no fixed size.
    """
    if not isinstance(space, (spaces.Dict, spaces.Tuple)):
        return None
    parts = [_read_part(path, leaf) for path, leaf in leaves(without_mask(space))]
    packed = not all(part.is_float_vector for part in parts)
    end, placed = 0, []
    for part in parts:
        step = part.dtype.itemsize if packed else 1
        start = -(-end // step) * step
        end = start + math.prod(part.shape) * step
        placed.append(part._replace(start=start, stop=end))
    size = -(-end // ROW_MULTIPLE) * ROW_MULTIPLE if packed else end
    return Layout(parts=tuple(placed), size=size, dtype=np.dtype(np.uint8 if packed else np.float32))


def without_mask(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return a Dict space without the key `action_mask`, and every other space unchanged."""
    if not isinstance(space, spaces.Dict) or "action_mask" not in space.spaces:
        return space
    return spaces.Dict([(name, part) for name, part in space.spaces.items() if name != "action_mask"])


def leaves(space: spaces.Space[Any],
           path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], spaces.Space[Any]]]:
    """Yield the parts of a space in the order in which they become a row, each with its keys and indices."""
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            yield from leaves(part, (*path, name))
    elif isinstance(space, spaces.Tuple):
        for i, part in enumerate(space.spaces):
            yield from leaves(part, (*path, i))
    else:
        yield path, space


def title(path: tuple[Any, ...], what: str = "observation") -> str:
    """Return the name of a part in messages, such as observation['camera']."""
    return what + "".join(f"[{key!r}]" for key in path)


def brief(space: spaces.Space[Any]) -> str:
    """Return a space in messages. A Box of 100 numbers with bounds of their own would take 20 lines."""
    text = " ".join(str(space).split())
    return text if len(text) <= 200 else f"{text[:140]} ... {text[-50:]}"


def _read_part(path: tuple[Any, ...], space: spaces.Space[Any]) -> Part:
    shape = space.shape or ()
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return Part(path=path, space=space, kind="discrete", shape=(math.prod(shape),), dtype=np.dtype(np.int32),
                    start=0, stop=0)
    if not isinstance(space, (spaces.Box, spaces.MultiBinary)):
        raise ValueError(f"a part of type {type(space).__name__} has no fixed size")
    if is_image_part(space):
        return Part(path=path, space=space, kind="image", shape=stored_shape(image_axes(space), shape),
                    dtype=_stored_dtype(space), start=0, stop=0)
    return Part(path=path, space=space, kind="vector", shape=(math.prod(shape),), dtype=_stored_dtype(space),
                start=0, stop=0)


def narrow_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which arrays of a dtype are stored: float32 for 64 bits, which JAX does not have."""
    return np.dtype(np.float32) if dtype.itemsize == 8 else dtype


def _stored_dtype(space: spaces.Space[Any]) -> np.dtype:
    """Return narrow_dtype of a part, but float32 for float16 too, and uint8 for bool."""
    dtype = narrow_dtype(np.dtype(space.dtype))
    if dtype == np.bool_:
        return np.dtype(np.uint8)
    return np.dtype(np.float32) if dtype.kind == "f" else dtype


def part_views(layout: Layout, rows: np.ndarray) -> list[np.ndarray]:
    """Return every part of rows (..., size) as a view (..., *part.shape), which can be written."""
    return [rows[..., part.start:part.stop].view(part.dtype).reshape(*rows.shape[:-1], *part.shape)
            for part in layout.parts]


def part_value(part: Part, observation: Any) -> Any:
    """Return a part of an observation, or of N in one structure: an image with its channels first."""
    value = observation
    for key in part.path:
        value = value[key]
    if part.kind == "discrete":
        value = (value if hasattr(value, "detach") else np.asarray(value)) - part.space.start  # type: ignore[attr-defined]
    elif part.kind == "image":
        value = channels_first(image_axes(part.space), value)
    return value


def part_not_finite(part: Part) -> AnswerError:
    """Return the error of a part with a number that float32 does not have."""
    return AnswerError(f"{part.name} is not finite in {part.dtype} (NaN, infinity or beyond its range)")


def part_not_inside(part: Part) -> AnswerError:
    """Return the error of a part with a choice that its space does not have."""
    return AnswerError(f"{part.name} has a number that is not in {part.space}")


def write_rows(layout: Layout, observation: Any, rows: np.ndarray, read: Any = ...) -> None:
    """Write an observation, or N in one structure (every array has a first axis of N more), into rows (..., size).

    Args:
        layout: Of the rows.
        observation: What is written.
        rows: Where.
        read: Which of N rows anybody reads, (N,) bool. The others may have any floats. The default is all.

    Raises:
        ValueError: A float is NaN or infinite.
    """
    for part, view in zip(layout.parts, part_views(layout, rows)):
        view[...] = np.reshape(part_value(part, observation), view.shape)
        if part.dtype.kind == "f" and not np.isfinite(view[read]).all():
            raise part_not_finite(part)


class FloatView(NamedTuple):
    """The numbers of observations that --norm-obs normalises."""

    shape: tuple[int, ...]  # of these numbers in one observation
    whole: bool  # they are the whole observation, which becomes float32
    read: Callable[[Any], Any]  # rows -> (..., *shape)
    write: Callable[[Any, Any], Any]  # (rows, normalised numbers) -> rows with these


def float_view(space: spaces.Space[Any] | None, obs_shape: tuple[int, ...]) -> FloatView:
    """Return the numbers to normalise: the vectors of floats of a packed row, otherwise the whole observation.

    Args:
        space: The observation space of one environment; None if an observation is a row already.
        obs_shape: The shape of a row.
    """
    layout = obs_layout(space)
    if layout is None or layout.dtype != np.uint8:
        return FloatView(shape=obs_shape, whole=True, read=_unchanged, write=_replaced)
    found = [i for i, part in enumerate(layout.parts) if part.is_float_vector]
    return FloatView(shape=(sum(layout.parts[i].shape[0] for i in found),), whole=False,
                     read=partial(_read_floats, layout, found), write=partial(_write_floats, layout, found))


def _unchanged(rows: Any) -> Any:
    return rows


def _replaced(rows: Any, values: Any) -> Any:
    return values


def _read_floats(layout: Layout, found: list[int], rows: np.ndarray) -> np.ndarray:
    views = part_views(layout, rows)
    return np.concatenate([np.zeros((*rows.shape[:-1], 0), np.float32), *(views[i] for i in found)], axis=-1)


def _write_floats(layout: Layout, found: list[int], rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    written = rows.copy()
    views = part_views(layout, written)
    stops = np.cumsum([layout.parts[i].shape[0] for i in found])[:-1]
    for i, value in zip(found, np.split(values, stops, axis=-1)):
        views[i][...] = value
    return written
