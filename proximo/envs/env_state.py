"""The state of a Gymnasium environment without pickle: its wrapper chain as numbers, strings, arrays and generators.

What is found but cannot be kept (a physics engine's world, an unknown object) makes the whole state None: a run then
rebuilds its environments instead of continuing them with half of their state.
"""

import types
from collections import deque
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

SEQUENCES = {"list": list, "tuple": tuple, "deque": deque}
STATELESS = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, np.ufunc, EnvSpec)


class OpaqueError(Exception):
    """Something holds state that cannot be kept."""


def keep_env(env: gymnasium.Env, apart: tuple[str, ...] = ()) -> dict | None:
    """All that the environment and its wrappers hold, or None where something is opaque.

    Attributes named in `apart` are left out: the caller keeps what they hold in another way.
    """
    seen: dict[int, Any] = {}
    try:
        return {str(depth): {name: encode_value(value, seen) for name, value in vars(layer).items()
                             if name not in apart and _holds(name, value)}
                for depth, layer in enumerate(_layers(env))}
    except OpaqueError:
        return None


def restore_env(env: gymnasium.Env, state: dict, apart: tuple[str, ...] = ()) -> None:
    """Makes `env` (from the same factory) continue as the one that was kept."""
    for depth, layer in enumerate(_layers(env)):
        attributes, kept = vars(layer), state[str(depth)]
        for name in set(attributes).difference(kept, apart):
            if _holds(name, attributes[name]):
                del attributes[name]
        for name, code in kept.items():
            attributes[name] = decode_value(code, attributes.get(name))


def _layers(env: gymnasium.Env) -> list[gymnasium.Env]:
    layers = [env]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    return layers


def _holds(name: str, value: Any) -> bool:
    """Whether an attribute may hold state; what only draws (render_mode, pygame) or links the chain does not."""
    linked = isinstance(value, (*STATELESS, gymnasium.Env))
    return not (linked or name == "render_mode" or type(value).__module__.partition(".")[0] == "pygame")


def encode_value(value: Any, seen: dict[int, Any]) -> Any:
    """As nested dicts whose leaves are arrays, numbers, strings, booleans, None or lists of such.

    Raises OpaqueError for anything else, and for an object met twice (`seen`), whose two holders would part on loading.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return {"scalar": encode_array(np.asarray(value))}
    _meet(value, seen)
    if isinstance(value, np.ndarray):
        return {"array": encode_array(value)}
    if isinstance(value, np.random.Generator):
        state = encode_value(value.bit_generator.state, seen)
        return {"generator": type(value.bit_generator).__name__, "state": state}
    if isinstance(value, gymnasium.Space):
        return {"space": _space_generator(value, seen)}
    kind = type(value).__name__
    if SEQUENCES.get(kind) is type(value):
        items = [encode_value(item, seen) for item in value]
        plain = not any(isinstance(item, dict) for item in items)
        return {kind: items if plain else {str(i): item for i, item in enumerate(items)},
                "longest": value.maxlen if isinstance(value, deque) else None}
    if type(value) is dict:
        return {"keys": encode_value(list(value), seen), "values": encode_value(list(value.values()), seen)}
    raise OpaqueError(f"{type(value)}")


def _meet(value: Any, seen: dict[int, Any]) -> None:
    if type(value) is tuple or isinstance(value, gymnasium.Space):
        return
    owner = value.base if isinstance(value, np.ndarray) and value.base is not None else value
    if id(owner) in seen:
        raise OpaqueError("held twice")
    seen[id(owner)] = owner  # the reference keeps the id from being given to another object


def _space_generator(space: gymnasium.Space, seen: dict[int, Any]) -> Any:
    inner = getattr(space, "spaces", {})
    parts = inner.values() if isinstance(inner, dict) else inner
    if any(part._np_random is not None for part in parts):
        raise OpaqueError("a nested space that draws")
    return None if space._np_random is None else encode_value(space._np_random, seen)


def encode_array(value: np.ndarray) -> Any:
    """Numbers stay an array; text becomes its bytes. Raises OpaqueError for arrays of objects."""
    if value.dtype.kind in "biuf":
        return np.array(value)
    if value.dtype.kind in "SU":
        data = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8).copy()
        return {"bytes": data, "dtype": value.dtype.str, "shape": list(value.shape)}
    raise OpaqueError(f"array of {value.dtype}")


def decode_value(code: Any, present: Any = None) -> Any:
    """The inverse of encode_value; `present` is what the attribute holds now: generators and spaces change in place."""
    if not isinstance(code, dict):
        return code
    if "scalar" in code:
        return decode_array(code["scalar"])[()]
    if "array" in code:
        return decode_array(code["array"])
    if "generator" in code:
        return _decode_generator(code, present)
    if "space" in code:
        present._np_random = decode_value(code["space"], present._np_random)
        return present
    if "keys" in code:
        return dict(zip(decode_value(code["keys"]), decode_value(code["values"]), strict=True))
    kind = next(name for name in SEQUENCES if name in code)
    items = code[kind]
    items = [decode_value(item) for item in (items.values() if isinstance(items, dict) else items)]
    return deque(items, code["longest"]) if kind == "deque" else SEQUENCES[kind](items)


def _decode_generator(code: dict, present: Any) -> np.random.Generator:
    known = {kind.__name__: kind for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937,
                                              np.random.Philox, np.random.SFC64)}
    generator = present
    if not isinstance(generator, np.random.Generator) or type(generator.bit_generator).__name__ != code["generator"]:
        generator = type(present)(known[code["generator"]]()) if isinstance(present, np.random.Generator) \
            else np.random.Generator(known[code["generator"]]())
    generator.bit_generator.state = decode_value(code["state"])
    return generator


def decode_array(code: Any) -> np.ndarray:
    """The inverse of encode_array."""
    if isinstance(code, dict):
        return np.frombuffer(np.asarray(code["bytes"]).tobytes(), code["dtype"]).reshape(code["shape"]).copy()
    return np.array(code)
