"""PPO for MuJoCo and dm_control: Gaussian actions, normalised observations and rewards (details 23-31)."""

from torch import nn

from proximo.envs.mujoco import make_mujoco
from proximo.on_torch.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import Continuous


def make_envs(cfg: Continuous, seeds: list[int]) -> VecEnv:
    return make_mujoco(cfg, seeds)


def make_agent(envs: VecEnv, cfg: Continuous) -> nn.Module:
    return assemble(envs, cfg)


if __name__ == "__main__":
    from proximo.cli.main import run_recipe
    from proximo.on_torch.train import train

    run_recipe(Continuous, train, make_envs, make_agent)
