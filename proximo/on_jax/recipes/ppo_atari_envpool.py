"""PPO for Atari games stepped by EnvPool, which resets one step late: its filler rows are masked everywhere."""

from flax import nnx

from proximo.envs.envpool import make_envpool
from proximo.on_jax.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import AtariEnvpool


def make_envs(cfg: AtariEnvpool, seeds: list[int]) -> VecEnv:
    return make_envpool(cfg, seeds)


def make_agent(envs: VecEnv, cfg: AtariEnvpool) -> nnx.Module:
    return assemble(envs, cfg)
