"""PPO for classic control, Box2D and any Gymnasium id: separate networks of 64 tanh units (details 1-13)."""

from flax import nnx

from proximo.config import Config
from proximo.envs.envpool_xla import make_envpool_xla
from proximo.envs.gym import make_gym
from proximo.envs.jax_control import make_jax_control, takes_jax_control
from proximo.on_jax.agent import assemble
from proximo.protocols import VecEnv


def make_envs(cfg: Config, seeds: list[int]) -> VecEnv:
    """Inside the compiled function where the environment is written in JAX or EnvPool is asked for."""
    if takes_jax_control(cfg):
        return make_jax_control(cfg, seeds)
    return make_envpool_xla(cfg, seeds) if cfg.engine == "envpool" else make_gym(cfg, seeds)


def make_agent(envs: VecEnv, cfg: Config) -> nnx.Module:
    return assemble(envs, cfg)
