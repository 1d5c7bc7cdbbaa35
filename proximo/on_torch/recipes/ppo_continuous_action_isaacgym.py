"""PPO for thousands of environments simulated as one batch (Brax): networks of 256, nothing normalised."""

from torch import nn

from proximo.envs.brax import make_brax
from proximo.on_torch.agent import assemble
from proximo.protocols import VecEnv
from proximo.variants import BatchedSim


def make_envs(cfg: BatchedSim, seeds: list[int]) -> VecEnv:
    return make_brax(cfg, seeds)


def make_agent(envs: VecEnv, cfg: BatchedSim) -> nn.Module:
    return assemble(envs, cfg)


if __name__ == "__main__":
    from proximo.cli.main import run_recipe
    from proximo.on_torch.train import train

    run_recipe(BatchedSim, train, make_envs, make_agent)
