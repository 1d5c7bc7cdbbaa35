"""Environments that a compiled function of JAX steps."""

from collections.abc import Sequence

from proximo.config import Config
from proximo.envs.envpool import make_envpool_atari
from proximo.protocols import VecEnv
from proximo.variants import Atari


def make_control_inside(cfg: Config, seeds: Sequence[int]) -> VecEnv | None:
    """Make environments that JAX steps within its compiled function.

    Args:
        cfg: The configuration. `engine` jax (or auto, for tasks written in JAX) simulates in JAX; envpool uses
            EnvPool's XLA handle.
        seeds: One seed per environment.

    Returns:
        The environments, or None if they can only be stepped from Python.

    Raises:
        UsageError: `--engine jax` was given for an id that is not written in JAX.
    """
    from proximo.envs.jax_control import make_jax_control, takes_jax_control

    if takes_jax_control(cfg):
        return make_jax_control(cfg, seeds)
    if cfg.engine != "envpool":
        return None
    from proximo.envs.envpool_xla import make_envpool_xla

    return make_envpool_xla(cfg, seeds)


def make_atari_inside(cfg: Atari, seeds: Sequence[int]) -> VecEnv:
    """Make EnvPool's Atari games that JAX steps within its compiled function; see make_envpool_xla."""
    from proximo.envs.envpool_xla import make_envpool_xla

    return make_envpool_xla(cfg, seeds, make_envpool_atari)


def control_inside(cfg: Config) -> bool:
    """Return whether the task of a configuration is written in JAX too."""
    from proximo.envs.jax_control import takes_jax_control

    return takes_jax_control(cfg)
