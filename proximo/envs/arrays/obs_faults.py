"""What is wrong with an observation, and the conversion of arrays of other dtypes."""

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from proximo.errors import AnswerError, warn_once


def space_layout(space: spaces.Space[Any]) -> tuple[tuple[int, ...], np.dtype]:
    """Return shape and dtype of a space whose elements are arrays, such as Box."""
    assert space.shape is not None
    assert space.dtype is not None
    return space.shape, np.dtype(space.dtype)


def leaf_fault(space: spaces.Space[Any], value: Any, where: str) -> str:
    """Return what is wrong with a nested observation (shape, dtype, choices outside of a space), or an empty string."""
    if structure := _wanted_structure(space, value):
        return f"{where} has the type {type(value).__name__}; its space requires a {structure}"
    if isinstance(space, spaces.Dict):
        missing = [name for name in space.spaces if name not in value]
        if missing:
            return f"{where} has no key {missing[0]!r}"
        faults = (leaf_fault(part, value[name], f"{where}[{name!r}]") for name, part in space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        if len(value) != len(space.spaces):
            return f"{where} has {len(value)} parts, its space has {len(space.spaces)}"
        faults = (leaf_fault(part, value[i], f"{where}[{i}]") for i, part in enumerate(space.spaces))
    elif isinstance(space, spaces.Discrete):
        return "" if space.contains(value) else f"{where} is {value!r}, which is not in {space}"
    else:
        return array_fault(*space_layout(space), value, where) or choice_fault(space, value, where)
    return next((fault for fault in faults if fault), "")


def _wanted_structure(space: spaces.Space[Any], value: Any) -> str:
    """Return "dict" or "tuple" if the space has parts and the value cannot have them, otherwise an empty string."""
    if isinstance(space, spaces.Dict):
        return "" if hasattr(value, "keys") else "dict"
    if isinstance(space, spaces.Tuple):
        return "" if isinstance(value, (tuple, list, np.ndarray)) else "tuple"
    return ""


def choice_fault(space: spaces.Space[Any], value: np.ndarray, where: str) -> str:
    """Return which numbers of a MultiDiscrete or MultiBinary space are not in it, or an empty string."""
    if isinstance(space, spaces.MultiDiscrete):
        number = value - space.start
        inside = (number >= 0) & (number < space.nvec)
    elif isinstance(space, spaces.MultiBinary):
        inside = (value == 0) | (value == 1)
    else:
        return ""
    return "" if inside.all() else f"{where} is {value.tolist()}, which is not in {space}"


def array_fault(shape: tuple[int, ...], dtype: np.dtype, value: Any, where: str) -> str:
    """Return what is wrong with the shape or dtype of an array, or an empty string."""
    if not isinstance(value, np.ndarray | np.generic):
        return f"{where} has the type {type(value).__name__}; its space requires an array of {dtype} with shape {shape}"
    if value.shape != shape:
        return f"{where} has shape {value.shape}; its space requires {shape}"
    if value.dtype != dtype:
        return f"{where} has dtype {value.dtype}; its space requires {dtype}"
    return ""


def cast_array(shape: tuple[int, ...], dtype: np.dtype, value: Any, where: str, env_id: str) -> np.ndarray:
    """Return an array with the shape and dtype of its space, with one warning if it had another dtype.

    Raises:
        ValueError: The shape is another one, or the conversion would change more than the precision of floats.
    """
    fault = array_fault(shape, dtype, value, where)
    if not fault:
        return np.asarray(value)
    try:
        cast = cast_numbers(np.asarray(value), dtype)
    except (TypeError, ValueError, RuntimeError):  # ragged lists, and tensors of a GPU or with gradients
        raise AnswerError(fault) from None
    if cast is None or cast.shape != shape:
        same = cast is not None and cast.size == math.prod(shape)  # a number for (1,), or an axis of 1
        raise AnswerError(fault + f": return np.reshape({where}, {shape})" * same)
    warn_once(f"{env_id}: {fault}. It is converted. Return np.asarray({where}, np.{dtype}).")
    return cast


def cast_numbers(given: np.ndarray, dtype: np.dtype) -> np.ndarray | None:
    """Return an array in another dtype, or None if it would lose more than digits of floats, or has no numbers."""
    if given.dtype.kind not in "biuf":
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        cast = given.astype(dtype, copy=False)
    rounds = given.dtype.kind == dtype.kind == "f"
    return cast if rounds or np.array_equal(cast, given) else None


def cast_parts(space: spaces.Space[Any], value: Any, where: str, env_id: str) -> Any:
    """Return a nested observation whose arrays have the dtypes of their spaces.

    Raises:
        ValueError: Something else is wrong with it, or as for cast_array.
    """
    if _wanted_structure(space, value):
        raise AnswerError(leaf_fault(space, value, where))
    if isinstance(space, spaces.Dict) and all(name in value for name in space.spaces):
        return {name: cast_parts(part, value[name], f"{where}[{name!r}]", env_id)
                for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple) and len(value) == len(space.spaces):
        return tuple(cast_parts(part, value[i], f"{where}[{i}]", env_id) for i, part in enumerate(space.spaces))
    if isinstance(space, (spaces.Box, spaces.MultiBinary, spaces.MultiDiscrete)):
        value = cast_array(*space_layout(space), value, where, env_id)
    if fault := leaf_fault(space, value, where):
        raise AnswerError(fault)
    return value


def warn_of_other_keys(space: spaces.Space[Any], value: Any, env_id: str) -> None:
    """Warn once of keys of a nested observation that its space does not have: the agent does not see them."""
    if others := _other_keys(space, value, "observation"):
        warn_once(f"{env_id}: the observation space has no {' and no '.join(others)}, so the agent does not see what "
                  "the environment returns there. Add it to the observation space, or leave it out of the observation.")


def _other_keys(space: spaces.Space[Any], value: Any, where: str) -> list[str]:
    if isinstance(space, spaces.Dict) and hasattr(value, "keys"):
        inside = [(space.spaces.get(name), value[name], f"{where}[{name!r}]") for name in value]
    elif isinstance(space, spaces.Tuple) and isinstance(value, (tuple, list)):
        inside = [(part, one, f"{where}[{i}]") for i, (part, one) in enumerate(zip(space.spaces, value))]
    else:
        return []
    return [name for part, one, place in inside
            for name in ([place] if part is None else _other_keys(part, one, place))]
