"""Whether environments have the observations and actions that an agent was trained with."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.arrays.joint_actions import action_parts, choices, has_mask
from proximo.envs.arrays.model_fit import SCALED
from proximo.envs.arrays.obs_layout import leaves, obs_layout
from proximo.errors import FilesError, UsageError, warn, warn_once
from proximo.models.model import Model
from proximo.protocols import Spec, VecEnv

SAME = "Use the environment of the run, or one with the same spaces."
LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)  # or a subclass of one of them


def check_task(spec: Spec, envs: VecEnv, norm_obs: bool) -> None:
    """Check that environments have the observations and actions that an agent was trained with.

    Args:
        spec: What the agent saw of its environments.
        envs: The environments.
        norm_obs: Whether observations are normalised, which turns every dtype into float32.

    Raises:
        UsageError: They differ in the shape, kind or parts of observations, or in what a policy decides.
    """
    if problem := task_difference(spec, envs, norm_obs):
        raise UsageError(f"{problem} {SAME}")


def fitted(model: Model, envs: VecEnv, make_actor: Callable[..., Any]) -> Model:
    """Return what plays in environments: the model, or one with its weights whose network was made for their sizes.

    Only a network of a program can take other sizes than those that it was trained with.

    Args:
        model: The model.
        envs: The environments.
        make_actor: `make_actor(spec, cfg, weights)` makes the network.

    Raises:
        UsageError: The environments have other kinds of observations or actions, or sizes that the network does not
            take.
    """
    problem = task_difference(model.spec, envs, bool(model.cfg.norm_obs))
    if not problem:
        return model
    if "make_agent" not in model.custom_parts or _kinds(model.spec) != _kinds(envs):
        raise UsageError(f"{problem} {SAME}")
    if model.moments is not None:
        raise UsageError(f"{problem} With norm_obs, an agent takes only the sizes of its run.")
    spec = model.spec._replace(obs_shape=tuple(envs.obs_shape), action_space=envs.action_space,
                               observation_space=envs.observation_space)
    try:
        actor = make_actor(spec, model.cfg, model.actor.weights())
    except (FilesError, UsageError) as error:
        raise UsageError(f"{problem} Its network does not take these sizes: {error}") from error
    warn_once(f"{problem} Its network is used as it is.")
    return Model(actor, spec, model.cfg, model.variant, None)


def _kinds(one: Any) -> tuple[Any, ...]:
    """Return what of observations and actions has to be equal where sizes differ."""
    return (np.dtype(one.obs_dtype).kind, len(one.obs_shape), _kind(one.observation_space), _kind(one.action_space))


def _kind(space: Any) -> Any:
    parts = getattr(space, "spaces", ())
    if isinstance(parts, dict):
        return [(name, _kind(part)) for name, part in parts.items()]
    starts = np.unique(getattr(space, "start", 0)).tolist()
    kinds = [isinstance(space, kind) for kind in LEAVES]
    return [*map(_kind, parts)] or (kinds, len(getattr(space, "shape", None) or ()), starts)


def task_difference(spec: Spec, envs: Any, norm_obs: bool) -> str:
    """Return how observations or actions differ from those of an agent, "" if they do not; see check_task.

    Args:
        spec: What the agent saw of its environments.
        envs: The environments, or another Spec.
        norm_obs: Whether observations are normalised.
    """
    task, here = ((tuple(one.obs_shape), norm_obs or np.dtype(one.obs_dtype).kind, choices(one.action_space))
                  for one in (spec, envs))
    known = spec.observation_space is not None and envs.observation_space is not None
    trained, now = (_parts(one.observation_space) if known else {} for one in (spec, envs))
    if (task, trained) != (here, now):
        told, was = (f"observations {np.dtype(one.obs_dtype)} of shape {tuple(one.obs_shape)}{_text(parts)} and the "
                     f"actions {one.action_space}" for one, parts in ((envs, now), (spec, trained)))
        flat = spec.observation_space is None and isinstance(envs.observation_space, (spaces.Dict, spaces.Tuple))
        again = " A model of version 0.1.0 with such observations has to be trained again." if flat else ""
        return f"The environment has {told}, but the agent was trained with {was}.{again}"
    orders: list[tuple[str, list[str], list[str]]] = [
        ("observations", list(trained), list(now)), ("actions", _names(spec.action_space), _names(envs.action_space))]
    return " ".join(f"The parts of {what} are in the order {', '.join(after)}, but the agent was trained with "
                    f"{', '.join(before)}. Gymnasium sorts the keys of Dict({{...}}), but not those of Dict(a=..., "
                    "b=...)." for what, before, after in orders if before != after)


def _names(space: spaces.Space[Any]) -> list[str]:
    return [".".join(map(str, path)) for path, _ in leaves(space)]


def check_bounds(spec: Spec, envs: VecEnv, cfg: Config) -> None:
    """Check the bounds of actions of environments; those of `check_task` are the same.

    Raises:
        UsageError: They differ, and cfg.distribution scales actions to them. Otherwise a difference is a warning.
    """
    if not (said := bounds_difference(spec, envs)):
        return
    if cfg.distribution in SCALED:
        raise UsageError(f"{said} distribution={cfg.distribution} scales actions to their bounds, so the same outputs "
                         "would be other actions. Use the bounds of the run, or start a new run.")
    warn(f"{said} Actions are clipped to the new bounds.")


def bounds_difference(spec: Spec, envs: Any) -> str:
    """Return how the bounds of actions differ from those of an agent, "" if they do not.

    Args:
        spec: What the agent saw of its environments.
        envs: The environments, or another Spec, between which `task_difference` finds no difference.
    """
    pairs = zip(action_parts(spec.action_space), action_parts(envs.action_space), strict=True)
    if all(np.array_equal(old.low, new.low) and np.array_equal(old.high, new.high)
           for old, new in pairs if isinstance(old, spaces.Box) and isinstance(new, spaces.Box)):
        return ""
    return f"The environment has the actions {envs.action_space}, but the agent was trained with {spec.action_space}."


def _parts(space: Any) -> dict[str, tuple[Any, ...]]:
    """Return kind, shape and dtype (discrete parts: the choices) of each part of an observation; {} for one array."""
    if has_mask(space):
        return {"observation": tuple(choices(space))}
    layout = obs_layout(space)
    return {part.name: (part.kind, *part.choices) if part.kind == "discrete" else (part.kind, part.shape, part.dtype)
            for part in (layout.parts if layout else ())}


def _text(parts: dict[str, tuple[Any, ...]]) -> str:
    return f" ({', '.join(f'{name}: ' + ' '.join(map(str, what)) for name, what in parts.items())})" if parts else ""
