"""PPO for classic control, Box2D and any Gymnasium id: separate networks of 64 tanh units (details 1-13)."""

from proximo.config import Config
from proximo.envs.base import VecEnv
from proximo.envs.gym import make_gym
from proximo.envs.jax_control import has_jax_control, make_jax_control
from proximo.on_jax.agent import assemble


def make_envs(cfg: Config, seeds: list[int]) -> VecEnv:
    """Inside the compiled function where the environment is written in JAX, unless --engine says otherwise."""
    if cfg.engine == "jax" or cfg.engine == "auto" and has_jax_control(cfg.env_id):
        return make_jax_control(cfg, seeds)
    return make_gym(cfg, seeds)


def make_agent(envs: VecEnv, cfg: Config):
    return assemble(envs, cfg)
