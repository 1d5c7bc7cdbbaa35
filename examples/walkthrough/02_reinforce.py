"""Step 2, the policy gradient: make actions more probable in proportion to the return that followed them.

Run it with `python examples/walkthrough/02_reinforce.py`.
"""

from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
from curves import Episodes, run
from torch import Tensor, nn

NUM_STEPS = 256  # T: steps between two updates, at least; the last episode is played to its end
GAMMA = 0.99  # discount factor
LEARNING_RATE = 3e-3  # step size of Adam


class Environment:
    """CartPole-v1. It is reset as soon as an episode ends; `finished` collects the episodes."""

    def __init__(self, seed: int) -> None:
        self.env = gym.make("CartPole-v1")
        self.obs, _ = self.env.reset(seed=seed)  # (4,): position, velocity, angle, angular velocity
        self.num_steps, self.running_return = 0, 0.0
        self.finished: Episodes = []

    def step(self, action: int) -> tuple[np.float32, bool]:
        """Return the reward, and whether the episode is over. `self.obs` is then what to act on next."""
        self.obs, reward, terminated, truncated, _ = self.env.step(action)
        self.num_steps += 1
        self.running_return += float(reward)
        if terminated or truncated:
            self.finished.append((self.num_steps, self.running_return))
            self.obs, self.running_return = self.env.reset()[0], 0.0
        return np.float32(reward), terminated or truncated


class Rollout(NamedTuple):
    """Whole episodes, T steps together."""

    obs: Tensor  # (T, 4)
    action: Tensor  # (T,)
    reward: Tensor  # (T,)
    done: Tensor  # (T,) the episode is over after this step


def network(outputs: int) -> nn.Module:
    """Two layers of 64 tanh units."""
    return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


def sample(logits: Tensor) -> Tensor:
    """Sample actions (...) from softmax(logits), logits (..., 2)."""
    return torch.multinomial(logits.softmax(-1), 1).squeeze(-1)


def log_prob(logits: Tensor, action: Tensor) -> Tensor:
    """Return log pi(action) (...)."""
    return logits.log_softmax(-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)


@torch.no_grad()
def collect(actor: nn.Module, env: Environment) -> Rollout:
    """Play whole episodes, until there are at least NUM_STEPS steps."""
    rows, done = [], False
    while len(rows) < NUM_STEPS or not done:
        obs = env.obs
        action = sample(actor(torch.from_numpy(obs))).item()
        reward, done = env.step(action)
        rows.append((obs, action, reward, done))
    return Rollout(*(torch.from_numpy(np.stack(x)) for x in zip(*rows)))


def returns_to_go(rollout: Rollout) -> Tensor:
    """Return the discounted sum of rewards (T,) from each step to the end of its episode."""
    ret, running = torch.zeros_like(rollout.reward), torch.tensor(0.0)
    for t in reversed(range(len(ret))):
        running = rollout.reward[t] + GAMMA * ~rollout.done[t] * running
        ret[t] = running
    return ret


def policy_loss(logprob: Tensor, weight: Tensor) -> Tensor:
    """Its negative gradient is the policy gradient. Arguments (T,)."""
    return -(logprob * weight).mean()


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Move the weights against the gradient of the loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def train(seed: int, total_steps: int) -> Episodes:
    """Alternate playing and one step of the policy along its gradient."""
    torch.manual_seed(seed)
    env, actor = Environment(seed), network(2)
    actor_optimizer = torch.optim.Adam(actor.parameters(), LEARNING_RATE)
    while env.num_steps < total_steps:
        rollout = collect(actor, env)
        ret = returns_to_go(rollout)
        descend(actor_optimizer, policy_loss(log_prob(actor(rollout.obs), rollout.action), ret))
    return env.finished


if __name__ == "__main__":
    run("02_reinforce", {"REINFORCE": train}, before="01_random")
