"""PPO for thousands of environments simulated as one batch (Brax): networks of 256, nothing normalised."""

from flax import nnx

from proximo.envs.brax import make_brax
from proximo.on_jax.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import BatchedSim


def make_envs(cfg: BatchedSim, seeds: list[int]) -> VecEnv:
    return make_brax(cfg, seeds)


def make_agent(envs: VecEnv, cfg: BatchedSim) -> nnx.Module:
    return assemble(envs, cfg)
