"""The state of a Gymnasium environment without pickle: numbers, strings, arrays and random generators.

If an attribute holds something else (the world of a physics engine, an unknown object), there is no state. A run then
makes its environments again instead of continuing them with a part of their state.
"""

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import gymnasium

from proximo.config import Config
from proximo.envs.state_codes import (
    OpaqueError,
    decode_value,
    encode_function,
    encode_value,
    holds_state,
    same_value,
)
from proximo.errors import UsageError, notify, warn, warn_once


def announce_rebuilds(cfg: Config, processes: int) -> None:
    """Log how often environments that are not part of checkpoints are made again."""
    cause = f"the state of {cfg.env_id} cannot be saved" if processes == 1 else \
        f"the checkpoints of {processes} processes do not contain their environments"
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


def get_env_state(env: gymnasium.Env, excluded: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return all attributes of an environment and its wrappers that may hold state.

    Args:
        env: The environment.
        excluded: Names of attributes of the innermost environment that the caller saves in another way.

    Returns:
        {depth of the wrapper: {attribute: code}}.

    Raises:
        OpaqueError: An attribute cannot be saved, or the environment draws in a window.
    """
    if getattr(env, "render_mode", None) == "human":
        raise OpaqueError("it draws in a window, which pygame closes together with that of a copy")
    layers = _layers(env)
    seen: dict[int, Any] = {id(layer): layer for layer in layers}
    for layer in layers:
        _refuse_slots(layer)
    return {str(depth): {name: code for name, value in vars(layer).items()
                         if layer is not layers[-1] or name not in excluded
                         for code in _encode_attribute(name, value, seen)}
            for depth, layer in enumerate(layers)}


def _refuse_slots(layer: gymnasium.Env) -> None:
    """Raise OpaqueError if an attribute of a layer is in the __slots__ of its class, which vars() does not have."""
    for kind in type(layer).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(layer, name) and name not in ("__dict__", "__weakref__"):
                raise OpaqueError(f"its attribute {name!r} is one of the __slots__ of {kind.__name__}")


def _encode_attribute(name: str, value: Any, seen: dict[int, Any]) -> list[Any]:
    """Return the code of an attribute, or nothing if it holds no state."""
    try:
        if not _may_hold_state(name, value, seen):
            return []
        return [(encode_function if isinstance(value, FunctionType) else encode_value)(value, seen)]
    except OpaqueError as error:
        raise OpaqueError(f"its attribute {name!r} holds {error}") from None
    except Exception as error:
        raise OpaqueError(f"its attribute {name!r} cannot be read ({type(error).__name__}: {error})") from error


def set_env_state(env: gymnasium.Env, state: dict[str, Any], excluded: tuple[str, ...] = ()) -> None:
    """Make an environment continue from what get_env_state returned for another one of the same kind."""
    layers = _layers(env)
    seen: dict[int, Any] = {id(layer): layer for layer in layers}
    for depth, layer in enumerate(layers):
        attributes, codes = vars(layer), state[str(depth)]
        for name in set(attributes).difference(codes, excluded if layer is layers[-1] else ()):
            if not callable(attributes[name]) and _may_hold_state(name, attributes[name], seen):
                del attributes[name]
        for name, code in codes.items():
            attributes[name] = decode_value(code, attributes.get(name))


def load_sharing(envs: Sequence[gymnasium.Env], load: Callable[[int], None]) -> None:
    """Load the state of every environment. Dicts and lists that they share stay shared if their content is the same.

    A program may change such an object instead of the environments. If the content differs, each environment gets a
    copy, and a warning says so.

    Args:
        envs: The environments.
        load: Makes the environment of this number continue from its state.
    """
    shared = [(depth, name, value) for depth, layers in enumerate(zip(*map(_layers, envs))) if len(envs) > 1
              for name, value in vars(layers[0]).items() if isinstance(value, (dict, list))
              and all(vars(layer).get(name) is value for layer in layers)]
    for i in range(len(envs)):
        load(i)
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
    """Return whether an attribute may hold state. What draws (render_mode, pygame) does not."""
    draws = name == "render_mode" or type(value).__module__.partition(".")[0] == "pygame"
    return not draws and holds_state(value, seen)
