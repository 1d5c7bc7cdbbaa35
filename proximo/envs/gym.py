"""The suite of Gymnasium: classic control, Box2D, and anyone's own `module:Env-v0`."""

from collections.abc import Sequence
from functools import partial

from proximo.config import Config
from proximo.envs.envpool import make_envpool
from proximo.envs.gym_ids import gym_id
from proximo.envs.gym_loop import make_gym_rows
from proximo.envs.workers import make_rows_or_workers
from proximo.errors import UsageError
from proximo.protocols import VecEnv


def make_gym(cfg: Config, seeds: Sequence[int]) -> VecEnv:
    """One environment of `cfg.env_id` a seed, in this process or in `cfg.env_workers` others.

    Raises UsageError for an unknown id, a missing package, or a space that has no policy.
    """
    if cfg.engine == "envpool":
        return make_envpool(cfg, seeds)
    if cfg.engine not in ("auto", "gym"):
        raise UsageError(f"engine={cfg.engine} does not step {cfg.env_id} here; use auto, gym or envpool")
    name = gym_id(cfg.env_id)
    return make_rows_or_workers(partial(make_gym_rows, name, cfg.autoreset), cfg, seeds, name)
