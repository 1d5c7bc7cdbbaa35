"""The state of a Gymnasium environment without pickle: numbers, strings, arrays, generators, simulations of MuJoCo.

If an attribute holds something else (the world of another engine, an unknown object), there is no state. A run then
makes its environments again instead of continuing them with a part of their state.
"""

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import gymnasium

from proximo.config import Config
from proximo.envs.state.codes import (
    OpaqueError,
    decode_value,
    encode_function,
    encode_value,
    holds_state,
    same_value,
)
from proximo.envs.state.mujoco import Kept, find_objects, only_draws, read_simulation, write_simulation
from proximo.errors import UsageError, notify, warn, warn_once


def announce_rebuilds(cfg: Config, processes: int) -> None:
    """Log how often environments that are not part of checkpoints are made again."""
    cause = f"The state of {cfg.env_id} cannot be saved" if processes == 1 else \
        f"The checkpoints of {processes} processes do not contain their environments"
    notify(f"{cause}. The environments are made again every {cfg.checkpoint_every} iterations "
           f"({cfg.checkpoint_every * cfg.num_steps:,} steps of each), so that a resumed run equals an uninterrupted "
           "one if seed and actions determine the steps. Longer episodes do not reach their end: if there are any, "
           "raise --checkpoint-every.")


def warn_if_opaque(snapshot: Callable[[], dict[str, Any]], env_id: str) -> dict[str, Any] | None:
    """Return the state of environments whose state was saved before; None with a warning if it cannot be saved now."""
    try:
        return snapshot()
    except OpaqueError as error:
        warn_once(f"The state of {env_id} can no longer be saved: {error}. A resume from such a checkpoint makes the "
                  "environments again, and then differs from an uninterrupted run. Use numbers, strings, arrays, lists "
                  "and dicts, each in one attribute only.")
        return None


def has_envs(kept: dict[str, Any], cfg: Config) -> bool:
    """Return whether a checkpoint contains its environments; those of several processes never do.

    A warning says if their state could not be saved.
    """
    if "envs" in kept and kept["envs"] is None:
        warn("The checkpoint does not contain the environments, because their state could not be saved. They are made "
             f"again here and every {cfg.checkpoint_every} iterations. The run differs from an uninterrupted one.")
    return kept.get("envs") is not None


def check_masks(kept: bool, now: bool) -> None:
    """Raise UsageError if only one of the environments of a checkpoint and those that continue it have masks."""
    if kept != now:
        has = ("masks of actions", "none") if kept else ("no masks of actions", "some")
        raise UsageError(f"The checkpoint's environments have {has[0]}, these have {has[1]}. Resume with the "
                         "environment of the run.")


def get_env_state(env: gymnasium.Env) -> dict[str, Any]:
    """Return all attributes of an environment and its wrappers that may hold state.

    If it has simulations of MuJoCo, also their state, and the attributes of the objects that it is made of.

    Returns:
        {depth of the wrapper: {attribute: code}, "objects": {number: state}}; without "objects" if there are none.

    Raises:
        OpaqueError: An attribute cannot be saved, or the environment draws in a window.
    """
    if getattr(env, "render_mode", None) == "human":
        raise OpaqueError("it draws in a window, which pygame closes together with that of a copy")
    layers = _layers(env)
    objects = find_objects(layers)
    seen = _seen(layers, objects)
    state = {str(depth): _encode_attributes(layer, seen) for depth, layer in enumerate(layers)}
    kept = {str(i): {"kind": type(one).__qualname__}
            | (read_simulation(one) or {"attributes": _encode_attributes(one, seen, f"{type(one).__name__}.")})
            for i, one in enumerate(objects)}
    return state | ({"objects": kept} if kept else {})


def _seen(layers: Sequence[gymnasium.Env], objects: Sequence[Any]) -> dict[int, Any]:
    return {id(layer): layer for layer in layers} | {id(one): Kept(i, one) for i, one in enumerate(objects)}


def _encode_attributes(owner: Any, seen: dict[int, Any], prefix: str = "") -> dict[str, Any]:
    _refuse_slots(owner)
    return {name: code for name, value in vars(owner).items() for code in _encode_attribute(name, value, seen, prefix)}


def _refuse_slots(owner: Any) -> None:
    """Raise OpaqueError if an attribute of an object is in the __slots__ of its class, which vars() does not have."""
    for kind in type(owner).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(owner, name) and name not in ("__dict__", "__weakref__"):
                raise OpaqueError(f"its attribute {name!r} is one of the __slots__ of {kind.__name__}")


def _encode_attribute(name: str, value: Any, seen: dict[int, Any], prefix: str) -> list[Any]:
    """Return the code of an attribute, or nothing if it holds no state. The prefix of its name is for errors."""
    try:
        if not _may_hold_state(name, value, seen):
            return []
        return [(encode_function if isinstance(value, FunctionType) else encode_value)(value, seen)]
    except OpaqueError as error:
        raise OpaqueError(f"its attribute '{prefix}{name}' holds {error}") from None
    except Exception as error:
        raise OpaqueError(f"its attribute '{prefix}{name}' cannot be read ({type(error).__name__}: {error})") from error


def set_env_state(env: gymnasium.Env, state: Mapping[str, Any]) -> None:
    """Make an environment continue from what get_env_state returned for another one of the same kind.

    Raises:
        ValueError: It is made of other objects.
    """
    state, layers = _of_now(state), _layers(env)
    objects = find_objects(layers)
    seen, kept = _seen(layers, objects), [*state.get("objects", {}).values()]
    kinds, here = [one["kind"] for one in kept], [type(one).__qualname__ for one in objects]
    if kinds != here:
        raise ValueError(f"the saved state has the objects {kinds}, and this environment {here}")
    for one, codes in zip(objects, kept, strict=True):
        if "attributes" not in codes:
            write_simulation(one, codes)
    parts = [(layer, state[str(depth)]) for depth, layer in enumerate(layers)]
    parts += [(one, codes["attributes"]) for one, codes in zip(objects, kept, strict=True) if "attributes" in codes]
    for owner, codes in parts:
        attributes = vars(owner)
        for name in set(attributes).difference(codes):
            if not callable(attributes[name]) and _may_hold_state(name, attributes[name], seen):
                del attributes[name]
        for name, code in codes.items():
            attributes[name] = decode_value(code, attributes.get(name), objects)


def _of_now(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a state in the format of get_env_state; version 0.1 had another one for Gymnasium's class MujocoEnv."""
    if "physics" not in state:
        return state
    bare = str(len(state["env"]) - 1)
    model = {"kind": "MjModel"} | state.get("model", {})
    data = {"kind": "MjData", "physics": state["physics"], "derived": state["derived"]}
    attributes = state["env"][bare] | {"model": {"object": 0}, "data": {"object": 1}}
    return state["env"] | {bare: attributes, "objects": {"0": model, "1": data}}


def set_env_states(envs: Sequence[gymnasium.Env], states: Mapping[str, Any]) -> None:
    """Make environments continue from states, by number. Dicts and lists that they share stay shared if they are equal.

    A program may change such an object instead of the environments. If the content differs, each environment gets a
    copy, and a warning says so.

    Args:
        envs: The environments.
        states: What get_env_state returned for each.
    """
    shared = [(depth, name, value) for depth, layers in enumerate(zip(*map(_layers, envs))) if len(envs) > 1
              for name, value in vars(layers[0]).items() if isinstance(value, (dict, list))
              and all(vars(layer).get(name) is value for layer in layers)]
    for i, env in enumerate(envs):
        set_env_state(env, states[str(i)])
    for depth, name, value in shared:
        layers = [vars(_layers(env)[depth]) for env in envs]
        if not all(same_value(layer.get(name), value) for layer in layers):
            warn_once(f"The environments share the {type(value).__name__} {name!r}, and the checkpoint has other "
                      "content. Each environment continues with a copy of it: what the program changes in its own "
                      "object does not reach them. Change environments by it.call_envs (docs/python.md#callbacks).")
        else:
            for layer in layers:
                layer[name] = value


def _layers(env: gymnasium.Env) -> list[gymnasium.Env]:
    layers = [env]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    return layers


def _may_hold_state(name: str, value: Any, seen: dict[int, Any]) -> bool:
    return not only_draws(name, value) and holds_state(value, seen)
