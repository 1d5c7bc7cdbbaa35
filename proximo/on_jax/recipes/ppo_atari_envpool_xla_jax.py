"""PPO for Atari games stepped by EnvPool from inside JAX's compiled functions, their loops written out."""

from flax import nnx

from proximo.envs.envpool_xla import make_envpool_xla
from proximo.on_jax.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import AtariXLA


def make_envs(cfg: AtariXLA, seeds: list[int]) -> VecEnv:
    return make_envpool_xla(cfg, seeds)


def make_agent(envs: VecEnv, cfg: AtariXLA) -> nnx.Module:
    return assemble(envs, cfg)
