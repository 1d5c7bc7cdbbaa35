"""PPO for Atari games with an LSTM of 128 instead of stacked frames (details 32-36)."""

from flax import nnx

from proximo.envs.atari import make_atari
from proximo.on_jax.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import AtariLSTM


def make_envs(cfg: AtariLSTM, seeds: list[int]) -> VecEnv:
    return make_atari(cfg, seeds)


def make_agent(envs: VecEnv, cfg: AtariLSTM) -> nnx.Module:
    return assemble(envs, cfg)
