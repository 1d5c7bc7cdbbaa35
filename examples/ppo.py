"""PPO for classic control, with the network and the loop written out.

Ends with the same weights, bit for bit, as `proximo train ppo`.
"""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.on_torch.agent import SeparateAgent
from proximo.on_torch.distributions import CategoricalHead
from proximo.on_torch.networks import layer_init
from proximo.on_torch.train import train
from proximo.protocols import Spec


def hidden_layers(obs_size: int) -> list[nn.Module]:
    """Two layers of 64 tanh units (detail 13)."""
    return [layer_init(nn.Linear(obs_size, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh()]


def make_agent(spec: Spec, cfg: Config) -> nn.Module:
    """Policy and value do not share any weights. A small gain of the last layer makes the first policy almost uniform
    (detail 2)."""
    obs_size, num_actions = spec.obs_shape[0], int(spec.action_space.n)
    hidden_layers(obs_size)  # unused: the command draws the weights of a shared trunk first
    critic = nn.Sequential(*hidden_layers(obs_size), layer_init(nn.Linear(64, 1), 1.0))
    policy = nn.Sequential(*hidden_layers(obs_size), layer_init(nn.Linear(64, num_actions), 0.01))
    return SeparateAgent(critic, CategoricalHead(policy, num_actions))


def main(**settings: Any) -> dict[str, np.ndarray]:
    """Train, print the progress, and return the weights by name."""
    cfg = replace(Config(env_id="CartPole-v1", total_timesteps=500_000, threads=1), **settings)
    returns: list[float] = []
    for it in train(cfg, make_gym, make_agent):
        returns += it.finished.ret.tolist()
        if returns and it.iteration % 50 == 0:
            print(f"{it.steps:>9} steps  return {np.mean(returns[-100:]):7.1f}")
    return it.weights()


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit("ppo.py takes no arguments: change the values of cfg.")
    main()
