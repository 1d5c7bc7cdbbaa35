"""The state of a Gymnasium environment without pickle: numbers, strings, arrays and random generators.

If an attribute holds something else (the world of a physics engine, an unknown object), the whole state is None. A run
then makes its environments again instead of continuing them with a part of their state.
"""

import types
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from proximo.config import Config
from proximo.errors import notify

SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "deque": deque}
STATELESS = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, np.ufunc, EnvSpec)
BIT_GENERATORS = {kind.__name__: kind for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937,
                                                   np.random.Philox, np.random.SFC64)}


class OpaqueError(Exception):
    """Something holds state that cannot be saved."""


class StateFunctions(NamedTuple):
    """How the state of one environment is read and written."""

    get: Callable[[gymnasium.Env], dict[str, Any] | None]  # None: it cannot be saved
    set: Callable[[gymnasium.Env, dict[str, Any]], None]


def announce_rebuilds(cfg: Config, processes: int) -> None:
    """Log how often environments that are not part of checkpoints are made again."""
    cause = f"the state of {cfg.env_id} cannot be saved" if processes == 1 else \
        f"the checkpoints of {processes} processes do not contain their environments"
    notify(f"{cause}. The environments are made again every {cfg.checkpoint_every} iterations "
           f"({cfg.checkpoint_every * cfg.num_steps:,} steps of each), so that a resumed run equals an uninterrupted "
           "one. Longer episodes do not reach their end: if there are any, raise --checkpoint-every.")


def get_env_state(env: gymnasium.Env, excluded: tuple[str, ...] = ()) -> dict[str, Any] | None:
    """Return all attributes of an environment and its wrappers that may hold state.

    Args:
        env: The environment.
        excluded: Names of attributes that are left out because the caller saves them in another way.

    Returns:
        {depth of the wrapper: {attribute: code}}, or None if an attribute cannot be saved.
    """
    seen: dict[int, Any] = {}
    try:
        return {str(depth): {name: encode_value(value, seen) for name, value in vars(layer).items()
                             if name not in excluded and _may_hold_state(name, value)}
                for depth, layer in enumerate(_layers(env))}
    except OpaqueError:
        return None


def set_env_state(env: gymnasium.Env, state: dict[str, Any], excluded: tuple[str, ...] = ()) -> None:
    """Make an environment continue from what get_env_state returned for another one of the same kind."""
    for depth, layer in enumerate(_layers(env)):
        attributes, codes = vars(layer), state[str(depth)]
        for name in set(attributes).difference(codes, excluded):
            if _may_hold_state(name, attributes[name]):
                del attributes[name]
        for name, code in codes.items():
            attributes[name] = decode_value(code, attributes.get(name))


PLAIN_STATE = StateFunctions(get=get_env_state, set=set_env_state)


def _layers(env: gymnasium.Env) -> list[gymnasium.Env]:
    layers = [env]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    return layers


def _may_hold_state(name: str, value: Any) -> bool:
    """Return whether an attribute may hold state. What draws (render_mode, pygame) or links wrappers does not."""
    linked = isinstance(value, (*STATELESS, gymnasium.Env))
    return not (linked or name == "render_mode" or type(value).__module__.partition(".")[0] == "pygame")


def encode_value(value: Any, seen: dict[int, Any]) -> Any:
    """Encode a value as nested dicts whose leaves are arrays, numbers, strings, booleans, None or lists of these.

    Args:
        value: What an attribute holds.
        seen: The objects encoded so far, by id; changed in place.

    Raises:
        OpaqueError: The value is of another type, or it was encoded before: two attributes share the object, and would
            hold two different objects after loading.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return {"scalar": encode_array(np.asarray(value))}
    _add_seen(value, seen)
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


def _add_seen(value: Any, seen: dict[int, Any]) -> None:
    if type(value) is tuple or isinstance(value, gymnasium.Space):
        return
    owner = value.base if isinstance(value, np.ndarray) and value.base is not None else value
    if id(owner) in seen:
        raise OpaqueError("two attributes share one object")
    seen[id(owner)] = owner  # while it is referenced here, its id is not given to another object


def _space_generator(space: gymnasium.Space[Any], seen: dict[int, Any]) -> Any:
    inner = getattr(space, "spaces", {})
    parts = inner.values() if isinstance(inner, dict) else inner
    if any(part._np_random is not None for part in parts):
        raise OpaqueError("a nested space has a random generator")
    return None if space._np_random is None else encode_value(space._np_random, seen)


def encode_array(value: np.ndarray) -> Any:
    """Return a copy of an array of numbers, or the bytes of an array of text.

    Raises:
        OpaqueError: It is an array of objects.
    """
    if value.dtype.kind in "biuf":
        return np.array(value)
    if value.dtype.kind in "SU":
        data = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8).copy()
        return {"bytes": data, "dtype": value.dtype.str, "shape": list(value.shape)}
    raise OpaqueError(f"array of {value.dtype}")


def decode_value(code: Any, present: Any = None) -> Any:
    """Return the value that encode_value encoded.

    Args:
        code: What encode_value returned.
        present: What the attribute holds now. Generators and spaces are changed in place.
    """
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


def _decode_generator(code: dict[str, Any], present: Any) -> np.random.Generator:
    generator = present
    if not isinstance(generator, np.random.Generator) or type(generator.bit_generator).__name__ != code["generator"]:
        kind = type(present) if isinstance(present, np.random.Generator) else np.random.Generator
        generator = kind(BIT_GENERATORS[code["generator"]]())
    generator.bit_generator.state = decode_value(code["state"])
    return generator


def decode_array(code: Any) -> np.ndarray:
    """Return the array that encode_array encoded."""
    if isinstance(code, dict):
        return np.frombuffer(np.asarray(code["bytes"]).tobytes(), code["dtype"]).reshape(code["shape"]).copy()
    return np.array(code)
