"""Environments that a program passes in place of an id: a function, a class or an object."""

import weakref
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import gymnasium as gym

from proximo.config import Config
from proximo.envs.custom.copies import EQUAL_DRAWS, SEED_DRAWS, Copies
from proximo.envs.gym_checks import not_an_env, place_for
from proximo.envs.gym_ids import with_quick_space
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.gym_source import EnvSource, call_maker, finish_env, kwargs_of, named_source
from proximo.envs.info_metrics import rows_class
from proximo.envs.time_limit import close_env
from proximo.envs.workers.choice import make_rows_or_workers
from proximo.errors import UsageError, warn_once
from proximo.protocols import VecEnv

Factory = Callable[..., Any]


def env_factory(env: Any) -> Factory:
    """Return a function that makes a new environment at each call.

    Args:
        env: Such a function, a class, or an environment, which is copied.

    Raises:
        UsageError: `env` is none of these, or the environment cannot be copied.
    """
    if isinstance(env, gym.Env):
        return Copies(env)
    if hasattr(env, "num_envs") and not isinstance(env, type):
        raise UsageError(f"env={env!r:.60} is a vector of environments. Pass a function that makes one of them, "
                         f"such as env=lambda: MyEnv(), and num_envs.{place_for(env)}")
    if not callable(env):
        raise UsageError(f"env={env!r:.60} is not an environment. Pass the id of an environment, a function that makes "
                         f"one, its class, or a gymnasium.Env.{place_for(env)}")
    factory: Factory = env
    return factory


def env_name(env: Any, kwargs: Collection[str] = ()) -> str:
    """Return the name of an environment: the id that it is registered under, otherwise the name of its class.

    Args:
        env: What `env_factory` takes.
        kwargs: Its arguments, as in the field env_kwargs.
    """
    if isinstance(env, type):
        return env.__name__
    one = env if isinstance(env, gym.Env) else make_new(env_factory(env), EnvSource(name="env", kwargs=kwargs), [])
    name = one.spec.id if one.spec is not None else type(one.unwrapped).__name__
    if one is not env:
        close_env(one, name)
    return name


def make_from_factory(factory: Factory, cfg: Config, seeds: Sequence[int]) -> VecEnv:
    """Make one environment per seed, in this process or in cfg.env_workers others.

    Raises:
        UsageError: The function makes no gymnasium.Env, or the same object twice, or a space is not supported.
        EnvError: Making an environment fails.
    """
    source = named_source(cfg, cfg.env_id)
    if isinstance(factory, Copies) and len(seeds) > 1 and not source.kwargs and factory.draw_equally:
        warn_once(f"{source.name}: {EQUAL_DRAWS}. {SEED_DRAWS}")
    return make_rows_or_workers(partial(make_factory_rows, factory, source, cfg.autoreset), cfg, seeds, source.name)


def make_factory_rows(factory: Factory, source: EnvSource, autoreset: str, seeds: Sequence[int],
                      first_index: int = 0) -> GymEnvs:
    """Make one environment per seed; `first_index` is the number of the first one in errors."""
    return rows_class(source)(partial(make_new, factory, source, []), seeds, source.name, autoreset, first_index)


def make_new(factory: Factory, source: EnvSource, earlier: list[weakref.ref[gym.Env]]) -> gym.Env:
    """Make one environment with its wrappers, and check that it is a new one.

    Args:
        factory: Makes it.
        source: Its arguments, wrappers and image settings, and its name for messages.
        earlier: The environments that were made before, without wrappers; the new one is added.

    Raises:
        UsageError: The factory makes no gymnasium.Env, or one of `earlier`.
    """
    env = call_maker(factory, source, kwargs_of(source.kwargs))
    if not isinstance(env, gym.Env):
        raise UsageError(f"env={factory!r:.60} made {not_an_env(env)}")
    if any(ref() is env.unwrapped for ref in earlier):
        raise UsageError(f"env={factory!r:.60} returned the same environment twice. It must make a new one at each "
                         "call.")
    earlier.append(weakref.ref(env.unwrapped))
    return finish_env(with_quick_space(env), source)
