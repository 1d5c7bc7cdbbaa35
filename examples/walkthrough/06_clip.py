"""Step 6, the clipped objective of PPO: several steps of the policy on one rollout, without going too far.

Run it with `python examples/walkthrough/06_clip.py`.
"""

import math
from functools import partial
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
from curves import Episodes, run
from torch import Tensor, nn

NUM_STEPS = 256  # T: steps between two updates
GAMMA = 0.99  # discount factor
GAE_LAMBDA = 0.95  # weight of each further step, relative to the one before
LEARNING_RATE = 3e-3  # step size of Adam
EPOCHS = 16  # gradient steps of policy and critic on each rollout
CLIP = 0.2  # epsilon: how far the ratio may leave 1 before its gradient stops
VF_COEF = 0.5  # weight of the value loss


class Environment:
    """CartPole-v1. It is reset as soon as an episode ends; `finished` collects the episodes."""

    def __init__(self, seed: int) -> None:
        self.env = gym.make("CartPole-v1")
        self.obs, _ = self.env.reset(seed=seed)  # (4,): position, velocity, angle, angular velocity
        self.num_steps, self.running_return = 0, 0.0
        self.finished: Episodes = []

    def step(self, action: int) -> tuple[np.ndarray, np.float32, bool, bool]:
        """Return what followed the action, the reward, whether the episode ended, and whether a time limit cut it off.

        `self.obs` is then what to act on next: the first observation of a new episode, if one begins.
        """
        next_obs, reward, terminated, truncated, _ = self.env.step(action)
        self.obs = next_obs
        self.num_steps += 1
        self.running_return += float(reward)
        if terminated or truncated:
            self.finished.append((self.num_steps, self.running_return))
            self.obs, self.running_return = self.env.reset()[0], 0.0
        return next_obs, np.float32(reward), terminated, truncated


class Rollout(NamedTuple):
    """T steps. The first and the last episode may be incomplete."""

    obs: Tensor  # (T, 4)
    action: Tensor  # (T,)
    reward: Tensor  # (T,)
    next_obs: Tensor  # (T, 4) what followed the action, also where the next row begins a new episode
    terminated: Tensor  # (T,) the episode ended: nothing follows
    done: Tensor  # (T,) the episode ended or was cut off: the next row begins a new episode


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
    """Play NUM_STEPS steps. Episodes continue from one rollout to the next."""
    rows = []
    for _ in range(NUM_STEPS):
        obs = env.obs
        action = sample(actor(torch.from_numpy(obs))).item()
        next_obs, reward, terminated, truncated = env.step(action)
        rows.append((obs, action, reward, next_obs, terminated, terminated or truncated))
    return Rollout(*(torch.from_numpy(np.stack(x)) for x in zip(*rows)))


def gae(rollout: Rollout, value: Tensor, next_value: Tensor) -> Tensor:
    """Return advantages (T,): sums of the one-step advantages that follow, with weights (GAMMA * GAE_LAMBDA)^k."""
    delta = rollout.reward + GAMMA * next_value * ~rollout.terminated - value
    advantage, running = torch.zeros_like(delta), torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        running = delta[t] + GAMMA * GAE_LAMBDA * ~rollout.done[t] * running
        advantage[t] = running
    return advantage


def policy_loss(logprob: Tensor, old_logprob: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The clipped surrogate objective. Tensors (T,); "old" means: of the policy that played."""
    ratio = (logprob - old_logprob).exp()
    clipped_ratio = ratio.clamp(1 - clip, 1 + clip)
    return -torch.minimum(ratio * advantage, clipped_ratio * advantage).mean()


def value_loss(value: Tensor, target: Tensor) -> Tensor:
    """Half the mean squared error. Arguments (T,)."""
    return 0.5 * (value - target).square().mean()


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Move the weights against the gradient of the loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def train(seed: int, total_steps: int, clip: float) -> Episodes:
    """Alternate playing and EPOCHS steps of policy and critic."""
    torch.manual_seed(seed)
    env, actor, critic = Environment(seed), network(2), network(1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], LEARNING_RATE)
    while env.num_steps < total_steps:
        rollout = collect(actor, env)
        with torch.no_grad():  # before anything has learned from these rewards
            value, next_value = critic(rollout.obs).squeeze(-1), critic(rollout.next_obs).squeeze(-1)
            old_logprob = log_prob(actor(rollout.obs), rollout.action)
        advantage = gae(rollout, value, next_value)
        target = advantage + value
        for _ in range(EPOCHS):
            logprob = log_prob(actor(rollout.obs), rollout.action)
            loss = policy_loss(logprob, old_logprob, advantage, clip)
            loss = loss + VF_COEF * value_loss(critic(rollout.obs).squeeze(-1), target)
            descend(optimizer, loss)
    return env.finished


if __name__ == "__main__":
    run("06_clip", {"not clipped": partial(train, clip=math.inf), "clipped": partial(train, clip=CLIP)},
        before="05_gae")
