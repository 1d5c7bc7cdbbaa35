"""Step 1, a random policy: the score that every later step has to beat.

Run it with `python examples/walkthrough/01_random.py`.
"""

import gymnasium as gym
import torch
from curves import Episodes, run
from torch import Tensor


class Environment:
    """CartPole-v1. It is reset as soon as an episode ends; `finished` collects the episodes."""

    def __init__(self, seed: int) -> None:
        self.env = gym.make("CartPole-v1")
        self.obs, _ = self.env.reset(seed=seed)  # (4,): position, velocity, angle, angular velocity
        self.num_steps, self.running_return = 0, 0.0
        self.finished: Episodes = []

    def step(self, action: int) -> None:
        """Push the cart to the left (0) or to the right (1). `self.obs` is then what to act on next."""
        self.obs, reward, terminated, truncated, _ = self.env.step(action)
        self.num_steps += 1
        self.running_return += float(reward)
        if terminated or truncated:
            self.finished.append((self.num_steps, self.running_return))
            self.obs, self.running_return = self.env.reset()[0], 0.0


def sample(logits: Tensor) -> Tensor:
    """Sample actions (...) from softmax(logits), logits (..., 2)."""
    return torch.multinomial(logits.softmax(-1), 1).squeeze(-1)


def train(seed: int, total_steps: int) -> Episodes:
    """Play, without learning anything."""
    torch.manual_seed(seed)
    env = Environment(seed)
    while env.num_steps < total_steps:
        env.step(sample(torch.zeros(2)).item())  # equal logits: both actions have probability 1/2
    return env.finished


if __name__ == "__main__":
    run("01_random", {"random": train})
