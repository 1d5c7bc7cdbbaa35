"""Robust policy optimization (Rahman & Xue 2022, arXiv 2212.07536): a head of one's own in twenty lines.

When learning, the mean of the Gaussian is moved by uniform noise, which keeps the policy from becoming deterministic
too early. Ends with the same weights, bit for bit, as `proximo train rpo_continuous_action` with the same settings.
"""

import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from proximo.envs.mujoco import make_mujoco
from proximo.on_torch.assemble import assemble
from proximo.on_torch.box_heads import PolicyNetwork
from proximo.on_torch.distributions import Gaussian, GaussianHead
from proximo.on_torch.train import train
from proximo.protocols import Spec
from proximo.variants import RPO


class RPOHead(GaussianHead):
    """A Gaussian head that draws noise for learning and adds it to the mean."""

    def __init__(self, network: nn.Module, size: int, alpha: float) -> None:
        super().__init__(network, size)
        self.alpha = alpha

    def learning_noise(self, generator: torch.Generator, *lead: int) -> Tensor:
        """Draw (*lead, size), uniform in [-alpha, alpha]."""
        return torch.empty(*lead, *self.action_shape).uniform_(-self.alpha, self.alpha, generator=generator)

    def perturbed(self, dist: Gaussian, noise: Tensor) -> Gaussian:
        """The distribution that learning uses in place of `dist`."""
        return Gaussian(dist.mean + noise, dist.logstd)


def make_head(network: PolicyNetwork, space: spaces.Box, cfg: Any) -> nn.Module:
    """The head for a space of continuous actions, over a network with one output for each of them."""
    size = math.prod(space.shape)
    return RPOHead(network.whole(size), size, cfg.rpo_alpha)


def make_agent(spec: Spec, cfg: RPO) -> nn.Module:
    """The networks of ppo_continuous_action with another head."""
    return assemble(spec, cfg, make_head)


def main(**settings: Any) -> dict[str, np.ndarray]:
    """Train, print the progress, and return the weights by name."""
    cfg = replace(RPO(env_id="Pendulum-v1", total_timesteps=200_000, rpo_alpha=0.5, threads=1), **settings)
    returns: list[float] = []
    for it in train(cfg, make_mujoco, make_agent):
        returns += it.finished.ret.tolist()
        if returns:
            print(f"{it.steps:>9} steps  return {np.mean(returns[-100:]):7.1f}")
    return it.weights()


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit("rpo.py takes no arguments: change the values of cfg.")
    main()
