"""Which configuration and recipe belong to a variant's name: one explicit branch each, imported when asked for."""

import importlib.util
from collections.abc import Callable, Generator
from functools import partial
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from proximo.config import Config
from proximo.errors import UsageError, nearest, say
from proximo.variants import (
    RPO,
    Atari,
    AtariEnvpool,
    AtariLSTM,
    AtariMultiGPU,
    AtariXLA,
    AtariXLAScan,
    BatchedHands,
    BatchedSim,
    Compact,
    Continuous,
    Procgen,
    SelfPlay,
)

CLASSES: dict[str, type[Config]] = {
    "ppo": Config,
    "ppo_atari": Atari,
    "ppo_continuous_action": Continuous,
    "rpo_continuous_action": RPO,
    "ppo_atari_lstm": AtariLSTM,
    "ppo_atari_envpool": AtariEnvpool,
    "ppo_atari_envpool_xla_jax": AtariXLA,
    "ppo_atari_envpool_xla_jax_scan": AtariXLAScan,
    "ppo_procgen": Procgen,
    "ppo_atari_multigpu": AtariMultiGPU,
    "ppo_pettingzoo_ma_atari": SelfPlay,
    "ppo_continuous_action_isaacgym": BatchedSim,
    "ppo_continuous_action_isaacgym_hands": BatchedHands,
    "compact": Compact,
}


class Recipe(NamedTuple):
    """All that train() takes, and how a trained network acts again."""

    train: Callable[..., Generator]
    make_envs: Callable
    make_agent: Callable
    make_actor: Callable | None  # (spec, cfg, weights) -> Actor; None for a recipe run by path, which only trains


def config_class(variant: str) -> type[Config]:
    """The configuration of a variant; UsageError with all names for an unknown one."""
    if variant not in CLASSES:
        near = nearest(variant, CLASSES) or f" for an environment: proximo train --env-id {variant};"
        raise UsageError(f"{variant} is no variant;{near} there are {', '.join(CLASSES)}")
    return CLASSES[variant]


def recipe_of(variant: str, framework: str) -> Recipe:
    """The recipe of a variant in one framework; UsageError where the framework is not installed."""
    if framework == "jax":
        absent = [name for name in ("jax", "flax", "optax") if importlib.util.find_spec(name) is None]
        if absent:
            raise UsageError(f'--framework jax needs {", ".join(absent)}; pip install "proximo[jax]"')
        return _jax_recipe(variant)
    return _torch_recipe(variant)


def _torch_recipe(variant: str) -> Recipe:
    match variant:
        case "ppo":
            from proximo.on_torch.recipes import ppo

            return _torch_parts(ppo.make_envs, ppo.make_agent)
        case "ppo_atari" | "ppo_atari_multigpu":
            from proximo.on_torch.recipes import ppo_atari

            return _torch_parts(ppo_atari.make_envs, ppo_atari.make_agent)
        case "ppo_atari_lstm":
            from proximo.on_torch.recipes import ppo_atari_lstm

            return _torch_parts(ppo_atari_lstm.make_envs, ppo_atari_lstm.make_agent)
        case "ppo_atari_envpool":
            from proximo.on_torch.recipes import ppo_atari_envpool

            return _torch_parts(ppo_atari_envpool.make_envs, ppo_atari_envpool.make_agent)
        case "ppo_continuous_action":
            from proximo.on_torch.recipes import ppo_continuous_action

            return _torch_parts(ppo_continuous_action.make_envs, ppo_continuous_action.make_agent)
        case "rpo_continuous_action":
            from proximo.on_torch.recipes import rpo_continuous_action

            return _torch_parts(rpo_continuous_action.make_envs, rpo_continuous_action.make_agent)
        case "ppo_procgen":
            from proximo.on_torch.recipes import ppo_procgen

            return _torch_parts(ppo_procgen.make_envs, ppo_procgen.make_agent)
        case "ppo_pettingzoo_ma_atari":
            from proximo.on_torch.recipes import ppo_pettingzoo_ma_atari

            return _torch_parts(ppo_pettingzoo_ma_atari.make_envs, ppo_pettingzoo_ma_atari.make_agent)
        case "ppo_continuous_action_isaacgym" | "ppo_continuous_action_isaacgym_hands":
            from proximo.on_torch.recipes import ppo_continuous_action_isaacgym

            return _torch_parts(ppo_continuous_action_isaacgym.make_envs, ppo_continuous_action_isaacgym.make_agent)
        case "compact":
            from proximo.on_torch.recipes import compact

            return _torch_parts(compact.make_envs, compact.make_agent)
        case "ppo_atari_envpool_xla_jax" | "ppo_atari_envpool_xla_jax_scan":
            raise UsageError(f"{variant} exists under --framework jax only; on torch use ppo_atari_envpool")
    raise UsageError(f"{variant} is no variant; use one of {', '.join(CLASSES)}")


def _torch_parts(make_envs: Callable, make_agent: Callable) -> Recipe:
    from proximo.on_torch.actor import Actor
    from proximo.on_torch.train import train

    return Recipe(train, make_envs, make_agent, partial(Actor, make_agent))


def _jax_recipe(variant: str) -> Recipe:
    match variant:
        case "ppo":
            from proximo.on_jax.recipes import ppo

            return _jax_parts(ppo.make_envs, ppo.make_agent)
        case "ppo_atari" | "ppo_atari_multigpu":
            from proximo.on_jax.recipes import ppo_atari

            return _jax_parts(ppo_atari.make_envs, ppo_atari.make_agent)
        case "ppo_atari_lstm":
            from proximo.on_jax.recipes import ppo_atari_lstm

            return _jax_parts(ppo_atari_lstm.make_envs, ppo_atari_lstm.make_agent)
        case "ppo_atari_envpool":
            from proximo.on_jax.recipes import ppo_atari_envpool

            return _jax_parts(ppo_atari_envpool.make_envs, ppo_atari_envpool.make_agent)
        case "ppo_continuous_action":
            from proximo.on_jax.recipes import ppo_continuous_action

            return _jax_parts(ppo_continuous_action.make_envs, ppo_continuous_action.make_agent)
        case "rpo_continuous_action":
            from proximo.on_jax.recipes import rpo_continuous_action

            return _jax_parts(rpo_continuous_action.make_envs, rpo_continuous_action.make_agent)
        case "ppo_procgen":
            from proximo.on_jax.recipes import ppo_procgen

            return _jax_parts(ppo_procgen.make_envs, ppo_procgen.make_agent)
        case "ppo_pettingzoo_ma_atari":
            from proximo.on_jax.recipes import ppo_pettingzoo_ma_atari

            return _jax_parts(ppo_pettingzoo_ma_atari.make_envs, ppo_pettingzoo_ma_atari.make_agent)
        case "ppo_continuous_action_isaacgym" | "ppo_continuous_action_isaacgym_hands":
            from proximo.on_jax.recipes import ppo_continuous_action_isaacgym

            return _jax_parts(ppo_continuous_action_isaacgym.make_envs, ppo_continuous_action_isaacgym.make_agent)
        case "compact":
            from proximo.on_jax.recipes import compact

            return _jax_parts(compact.make_envs, compact.make_agent)
        case "ppo_atari_envpool_xla_jax":
            from proximo.on_jax.recipes import ppo_atari_envpool_xla_jax

            return _jax_parts(ppo_atari_envpool_xla_jax.make_envs, ppo_atari_envpool_xla_jax.make_agent)
        case "ppo_atari_envpool_xla_jax_scan":
            from proximo.on_jax.recipes import ppo_atari_envpool_xla_jax_scan

            return _jax_parts(ppo_atari_envpool_xla_jax_scan.make_envs, ppo_atari_envpool_xla_jax_scan.make_agent)
    raise UsageError(f"{variant} is no variant; use one of {', '.join(CLASSES)}")


def _jax_parts(make_envs: Callable, make_agent: Callable) -> Recipe:
    from proximo.on_jax.actor import Actor
    from proximo.on_jax.train import train

    return Recipe(train, make_envs, make_agent, partial(Actor, make_agent))


def variant_of(cfg: Config) -> str:
    """The name of a configuration's own class."""
    names = [name for name, kind in CLASSES.items() if type(cfg) is kind]
    if not names:
        raise UsageError(f"{type(cfg).__name__} is the configuration of no variant; call the loop itself, "
                         "proximo.on_torch.train.train(cfg, make_envs, make_agent)")
    return names[0]


def torch_twin(variant: str) -> str:
    """The variant whose torch recipe has the same environments and network."""
    return "ppo_atari_envpool" if variant.startswith("ppo_atari_envpool_xla_jax") else variant


def choose_variant(env_id: str) -> tuple[str, str]:
    """The variant for an environment, and why: by its name, else by its spaces."""
    if named := variant_by_name(env_id):
        return named
    if env_id.startswith("dm_control/"):
        return "ppo_continuous_action", "dm_control"
    from proximo.envs.gym import make_gym

    envs = make_gym(Config(env_id=env_id), [0])
    shape, dtype, space = envs.obs_shape, envs.obs_dtype, envs.action_space
    envs.close()
    if isinstance(space, gym.spaces.Box):
        return "ppo_continuous_action", "continuous actions"
    if len(shape) == 3 and dtype == np.uint8:
        say(f"{env_id} gives images: --model cnn suits them")
    return "ppo", "discrete actions"


def variant_by_name(env_id: str) -> tuple[str, str] | None:
    """The variant for an id that Gymnasium does not have, and what it is; None where Gymnasium is to be asked."""
    from proximo.envs.atari_ids import is_atari
    from proximo.envs.pettingzoo import is_self_play
    from proximo.envs.procgen import GAMES, read_procgen_name

    if is_atari(env_id):
        return "ppo_atari", "an Atari game"
    if is_self_play(env_id):
        return "ppo_pettingzoo_ma_atari", "a game of several players"
    if read_procgen_name(env_id)[0] in GAMES:
        return "ppo_procgen", "a game of Procgen"
    return None
