"""Gymnasium's environments: classic control, Box2D, and a user's own `module:Env-v0`."""

from collections.abc import Sequence
from functools import partial

from proximo.config import Config
from proximo.envs.envpool import make_envpool
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.gym_source import EnvSource, env_source, make_from_source
from proximo.envs.info_metrics import rows_class
from proximo.envs.workers.choice import make_rows_or_workers
from proximo.errors import UsageError
from proximo.protocols import VecEnv


def make_gym(cfg: Config, seeds: Sequence[int]) -> VecEnv:
    """Make Gymnasium environments in this process or in `cfg.env_workers` processes; with engine=envpool, EnvPool's.

    Args:
        cfg: The fields of its group "environment" are read, without those of normalisation.
        seeds: One seed per environment.

    Returns:
        The environments, without normalisation.

    Raises:
        UsageError: The id is unknown, a package is missing, the engine is not for Gymnasium, or there is no policy for
            a space.
        EnvError: Making an environment fails.
    """
    if cfg.engine == "envpool":
        return make_envpool(cfg, seeds)
    if cfg.engine not in ("auto", "gym"):
        raise UsageError(f"engine={cfg.engine} cannot step {cfg.env_id}. Use --engine auto, gym or envpool.")
    source = env_source(cfg)
    return make_rows_or_workers(partial(make_gym_rows, source, cfg.autoreset), cfg, seeds, source.name)


def make_gym_rows(source: EnvSource, autoreset: str, seeds: Sequence[int], first_index: int = 0) -> GymEnvs:
    """Make environments in this process; see GymEnvs."""
    return rows_class(source)(partial(make_from_source, source), seeds, source.name, autoreset, first_index)
