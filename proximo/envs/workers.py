"""The choice between environments in this process and in worker processes."""

from collections.abc import Sequence

from proximo.config import Config
from proximo.envs.worker_envs import WorkerEnvs
from proximo.envs.worker_groups import GroupedWorkers
from proximo.envs.worker_process import MakeRows
from proximo.envs.worker_restart import RestartedWorkers
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
