"""PPO for classic control, Box2D and any Gymnasium id: separate networks of 64 tanh units (details 1-13)."""

from torch import nn

from proximo.config import Config
from proximo.envs.envpool import make_envpool
from proximo.envs.gym import make_gym
from proximo.on_torch.agent import assemble
from proximo.protocols import VecEnv


def make_envs(cfg: Config, seeds: list[int]) -> VecEnv:
    return make_envpool(cfg, seeds) if cfg.engine == "envpool" else make_gym(cfg, seeds)


def make_agent(envs: VecEnv, cfg: Config) -> nn.Module:
    return assemble(envs, cfg)


if __name__ == "__main__":
    from proximo.cli.main import run_recipe
    from proximo.on_torch.train import train

    run_recipe(Config, train, make_envs, make_agent)
