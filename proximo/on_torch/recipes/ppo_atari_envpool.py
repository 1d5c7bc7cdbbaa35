"""PPO for Atari games stepped by EnvPool, which resets one step late: its filler rows are masked everywhere."""

from torch import nn

from proximo.envs.envpool import make_envpool
from proximo.on_torch.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import AtariEnvpool


def make_envs(cfg: AtariEnvpool, seeds: list[int]) -> VecEnv:
    return make_envpool(cfg, seeds)


def make_agent(envs: VecEnv, cfg: AtariEnvpool) -> nn.Module:
    return assemble(envs, cfg)


if __name__ == "__main__":
    from proximo.cli.main import run_recipe
    from proximo.on_torch.train import train

    run_recipe(AtariEnvpool, train, make_envs, make_agent)
