"""PPO for Procgen: the IMPALA network, rewards scaled with the variant's own gamma."""

from flax import nnx

from proximo.envs.procgen import make_procgen
from proximo.on_jax.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import Procgen


def make_envs(cfg: Procgen, seeds: list[int]) -> VecEnv:
    return make_procgen(cfg, seeds)


def make_agent(envs: VecEnv, cfg: Procgen) -> nnx.Module:
    return assemble(envs, cfg)
