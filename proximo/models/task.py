"""Whether environments have the observations and actions that an agent was trained with."""

from typing import Any

import numpy as np
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.joint_actions import action_parts, choices, has_mask
from proximo.envs.model_fit import SCALED
from proximo.envs.obs_layout import leaves, obs_layout
from proximo.errors import UsageError, warn
from proximo.protocols import Spec, VecEnv


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
        raise UsageError(f"{problem} Use the environment of the run, or one with the same spaces.")


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
        return f"The environment has {told}, but the agent was trained with {was}."
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
    pairs = zip(action_parts(spec.action_space), action_parts(envs.action_space), strict=True)
    if all(np.array_equal(old.low, new.low) and np.array_equal(old.high, new.high)
           for old, new in pairs if isinstance(old, spaces.Box) and isinstance(new, spaces.Box)):
        return
    said = f"The environment has the actions {envs.action_space}, but the agent was trained with {spec.action_space}."
    if cfg.distribution in SCALED:
        raise UsageError(f"{said} distribution={cfg.distribution} scales actions to their bounds, so the same outputs "
                         "would be other actions. Use the bounds of the run, or start a new run.")
    warn(f"{said} Actions are clipped to the new bounds.")


def _parts(space: Any) -> dict[str, tuple[Any, ...]]:
    """Return kind, shape and dtype (discrete parts: the choices) of each part of an observation; {} for one array."""
    if has_mask(space):
        return {"observation": tuple(choices(space))}
    layout = obs_layout(space)
    return {part.name: (part.kind, *part.choices) if part.kind == "discrete" else (part.kind, part.shape, part.dtype)
            for part in (layout.parts if layout else ())}


def _text(parts: dict[str, tuple[Any, ...]]) -> str:
    return f" ({', '.join(f'{name}: ' + ' '.join(map(str, what)) for name, what in parts.items())})" if parts else ""
