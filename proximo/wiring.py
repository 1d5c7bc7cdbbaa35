"""Which configuration and recipe belong to a variant's name: one explicit branch each, imported when asked for."""

import importlib.util
import os
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

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


def resolve(cfg: Config, variant: str, processes: int, local_processes: int) -> Config:
    """What the defaults leave open, filled in: the same values then stand in config.json and decide a resume."""
    cfg = cfg.resolved()
    changes: dict[str, Any] = {}
    if not cfg.exp_name:
        changes["exp_name"] = variant
    if not cfg.threads:
        changes["threads"] = default_threads(cfg, local_processes)
    if cfg.track and cfg.logger != "wandb":
        changes["logger"] = "wandb"
    if cfg.local_num_envs is not None:
        changes["num_envs"] = cfg.local_num_envs * processes
    if cfg.env_workers is None:
        changes["env_workers"] = default_workers(cfg, changes.get("num_envs", cfg.num_envs) // processes,
                                                 local_processes)
    return replace(cfg, **changes)


def problems_of(cfg: Config, variant: str, processes: int = 1) -> list[str]:
    """Everything wrong with a configuration, and what its variant's environments cannot do, one sentence each."""
    wrong = cfg.problems()
    pool = cfg.engine == "envpool" or isinstance(cfg, (AtariEnvpool, Procgen))
    if cfg.framework == "torch" and cfg.num_seeds > 1:
        wrong.append(f"num_seeds={cfg.num_seeds} trains several agents in one compiled function, which needs "
                     "--framework jax; on torch start one run for each seed")
    if cfg.num_seeds > 1 and processes > 1:
        wrong.append(f"num_seeds={cfg.num_seeds} trains several agents in one process; leave torchrun out")
    if isinstance(cfg, AtariEnvpool) and cfg.engine not in ("auto", "envpool"):
        wrong.append(f"engine={cfg.engine} is not what {variant} is for; use ppo_atari, or leave --engine out")
    if isinstance(cfg, SelfPlay) and cfg.engine not in ("auto", "ale"):
        wrong.append(f"engine={cfg.engine} does not play games of several players; use ale")
    if cfg.env_workers and (pool or isinstance(cfg, BatchedSim)):
        whose = "EnvPool steps on threads of its own" if pool else "Brax simulates all environments as one batch"
        wrong.append(f"env_workers={cfg.env_workers} has nothing to do: {whose}; leave --env-workers out")
    if cfg.autoreset == "next-step" and isinstance(cfg, (SelfPlay, BatchedSim)):
        wrong.append(f"autoreset=next-step: the environments of {variant} reset in the same step; leave it out")
    return wrong


def problems_around(cfg: Config, recipe: Recipe) -> list[str]:
    """What is wrong with the device, environment and network that `cfg` names, one sentence each. Asked only where
    something is wrong already, so that all problems come at once: an environment is made for it."""
    wrong = []
    if cfg.framework == "torch":
        from proximo.on_torch.device import pick_device
        from proximo.on_torch.distributed import world_from_environment

        wrong += sentences(lambda: pick_device(cfg, world_from_environment()))
    plain = type(cfg)(env_id=cfg.env_id, engine=cfg.engine, model=cfg.model).resolved()
    one_game = replace(plain, num_envs=4 if isinstance(cfg, SelfPlay) else 1)

    def play() -> None:
        envs = recipe.make_envs(one_game, list(range(one_game.num_envs)))
        try:
            recipe.make_agent(envs, one_game)
        finally:
            envs.close()

    return wrong + sentences(play)


def sentences(attempt: Callable[[], Any]) -> list[str]:
    """The UsageError of an attempt, line by line; nothing where it worked or failed in another way."""
    try:
        attempt()
    except UsageError as error:
        return str(error).splitlines()
    except Exception:
        return []
    return []


def default_threads(cfg: Config, local_processes: int) -> int:
    """One for small networks, which more threads only slow down; for convolutions every core, shared by processes."""
    return 1 if cfg.model == "mlp" else max(1, (os.cpu_count() or 1) // local_processes)


def default_workers(cfg: Config, num_envs: int, local_processes: int) -> int:
    """Emulators of Atari games run on every core, shared by processes, where there are at least four: two cores are
    kept busy by the convolutions alone. Other environments run in this process."""
    if not isinstance(cfg, Atari) or isinstance(cfg, AtariEnvpool) or cfg.model == "mlp" or cfg.engine == "envpool":
        return 0
    cores = (os.cpu_count() or 1) // local_processes
    most = max((k for k in range(1, cores + 1) if num_envs % k == 0), default=1)
    return most if most > 1 and cores >= 4 else 0


def choose_variant(env_id: str) -> tuple[str, str]:
    """The variant for an environment, and why: by its name, else by its spaces."""
    if "NoFrameskip" in env_id or env_id.startswith("ALE/"):
        return "ppo_atari", "an Atari game"
    if env_id.startswith("dm_control/"):
        return "ppo_continuous_action", "dm_control"
    if env_id.removesuffix("_v3").removesuffix("_v2") in ("pong", "surround", "tennis", "basketball_pong"):
        return "ppo_pettingzoo_ma_atari", "a game of several players"
    from proximo.envs.gym import make_gym

    envs = make_gym(Config(env_id=env_id), [0])
    shape, dtype, space = envs.obs_shape, envs.obs_dtype, envs.action_space
    envs.close()
    if isinstance(space, gym.spaces.Box):
        return "ppo_continuous_action", "continuous actions"
    if len(shape) == 3 and dtype == np.uint8:
        say(f"{env_id} gives images: --model cnn suits them")
    return "ppo", "discrete actions"
