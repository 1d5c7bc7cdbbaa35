"""PPO by self-play: one network plays all sides of a PettingZoo Atari game, told by indicator planes which it is."""

from flax import nnx

from proximo.envs.pettingzoo import make_pettingzoo
from proximo.on_jax.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import SelfPlay


def make_envs(cfg: SelfPlay, seeds: list[int]) -> VecEnv:
    return make_pettingzoo(cfg, seeds)


def make_agent(envs: VecEnv, cfg: SelfPlay) -> nnx.Module:
    return assemble(envs, cfg)
