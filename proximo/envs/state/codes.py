"""Values as nested dicts whose leaves are arrays, numbers, strings, booleans, None or lists of these; and back."""

import types
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from proximo.envs.state.mujoco import Kept, find_part, make_part

SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "deque": deque}
MOST_BYTES = 8  # of a number, as files can store it
STATELESS = (type, types.ModuleType, np.ufunc, EnvSpec)
BIT_GENERATORS = {kind.__name__: kind for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937,
                                                   np.random.Philox, np.random.SFC64)}


class OpaqueError(Exception):
    """Something holds state that cannot be saved. The message says what, as the end of a sentence."""


def holds_state(value: Any, seen: dict[int, Any]) -> bool:
    """Return whether a value may hold state. Classes, modules and the wrappers of the environment do not.

    A method has the state of its object, and a function that of the variables that it takes from around it.

    Args:
        value: What an attribute holds.
        seen: The environment, its wrappers, `Kept` for objects, and what was encoded so far, by id.
    """
    if isinstance(value, gymnasium.Env):
        return seen.get(id(value)) is not value
    if isinstance(value, (types.MethodType, types.BuiltinFunctionType)):
        owner: Any = value.__self__
        return owner is not None and (not isinstance(owner, (gymnasium.Env, *STATELESS)) or holds_state(owner, seen))
    if isinstance(value, types.FunctionType):
        return any(holds_state(one, seen) for one in _variables(value).values())
    return not isinstance(value, STATELESS)


def _variables(function: types.FunctionType) -> dict[str, Any]:
    """Return the variables from around a function that are set, by number."""
    found = {}
    for i, cell in enumerate(function.__closure__ or ()):
        with suppress(ValueError):
            found[str(i)] = cell.cell_contents
    return found


def encode_copy(value: Any) -> Any:
    """Encode a value that belongs to no environment. An object that is in two places becomes two objects.

    Raises:
        OpaqueError: The value is not made of numbers, texts, booleans, None, arrays, lists, tuples and dicts.
    """
    try:
        code = encode_value(value, None)
        decode_value(code)
    except (ValueError, RecursionError):
        raise OpaqueError("a space, or a value that contains itself") from None
    return code


def encode_value(value: Any, seen: dict[int, Any] | None) -> Any:
    """Encode a value as nested dicts whose leaves are arrays, numbers, strings, booleans, None or lists of these.

    Args:
        value: What an attribute holds.
        seen: The environment, its wrappers, `Kept` for objects, and what was encoded so far, by id; changed in place.
            None: attributes may share objects.

    Raises:
        OpaqueError: The value is of another type, or it was encoded before: two attributes share the object, and would
            hold two different objects after loading.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return {"scalar": encode_array(np.asarray(value))}
    if seen and isinstance(kept := seen.get(id(value)), Kept):
        return {"object": kept.number}
    if seen and type(value) is np.ndarray and (part := find_part(value, seen)):
        return {"part": part}
    _add_seen(value, seen)
    if type(value) is np.ndarray:
        return {"array": encode_array(value)}
    if isinstance(value, np.random.Generator):
        state = encode_value(value.bit_generator.state, seen)
        return {"generator": type(value.bit_generator).__name__, "state": state}
    if isinstance(value, gymnasium.Space):
        return {"space": _generator_code(value, seen), "parts": {
            str(i): _generator_code(part, seen) for i, part in enumerate(_parts_of(value))}}
    kind = type(value).__name__
    if SEQUENCES.get(kind) is type(value):
        items = [encode_value(item, seen) for item in value]
        plain = not any(isinstance(item, dict) for item in items)
        return {kind: items if plain else {str(i): item for i, item in enumerate(items)},
                "longest": value.maxlen if isinstance(value, deque) else None}
    if type(value) is dict:
        return {"keys": encode_value(list(value), seen), "values": encode_value(list(value.values()), seen)}
    raise OpaqueError(f"a value of the type {type(value).__name__}")


def same_value(one: Any, other: Any) -> bool:
    """Return whether two values that encode_value takes are equal: types, order and all bits of numbers."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and one.tobytes() == other.tobytes()
    if isinstance(one, np.random.Generator):
        return same_value(one.bit_generator.state, other.bit_generator.state)
    if isinstance(one, dict):
        return same_value([*one], [*other]) and same_value([*one.values()], [*other.values()])
    if isinstance(one, (list, tuple, deque)):
        same_length = len(one) == len(other) and getattr(one, "maxlen", None) == getattr(other, "maxlen", None)
        return same_length and all(map(same_value, one, other))
    return repr(one) == repr(other)


def encode_function(value: types.FunctionType, seen: dict[int, Any]) -> Any:
    """Encode the variables that a function takes from around it; see encode_value."""
    _add_seen(value, seen)
    return {"function": value.__qualname__,
            "variables": {i: encode_value(one, seen) for i, one in _variables(value).items() if holds_state(one, seen)}}


def _add_seen(value: Any, seen: dict[int, Any] | None) -> None:
    if seen is None or type(value) is tuple or isinstance(value, gymnasium.Space):
        return
    owner = value.base if isinstance(value, np.ndarray) and value.base is not None else value
    if id(owner) in seen:
        raise OpaqueError(f"a value of the type {type(value).__name__} that another attribute holds too")
    seen[id(owner)] = owner  # while it is referenced here, its id is not given to another object


def _generator_code(space: gymnasium.Space[Any], seen: dict[int, Any] | None) -> Any:
    return None if space._np_random is None else encode_value(space._np_random, seen)


def _parts_of(space: gymnasium.Space[Any]) -> list[gymnasium.Space[Any]]:
    """Return the spaces inside a space, in their order, each of which samples with a generator of its own."""
    inner = getattr(space, "spaces", ())
    parts = [one for one in (*vars(space).values(), *(inner.values() if isinstance(inner, dict) else inner))
             if isinstance(one, gymnasium.Space)]
    found = {id(one): one for part in parts for one in (part, *_parts_of(part))}  # one may be in two places
    return list(found.values())


def encode_array(value: np.ndarray) -> Any:
    """Return a copy of an array of numbers, or the bytes of an array of text or times.

    An array in Fortran's order keeps it, because sums and products of another order round differently. Files do not
    store the order.

    Raises:
        OpaqueError: It is an array of objects, or of numbers of more than 64 bits.
    """
    if value.dtype.kind in "biuf" and value.itemsize <= MOST_BYTES:
        if value.flags.f_contiguous and not value.flags.c_contiguous:
            return {"transposed": np.array(value.T, order="C")}
        return np.array(value, order="C")
    if value.dtype.kind in "SUmM":
        data = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8).copy()
        return {"bytes": data, "dtype": value.dtype.str, "shape": list(value.shape)}
    raise OpaqueError(f"an array of {value.dtype}")


def decode_value(code: Any, present: Any = None, objects: Sequence[Any] = ()) -> Any:
    """Return the value that encode_value encoded.

    Args:
        code: What encode_value returned.
        present: What is in its place now, or None. Generators, spaces and functions are changed in place.
        objects: What Kept.number counts.

    Raises:
        ValueError: There is no space in the place of one, or another function.
    """
    if not isinstance(code, dict):
        return code
    if "object" in code:
        return objects[code["object"]]
    if "part" in code:
        return make_part(code["part"], objects)
    if "scalar" in code:
        return decode_array(code["scalar"])[()]
    if "array" in code:
        return decode_array(code["array"])
    if "generator" in code:
        return _decode_generator(code, present)
    if "space" in code:
        return _decode_space(code, present)
    if "function" in code:
        if not isinstance(present, types.FunctionType) or present.__qualname__ != code["function"]:
            raise ValueError("the saved state has a function where this environment has none, or another one")
        for i, one in code["variables"].items():
            cell: Any = (present.__closure__ or ())[int(i)]
            cell.cell_contents = decode_value(one, cell.cell_contents, objects)
        return present
    if "keys" in code:
        keys, held = decode_value(code["keys"]), present if type(present) is dict else {}
        values = decode_value(code["values"], [held.get(key) for key in keys], objects)
        return dict(zip(keys, values, strict=True))
    kind = next((name for name in SEQUENCES if name in code), "list")
    items = list(code[kind].values() if isinstance(code[kind], dict) else code[kind])
    same = type(present) is SEQUENCES[kind] and len(present) == len(items)
    now = present if same else [None] * len(items)
    items = [decode_value(item, one, objects) for item, one in zip(items, now, strict=True)]
    return deque(items, code["longest"]) if kind == "deque" else SEQUENCES[kind](items)


def _decode_space(code: dict[str, Any], present: Any) -> gymnasium.Space[Any]:
    if not isinstance(present, gymnasium.Space):
        raise ValueError("the saved state has a space where this environment has none")
    present._np_random = decode_value(code["space"], present._np_random)
    parts = code.get("parts", {})  # older checkpoints have none
    for i, part in enumerate(_parts_of(present)):
        part._np_random = decode_value(parts.get(str(i)), part._np_random)
    return present


def _decode_generator(code: dict[str, Any], present: Any) -> np.random.Generator:
    generator = present
    if not isinstance(generator, np.random.Generator) or type(generator.bit_generator).__name__ != code["generator"]:
        kind = type(present) if isinstance(present, np.random.Generator) else np.random.Generator
        generator = kind(BIT_GENERATORS[code["generator"]]())
    generator.bit_generator.state = decode_value(code["state"])
    return generator


def decode_array(code: Any) -> np.ndarray:
    """Return the array that encode_array encoded."""
    if isinstance(code, dict) and "transposed" in code:
        return np.array(code["transposed"]).T
    if isinstance(code, dict):
        return np.frombuffer(np.asarray(code["bytes"]).tobytes(), code["dtype"]).reshape(code["shape"]).copy()
    return np.array(code)
