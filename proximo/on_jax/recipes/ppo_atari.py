"""PPO for Atari games: the Nature-CNN under both heads and the nine Atari details (14-22)."""

from flax import nnx

from proximo.envs.atari import make_atari
from proximo.on_jax.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import Atari


def make_envs(cfg: Atari, seeds: list[int]) -> VecEnv:
    return make_atari(cfg, seeds)


def make_agent(envs: VecEnv, cfg: Atari) -> nnx.Module:
    return assemble(envs, cfg)
