"""What the flags leave open, filled in, and every reason why they cannot work, before anything is made."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from proximo.catalog import Parts
from proximo.config import Config
from proximo.envs.normalize import apply_normalization
from proximo.errors import UsageError, notify
from proximo.variants import Atari, AtariEnvpool, BatchedSim, Procgen, SelfPlay


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
    if cfg.framework == "jax" and cfg.compile:
        notify("--compile has nothing to do: under JAX everything is compiled")
        changes["compile"] = False
    if cfg.framework == "jax" and cfg.backend != "gloo":
        notify(f"--backend {cfg.backend} is torch's: JAX chooses by the device, gloo for CPUs and NCCL for GPUs")
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


def problems_around(cfg: Config, recipe: Parts) -> list[str]:
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
        envs = apply_normalization(recipe.make_envs(one_game, list(range(one_game.num_envs))), one_game)
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
