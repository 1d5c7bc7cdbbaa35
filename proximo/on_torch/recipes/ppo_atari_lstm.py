"""PPO for Atari games with an LSTM of 128 instead of stacked frames (details 32-36)."""

from torch import nn

from proximo.envs.atari import make_atari
from proximo.on_torch.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import AtariLSTM


def make_envs(cfg: AtariLSTM, seeds: list[int]) -> VecEnv:
    return make_atari(cfg, seeds)


def make_agent(envs: VecEnv, cfg: AtariLSTM) -> nn.Module:
    return assemble(envs, cfg)


if __name__ == "__main__":
    from proximo.cli.main import run_recipe
    from proximo.on_torch.train import train

    run_recipe(AtariLSTM, train, make_envs, make_agent)
