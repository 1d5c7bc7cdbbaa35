"""The choice between environments in this process and in worker processes, alone or in groups."""

from collections.abc import Sequence

from proximo.config import Config
from proximo.envs.workers.envs import WorkerEnvs
from proximo.envs.workers.groups import GroupedWorkers
from proximo.envs.workers.process import MakeRows
from proximo.envs.workers.restart import RestartedWorkers
from proximo.protocols import VecEnv


def make_rows_or_workers(make_rows: MakeRows, cfg: Config, seeds: Sequence[int], name: str) -> VecEnv:
    """Make environments in this process, or in `cfg.env_workers` processes if that is not 0.

    Args:
        make_rows: Makes environments in one process from their seeds. It is pickled for worker processes.
        cfg: Its `env_workers`, `env_timeout` (seconds), `env_groups` and `restart_envs` are read.
        seeds: One seed per environment.
        name: The id of the environment, for error messages.
    """
    if not cfg.env_workers:
        return make_rows(seeds)
    if cfg.env_groups > 1:
        return GroupedWorkers(cfg.env_groups, make_rows, seeds, cfg.env_workers, cfg.env_timeout, name)
    if cfg.restart_envs:
        return RestartedWorkers(cfg.restart_envs, make_rows, seeds, cfg.env_workers, cfg.env_timeout, name)
    return WorkerEnvs(make_rows, seeds, cfg.env_workers, cfg.env_timeout, name)


def group_problems(cfg: Config, by_itself: str | None) -> list[str]:
    """Return why environments cannot take turns in groups, one sentence or none.

    Args:
        cfg: The configuration.
        by_itself: Why its engine has no worker processes, None if it can have them.
    """
    given = f"env_groups={cfg.env_groups}"
    if cfg.env_groups < 2:
        return []
    if cfg.framework == "jax":
        return [f"{given} runs with framework=torch only. Use --framework torch, or leave --env-groups out."]
    if by_itself or cfg.limits.max_players > 1:
        why = by_itself or "the players of a game step together"
        return [f"{given} is not available: {why}. Leave --env-groups out."]
    if not cfg.env_workers or cfg.env_workers % cfg.env_groups:
        return [f"{given} needs worker processes, the same number for each group, and env_workers={cfg.env_workers}. "
                f"Use --env-workers {cfg.env_groups} or a multiple of it, or leave --env-groups out."]
    if cfg.restart_envs:
        return [f"{given} does not go together with restart_envs={cfg.restart_envs}. Leave one of them out."]
    return []
