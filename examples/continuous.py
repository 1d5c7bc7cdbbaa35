"""PPO for continuous actions: Gaussian policy, normalised observations and rewards (details 23-31).

Ends with the same weights, bit for bit, as `proximo train ppo_continuous_action` with the same settings.
"""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from proximo.envs.mujoco import make_mujoco
from proximo.on_torch.agent import SeparateAgent
from proximo.on_torch.distributions import GaussianHead
from proximo.on_torch.networks import layer_init
from proximo.on_torch.train import train
from proximo.protocols import Spec
from proximo.variants import Continuous


def hidden_layers(obs_size: int) -> list[nn.Module]:
    """Two layers of 64 tanh units (detail 26)."""
    return [layer_init(nn.Linear(obs_size, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh()]


def make_agent(spec: Spec, cfg: Continuous) -> nn.Module:
    """The policy network gives means; the standard deviation is one vector of weights (detail 24)."""
    obs_size, num_actions = spec.obs_shape[0], spec.action_space.shape[0]
    hidden_layers(obs_size)  # unused: the command draws the weights of a shared trunk first
    critic = nn.Sequential(*hidden_layers(obs_size), layer_init(nn.Linear(64, 1), 1.0))
    policy = nn.Sequential(*hidden_layers(obs_size), layer_init(nn.Linear(64, num_actions), 0.01))
    return SeparateAgent(critic, GaussianHead(policy, num_actions))


def main(**settings: Any) -> dict[str, np.ndarray]:
    """Train, print the progress, and return the weights by name. Normalisation follows norm_obs and norm_reward."""
    cfg = replace(Continuous(env_id="Pendulum-v1", total_timesteps=200_000, threads=1), **settings)
    returns: list[float] = []
    for it in train(cfg, make_mujoco, make_agent):
        returns += it.finished.ret.tolist()
        if returns:
            print(f"{it.steps:>9} steps  return {np.mean(returns[-100:]):7.1f}")
    return it.weights()


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit("continuous.py takes no arguments: change the values of cfg.")
    main()
