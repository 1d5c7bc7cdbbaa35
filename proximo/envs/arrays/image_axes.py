"""Which observations are images, and where their channels are. Rows hold images with their channels first."""

from typing import Any, Literal

import numpy as np
from gymnasium import spaces

SMALLEST_IMAGE = 8  # pixels of a side, from which on a part of an observation is taken for an image
Axes = Literal["first", "last", "grey", ""]  # (C, H, W), (H, W, C), (H, W), or no image


def image_axes(space: spaces.Space[Any]) -> Axes:
    """Return where an array has its channels: uint8, or floats that the space bounds to [0, 1].

    The channels are last if the last axis is smaller than both others, as in (64, 64, 12). An array (H, W) is an image
    only if it is of uint8 with at least 8x8 pixels.
    """
    if not isinstance(space, spaces.Box):
        return ""
    small = space.dtype == np.uint8
    if len(space.shape) == 2:
        return "grey" if small and min(space.shape) >= SMALLEST_IMAGE else ""
    if len(space.shape) != 3 or not (small or in_unit_interval(space)):
        return ""
    last = space.shape[2] < min(space.shape[:2])
    sides = space.shape[:2] if last else space.shape[1:]
    if not small and min(sides) < SMALLEST_IMAGE:
        return ""
    return "last" if last else "first"


def in_unit_interval(space: spaces.Space[Any]) -> bool:
    """Return whether a space holds floats that are bounded to [0, 1]."""
    floats = isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)
    return bool(floats and (space.low >= 0).all() and (space.high <= 1).all())  # type: ignore[attr-defined]


def is_image_part(space: spaces.Space[Any]) -> bool:
    """Return whether a part of a Dict or Tuple is an image for a convolution, and not a board or a small grid.

    It has at least 8x8 pixels, and whole numbers reach up to 255.
    """
    axes = image_axes(space)
    if not axes or not isinstance(space, spaces.Box):
        return False
    whole = space.dtype == np.uint8
    return min(stored_shape(axes, space.shape)[1:]) >= SMALLEST_IMAGE and (not whole or bool(space.high.max() == 255))


def stored_shape(axes: Axes, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that an array of the environment has in a row: (C, H, W) for an image."""
    if axes == "last":
        return (shape[-1], *shape[:-1])
    return (1, *shape) if axes == "grey" else shape


def channels_first(axes: Axes, value: Any) -> Any:
    """Return images (..., as the environment returns them) as a view (..., C, H, W). Arrays may be tensors."""
    if axes == "last":
        return value.swapaxes(-1, -3).swapaxes(-1, -2)
    return value[..., None, :, :] if axes == "grey" else value


def as_returned(axes: Axes, rows: np.ndarray) -> np.ndarray:
    """Return a view of images (..., C, H, W) with the axes that the environment gives them."""
    if axes == "last":
        return np.moveaxis(rows, -3, -1)
    return rows[..., 0, :, :] if axes == "grey" else rows
