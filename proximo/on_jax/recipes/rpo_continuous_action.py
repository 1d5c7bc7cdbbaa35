"""Robust policy optimization (Rahman & Xue 2022): the continuous variant with a randomly shifted mean."""

from functools import partial

from flax import nnx

from proximo.envs.envpool_xla import make_envpool_xla
from proximo.envs.jax_control import make_jax_control, takes_jax_control
from proximo.envs.mujoco import make_mujoco
from proximo.on_jax.agent import assemble
from proximo.on_jax.distributions import RPOHead
from proximo.protocols import VecEnv
from proximo.variants import RPO


def make_envs(cfg: RPO, seeds: list[int]) -> VecEnv:
    """Inside the compiled function where the environment is written in JAX or EnvPool is asked for."""
    if takes_jax_control(cfg):
        return make_jax_control(cfg, seeds)
    return make_envpool_xla(cfg, seeds) if cfg.engine == "envpool" else make_mujoco(cfg, seeds)


def make_agent(envs: VecEnv, cfg: RPO) -> nnx.Module:
    return assemble(envs, cfg, gaussian=partial(RPOHead, rpo_alpha=cfg.rpo_alpha))
