"""PPO for Atari games: the Nature-CNN under both heads and the nine Atari details (14-22)."""

from torch import nn

from proximo.envs.atari import make_atari
from proximo.on_torch.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import Atari


def make_envs(cfg: Atari, seeds: list[int]) -> VecEnv:
    return make_atari(cfg, seeds)


def make_agent(envs: VecEnv, cfg: Atari) -> nn.Module:
    return assemble(envs, cfg)


if __name__ == "__main__":
    from proximo.cli.main import run_recipe
    from proximo.on_torch.train import train

    run_recipe(Atari, train, make_envs, make_agent)
