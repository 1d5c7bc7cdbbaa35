"""Robust policy optimization (Rahman & Xue 2022): the continuous variant with a randomly shifted mean."""

from functools import partial

from torch import nn

from proximo.envs.mujoco import make_mujoco
from proximo.on_torch.agent import assemble
from proximo.on_torch.distributions import RPOHead
from proximo.protocols import VecEnv
from proximo.variants import RPO


def make_envs(cfg: RPO, seeds: list[int]) -> VecEnv:
    return make_mujoco(cfg, seeds)


def make_agent(envs: VecEnv, cfg: RPO) -> nn.Module:
    return assemble(envs, cfg, gaussian=partial(RPOHead, rpo_alpha=cfg.rpo_alpha))


if __name__ == "__main__":
    from proximo.cli.main import run_recipe
    from proximo.on_torch.train import train

    run_recipe(RPO, train, make_envs, make_agent)
