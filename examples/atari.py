"""PPO for Atari games: one convolutional network under policy and value, eight emulators.

Ends with the same weights, bit for bit, as `proximo train ppo_atari` with the same settings.
"""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from proximo.envs.atari import make_atari
from proximo.on_torch.agent import SharedAgent
from proximo.on_torch.distributions import CategoricalHead
from proximo.on_torch.networks import CHANNELS_LAST_ROWS, layer_init
from proximo.on_torch.train import train
from proximo.protocols import Spec
from proximo.variants import Atari


class NatureCNN(nn.Module):
    """Three convolutions and a dense layer of 512 units (Mnih et al. 2015; detail 21)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(channels, 32, 8, stride=4), nn.Conv2d(32, 64, 4, stride=2),
                                    nn.Conv2d(64, 64, 3, stride=1)])
        for conv in self.convs:
            layer_init(conv)
        self.dense = layer_init(nn.Linear(64 * 7 * 7, 512))

    def forward(self, obs: Tensor) -> Tensor:
        """Map frames (B, channels, 84, 84) of uint8 to features (B, 512)."""
        x = obs.float() / 255.0  # detail 22
        if len(x) >= CHANNELS_LAST_ROWS:
            x = x.contiguous(memory_format=torch.channels_last)  # faster for large batches
        for conv in self.convs:
            x = torch.relu(conv(x))
        return torch.relu(self.dense(x.flatten(1)))


def make_agent(spec: Spec, cfg: Atari) -> nn.Module:
    """Policy and value share the network."""
    num_actions = int(spec.action_space.n)
    trunk = NatureCNN(spec.obs_shape[0])
    critic = layer_init(nn.Linear(512, 1), 1.0)
    policy = layer_init(nn.Linear(512, num_actions), 0.01)
    return SharedAgent(trunk, critic, CategoricalHead(policy, num_actions))


def main(**settings: Any) -> dict[str, np.ndarray]:
    """Train, print the progress, and return the weights by name."""
    cfg = replace(Atari(env_id="BreakoutNoFrameskip-v4"), **settings)
    returns: list[float] = []
    for it in train(cfg, make_atari, make_agent):
        returns += it.finished.ret.tolist()
        if returns:
            print(f"{it.steps:>9} steps  return {np.mean(returns[-100:]):7.1f}")
    return it.weights()


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit("atari.py takes no arguments: change the values of cfg.")
    main()
