"""PPO for Procgen: the IMPALA network, rewards scaled with the variant's own gamma."""

from torch import nn

from proximo.envs.procgen import make_procgen
from proximo.on_torch.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import Procgen


def make_envs(cfg: Procgen, seeds: list[int]) -> VecEnv:
    return make_procgen(cfg, seeds)


def make_agent(envs: VecEnv, cfg: Procgen) -> nn.Module:
    return assemble(envs, cfg)


if __name__ == "__main__":
    from proximo.cli.main import run_recipe
    from proximo.on_torch.train import train

    run_recipe(Procgen, train, make_envs, make_agent)
