"""Whether environments have the observations and actions that an agent was trained with."""

from typing import Any

import numpy as np
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.joint_actions import action_parts, choices, has_mask
from proximo.envs.model_fit import SCALED
from proximo.envs.obs_layout import obs_layout
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
    task, here = ((tuple(one.obs_shape), norm_obs or np.dtype(one.obs_dtype).kind, choices(one.action_space))
                  for one in (spec, envs))
    known = spec.observation_space is not None and envs.observation_space is not None
    trained, now = (_parts(one.observation_space) if known else {} for one in (spec, envs))
    if (task, trained) != (here, now):
        told, was = (f"observations {np.dtype(one.obs_dtype)} of shape {tuple(one.obs_shape)}{_text(parts)} and the "
                     f"actions {one.action_space}" for one, parts in ((envs, now), (spec, trained)))
        raise UsageError(f"The environment has {told}, but the agent was trained with {was}. Use the environment of "
                         "the run, or one with the same spaces.")


def check_bounds(spec: Spec, envs: VecEnv, cfg: Config) -> None:
    """Check the bounds of actions of environments in which training continues; those of `check_task` are the same.

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
