"""The compact PPO of the third document: mlp for flat observations, cnn for images, Atari among them."""

from flax import nnx

from proximo.envs.atari import make_atari
from proximo.envs.atari_ids import read_atari_name
from proximo.envs.gym import make_gym
from proximo.on_jax.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import Compact


def make_envs(cfg: Compact, seeds: list[int]) -> VecEnv:
    return make_atari(cfg, seeds) if read_atari_name(cfg.env_id) else make_gym(cfg, seeds)


def make_agent(envs: VecEnv, cfg: Compact) -> nnx.Module:
    return assemble(envs, cfg)
