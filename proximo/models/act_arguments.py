"""The arguments of a trained model besides observations: where episodes begin, masks, actions, and how to choose."""

from typing import Any

import numpy as np
from gymnasium import spaces

from proximo.envs.arrays.masks import mask_parts, mask_row
from proximo.errors import UsageError, first_line

NO_MASK = "Where episodes begin is another argument: first=..."
Space = spaces.Space[Any]


def array_of(given: Any, name: str) -> np.ndarray:
    """Return an argument as an array; UsageError if it is none, as a ragged list or a tensor that has a gradient."""
    try:
        return np.asarray(given)
    except (RuntimeError, TypeError, ValueError) as error:
        raise UsageError(f"{name} cannot be read ({type(error).__name__}: {first_line(error)}). Give a number, an "
                         "array, or a list of numbers.") from error


def check_switch(name: str, given: Any) -> None:
    """Raise UsageError unless an argument is True or False."""
    if not isinstance(given, (bool, np.bool_)):
        raise UsageError(f"{name}={given!r:.60} is not allowed. Use True or False.")


def read_first(first: Any, single: bool, count: int) -> np.ndarray:
    """Return the argument `first` of a model as (count,) bool; UsageError if it is another one."""
    flags = array_of(first, "first")
    if flags.dtype != bool and not (flags.dtype.kind in "iuf" and np.isin(flags, (0, 1)).all()):
        raise UsageError(f"first={first!r:.60} is not allowed. Give True where an episode begins, otherwise False.")
    if flags.shape not in ((), (1,) if single else (count,)):
        raise UsageError(f"first has shape {flags.shape}. {count} observations need {(count,)}, or one value.")
    return np.broadcast_to(flags, count).astype(bool)


def read_mask(mask: Any, space: Space, count: int) -> np.ndarray:
    """Return the argument `mask` of a model as (count, A) bool, A choices in all; UsageError if it is another one.

    Args:
        mask: One array, or one array per component of the action, each with a first axis of `count` observations, which
            a single one may leave out. For several observations also a list of the masks of each.
        space: The action space of one environment.
        count: Number of observations.
    """
    parts = mask_parts(space)
    if parts is None:
        raise UsageError(f"mask was given, and actions of {space} cannot be masked. Leave it out. {NO_MASK}")
    width, given = int(parts.sum()), _mask_of_each(mask, parts, count)
    need = f"{count} observations need {(count, width)}, or one array per component of the action."
    if (entries := sum(map(_size, given))) != count * width:
        raise UsageError(f"mask has {entries} entries. {need}" + f" {NO_MASK}" * (entries == count))
    if len(given) != count:
        raise UsageError(f"mask has {len(given)} rows. {need}")
    try:
        return np.stack([mask_row(one, width) for one in given])
    except ValueError as error:
        raise UsageError(f"mask {str(error).removeprefix('action_mask ')}. {need}") from error


def _mask_of_each(mask: Any, parts: np.ndarray, count: int) -> list[Any]:
    """Return the mask of each observation; what fits no form becomes the mask of one."""
    several = isinstance(mask, (tuple, list))
    if several and [np.shape(one) if hasattr(one, "shape") else None for one in mask] == [(count, n) for n in parts]:
        return list(np.concatenate([np.asarray(one) for one in mask], axis=1))
    if several:
        of_one = len(mask) == 1 and isinstance(mask[0], (tuple, list))
        return list(mask) if count > 1 or of_one else [mask]
    given = array_of(mask, "mask")
    return list(given) if given.ndim == 2 else [given]


def _size(mask: Any) -> int:
    return sum(map(_size, mask)) if isinstance(mask, (tuple, list)) else np.size(mask)


def check_choices(mask: np.ndarray | None, space: Space) -> None:
    """Raise UsageError if a row of a mask, (N, A) bool, allows no choice of a component of the action."""
    if mask is None or (parts := mask_parts(space)) is None:
        return
    starts = np.concatenate([[0], np.cumsum(parts)[:-1]])
    if blocked := np.flatnonzero(~np.logical_or.reduceat(mask, starts, axis=1).all(axis=1)).tolist():
        raise UsageError(f"the mask of observation {blocked[0]} allows no action. Allow at least one choice of each "
                         "component, or do not act where an episode has ended.")
