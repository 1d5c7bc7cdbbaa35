"""The same with its loops scanned, which compiles faster (one field: unroll)."""

from flax import nnx

from proximo.envs.envpool_xla import make_envpool_xla
from proximo.on_jax.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import AtariXLAScan


def make_envs(cfg: AtariXLAScan, seeds: list[int]) -> VecEnv:
    return make_envpool_xla(cfg, seeds)


def make_agent(envs: VecEnv, cfg: AtariXLAScan) -> nnx.Module:
    return assemble(envs, cfg)
