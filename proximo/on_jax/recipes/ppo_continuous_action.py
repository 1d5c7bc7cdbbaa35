"""PPO for MuJoCo and dm_control: Gaussian actions, normalised observations and rewards (details 23-31)."""

from flax import nnx

from proximo.envs.envpool_xla import make_envpool_xla
from proximo.envs.jax_control import make_jax_control, takes_jax_control
from proximo.envs.mujoco import make_mujoco
from proximo.on_jax.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import Continuous


def make_envs(cfg: Continuous, seeds: list[int]) -> VecEnv:
    """Inside the compiled function where the environment is written in JAX or EnvPool is asked for."""
    if takes_jax_control(cfg):
        return make_jax_control(cfg, seeds)
    return make_envpool_xla(cfg, seeds) if cfg.engine == "envpool" else make_mujoco(cfg, seeds)


def make_agent(envs: VecEnv, cfg: Continuous) -> nnx.Module:
    return assemble(envs, cfg)
