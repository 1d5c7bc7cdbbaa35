"""What custom environments have to be: their attributes, and settings that have no effect on them."""

from collections.abc import Collection, Iterator
from types import NoneType
from typing import Any, get_args

import gymnasium
import numpy as np

from proximo.config import Config
from proximo.envs.gym_source import changed_fields
from proximo.errors import COLUMNS, UsageError, is_column, metric_name_problem
from proximo.protocols import Play, VecEnv

ARRAYS = ("numpy", "torch", "jax")


def problems_of_envs(envs: VecEnv, number: int, cfg: Any) -> Iterator[str]:
    """Yield a sentence for every attribute that is wrong.

    Args:
        envs: The custom environments.
        number: How many there have to be.
        cfg: Its `framework`, and the names that `info_metrics` asks for, are read.
    """
    metrics: Collection[str] = getattr(cfg, "info_metrics", ())
    made = f"make_envs returned {type(envs).__name__} with"
    if envs.num_envs != number:
        yield f"{made} num_envs={envs.num_envs!r:.60}, and not one environment (or one player) for each of the seeds " \
              "that it was given. Make len(seeds)."  # without their number: a trial has one, and finds the same problem
    if envs.arrays not in ARRAYS:
        yield f"{made} arrays={envs.arrays!r:.60}. Use one of {', '.join(ARRAYS)}."
    if envs.play not in get_args(Play):
        yield f"{made} play={envs.play!r:.60}. Use one of {', '.join(get_args(Play))}."
    elif envs.play != "host" and not hasattr(envs, "pure"):
        yield f"{made} play={envs.play!r} and without `pure`, its functions for JAX. Use play='host', or PureVec of " \
              "proximo/envs/pure.py."
    elif envs.play != "host" and getattr(cfg, "framework", "torch") == "jax" and _hands_on_play(envs):
        yield f"{made} a step() of its own, around environments in JAX that run inside the compiled function: it " \
              "would not be called. Compute what it changes in their own functions, or use framework=torch."
    if not _is_shape(envs.obs_shape):
        yield f"{made} obs_shape={envs.obs_shape!r:.60}. Use a tuple of whole numbers: the shape of one observation."
    if not is_numpy_dtype(envs.obs_dtype):
        yield f"{made} obs_dtype={envs.obs_dtype!r:.60}. Use a dtype of numpy, such as np.dtype(np.float32), also " \
              "for tensors."
    if not isinstance(envs.action_space, gymnasium.Space):
        yield f"{made} action_space={envs.action_space!r:.60}. Use the gymnasium.Space of one environment."
    if not isinstance(envs.observation_space, (gymnasium.Space, NoneType)):
        yield f"{made} observation_space={envs.observation_space!r:.60}. Use the gymnasium.Space of one " \
              "environment, or None if an observation is one array already."
    if unknown := [name for name in metrics if name not in envs.metric_names]:
        yield f"{made} metric_names={tuple(envs.metric_names)!r:.200}, and info_metrics asks for " \
              f"{', '.join(unknown)}. Return it as a metric, or leave it out of info_metrics."
    for name in envs.metric_names:
        if problem := metric_name_problem(name):
            yield f"{made} the metric name {problem}"
    if wrong := [player for player in envs.players if not is_column(player)]:
        yield f"{made} the player {wrong[0]!r:.60}. {COLUMNS}"


def one_for_all(made: Any) -> str:
    """Return what make_envs has to return where it returned single environments or nothing; "" for other objects."""
    if made is None:
        return " Return the environments."
    if isinstance(made, (gymnasium.Env, list, tuple)):
        return (" Return one object that steps all environments, such as gymnasium.vector.SyncVectorEnv([make_one] * "
                "len(seeds)). For a single environment, make_envs is not needed: give its class "
                "(docs/add-an-environment.md).")
    return ""


def _hands_on_play(envs: VecEnv) -> bool:
    """Return whether an object that steps others by its own step() has `play` from them, by __getattr__."""
    return hasattr(type(envs), "step") and not (hasattr(type(envs), "play") or "play" in getattr(envs, "__dict__", ()))


def _is_shape(given: Any) -> bool:
    return isinstance(given, (tuple, list)) and all(isinstance(size, (int, np.integer)) and size >= 0 for size in given)


def is_numpy_dtype(given: Any) -> bool:
    """Return whether numpy takes a value as a dtype, other than None, which it takes for float64."""
    try:
        np.dtype(given)
    except (TypeError, ValueError):
        return False
    return given is not None


def check_no_effect(cfg: Config, maker: str, engines: Collection[str], taken: Collection[str] = ()) -> None:
    """Raise UsageError for settings that change environments of Gymnasium, and none of these.

    Args:
        cfg: The configuration.
        maker: What makes these environments, for the message.
        engines: Values of `engine` that are no fault.
        taken: Settings that have an effect.
    """
    names = [name for name in changed_fields(cfg) if name != "env_file"]  # the file that makes these environments
    names += [name for name in ("eval_env_kwargs", "info_metrics", "env_workers") if getattr(cfg, name)]
    names += [name for name, usual in (("engine", engines), ("autoreset", (type(cfg).autoreset,)))
              if getattr(cfg, name) not in usual]
    if names := [name for name in names if name not in taken]:
        raise UsageError("\n".join(f"{name}={getattr(cfg, name)} has no effect on environments of {maker}. Leave "
                                   f"{name} out." for name in names))
