"""PPO with an LSTM between a trunk and the heads (details 32-36), for a CartPole that hides its velocities.

Ends with the same weights, bit for bit, as `proximo train ppo --recurrent lstm` on the same environment.
"""

import sys
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from torch import nn

from proximo.config import Config
from proximo.envs.gym_loop import GymEnvs
from proximo.on_torch.agent import SharedAgent
from proximo.on_torch.distributions import CategoricalHead
from proximo.on_torch.mlp import MLP
from proximo.on_torch.networks import RecurrentLayer, layer_init
from proximo.on_torch.train import train
from proximo.protocols import Spec, VecEnv


class WithoutVelocities(gymnasium.ObservationWrapper):
    """Observe the position of the cart and the angle of the pole only."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[[0, 2]]


def make_envs(cfg: Config, seeds: list[int]) -> VecEnv:
    """One environment per seed."""
    return GymEnvs(lambda: WithoutVelocities(gymnasium.make("CartPole-v1")), seeds, cfg.env_id)


def make_agent(spec: Spec, cfg: Config) -> nn.Module:
    """A trunk of tanh units, an LSTM, and two linear heads."""
    num_actions = int(spec.action_space.n)
    trunk = MLP([spec.obs_shape[0], 64, 64])
    memory = RecurrentLayer("lstm", 64, 128)
    critic = layer_init(nn.Linear(128, 1), 1.0)
    policy = layer_init(nn.Linear(128, num_actions), 0.01)
    return SharedAgent(trunk, critic, CategoricalHead(policy, num_actions), memory)


def main(**settings: Any) -> dict[str, np.ndarray]:
    """Train, print the progress, and return the weights by name."""
    cfg = replace(Config(env_id="CartPole without velocities", total_timesteps=200_000, recurrent="lstm", num_envs=8,
                         threads=1), **settings)
    returns: list[float] = []
    for it in train(cfg, make_envs, make_agent):
        returns += it.finished.ret.tolist()
        if returns and it.iteration % 10 == 0:
            print(f"{it.steps:>9} steps  return {np.mean(returns[-100:]):7.1f}")
    return it.weights()


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit("lstm.py takes no arguments: change the values of cfg.")
    main()
