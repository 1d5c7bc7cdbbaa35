"""The compact PPO of the third document: mlp for flat observations, cnn for images, Atari among them."""

from torch import nn

from proximo.envs.atari import make_atari
from proximo.envs.atari_ids import read_atari_name
from proximo.envs.envpool import make_envpool
from proximo.envs.gym import make_gym
from proximo.on_torch.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import Compact


def make_envs(cfg: Compact, seeds: list[int]) -> VecEnv:
    if cfg.engine == "envpool":
        return make_envpool(cfg, seeds)
    return make_atari(cfg, seeds) if read_atari_name(cfg.env_id) else make_gym(cfg, seeds)


def make_agent(envs: VecEnv, cfg: Compact) -> nn.Module:
    return assemble(envs, cfg)


if __name__ == "__main__":
    from proximo.cli.main import run_recipe
    from proximo.on_torch.train import train

    run_recipe(Compact, train, make_envs, make_agent)
