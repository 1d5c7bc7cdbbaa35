"""PPO by self-play: one network plays all sides of a PettingZoo Atari game, told by indicator planes which it is."""

from torch import nn

from proximo.envs.pettingzoo import make_pettingzoo
from proximo.on_torch.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import SelfPlay


def make_envs(cfg: SelfPlay, seeds: list[int]) -> VecEnv:
    return make_pettingzoo(cfg, seeds)


def make_agent(envs: VecEnv, cfg: SelfPlay) -> nn.Module:
    return assemble(envs, cfg)


if __name__ == "__main__":
    from proximo.cli.main import run_recipe
    from proximo.on_torch.train import train

    run_recipe(SelfPlay, train, make_envs, make_agent)
