"""Step 8, vectorised environments: one policy plays several episodes at once.

Run it with `python examples/walkthrough/08_vector.py`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
from curves import Episodes, run
from torch import Tensor, nn

NUM_ENVS = 4  # N: environments that are played side by side
NUM_STEPS = 64  # T: steps in each environment between two updates
GAMMA = 0.99  # discount factor
GAE_LAMBDA = 0.95  # weight of each further step, relative to the one before
LEARNING_RATE = 3e-3  # step size of Adam
EPOCHS = 4  # passes over each rollout
NUM_MINIBATCHES = 4  # gradient steps in each pass
CLIP = 0.2  # epsilon: how far the ratio may leave 1 before its gradient stops
VF_COEF = 0.5  # weight of the value loss


class Environments:
    """N times CartPole-v1. Each is reset as soon as its episode ends; `finished` collects the episodes of all."""

    def __init__(self, seed: int) -> None:
        self.envs = [gym.make("CartPole-v1") for _ in range(NUM_ENVS)]
        self.obs = np.stack([env.reset(seed=NUM_ENVS * seed + i)[0] for i, env in enumerate(self.envs)])  # (N, 4)
        self.num_steps, self.running_return = 0, np.zeros(NUM_ENVS)
        self.finished: Episodes = []

    def step(self, action: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return what followed the actions, the rewards, which episodes ended, which a time limit cut off (N, ...).

        `self.obs` is then what to act on next: the first observation of a new episode, where one begins.
        """
        results = [env.step(one)[:4] for env, one in zip(self.envs, action)]
        next_obs, reward, terminated, truncated = (np.stack(x) for x in zip(*results))
        self.obs = next_obs.copy()
        self.num_steps += NUM_ENVS
        self.running_return += reward
        for i in np.flatnonzero(terminated | truncated):
            self.finished.append((self.num_steps, float(self.running_return[i])))
            self.obs[i], self.running_return[i] = self.envs[i].reset()[0], 0.0
        return next_obs, reward.astype(np.float32), terminated, truncated


class Rollout(NamedTuple):
    """T steps in N environments. The first and the last episode of each may be incomplete."""

    obs: Tensor  # (T, N, 4)
    action: Tensor  # (T, N)
    reward: Tensor  # (T, N)
    next_obs: Tensor  # (T, N, 4) what followed the action, also where the next row begins a new episode
    terminated: Tensor  # (T, N) the episode ended: nothing follows
    done: Tensor  # (T, N) the episode ended or was cut off: the next row begins a new episode


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
def collect(actor: nn.Module, envs: Environments) -> Rollout:
    """Play NUM_STEPS steps in each environment. Episodes continue from one rollout to the next."""
    rows = []
    for _ in range(NUM_STEPS):
        obs = envs.obs
        action = sample(actor(torch.from_numpy(obs))).numpy()
        next_obs, reward, terminated, truncated = envs.step(action)
        rows.append((obs, action, reward, next_obs, terminated, terminated | truncated))
    return Rollout(*(torch.from_numpy(np.stack(x)) for x in zip(*rows)))


def gae(rollout: Rollout, value: Tensor, next_value: Tensor) -> Tensor:
    """Return advantages (T, N): sums of the one-step advantages that follow, with weights (GAMMA * GAE_LAMBDA)^k."""
    delta = rollout.reward + GAMMA * next_value * ~rollout.terminated - value
    advantage, running = torch.zeros_like(delta), torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        running = delta[t] + GAMMA * GAE_LAMBDA * ~rollout.done[t] * running
        advantage[t] = running
    return advantage


def policy_loss(logprob: Tensor, old_logprob: Tensor, advantage: Tensor) -> Tensor:
    """The clipped surrogate objective. Arguments (B,); "old" means: of the policy that played."""
    ratio = (logprob - old_logprob).exp()
    clipped_ratio = ratio.clamp(1 - CLIP, 1 + CLIP)
    return -torch.minimum(ratio * advantage, clipped_ratio * advantage).mean()


def value_loss(value: Tensor, target: Tensor) -> Tensor:
    """Half the mean squared error. Arguments (B,)."""
    return 0.5 * (value - target).square().mean()


def minibatches(num_rows: int) -> Iterator[Tensor]:
    """Yield the rows (B,) of each minibatch: in each epoch every row once, in a new order."""
    for _ in range(EPOCHS):
        yield from torch.randperm(num_rows).chunk(NUM_MINIBATCHES)


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Move the weights against the gradient of the loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def train(seed: int, total_steps: int) -> Episodes:
    """Alternate playing and EPOCHS passes over the rollout."""
    torch.manual_seed(seed)
    envs, actor, critic = Environments(seed), network(2), network(1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], LEARNING_RATE)
    while envs.num_steps < total_steps:
        rollout = collect(actor, envs)
        with torch.no_grad():  # before anything has learned from these rewards
            value, next_value = critic(rollout.obs).squeeze(-1), critic(rollout.next_obs).squeeze(-1)
            old_logprob = log_prob(actor(rollout.obs), rollout.action)
        advantage = gae(rollout, value, next_value)
        batch = [x.flatten(0, 1) for x in (rollout.obs, rollout.action, old_logprob, advantage, advantage + value)]
        for rows in minibatches(NUM_STEPS * NUM_ENVS):
            obs, action, old, adv, target = (x[rows] for x in batch)
            loss = policy_loss(log_prob(actor(obs), action), old, adv)
            loss = loss + VF_COEF * value_loss(critic(obs).squeeze(-1), target)
            descend(optimizer, loss)
    return envs.finished


if __name__ == "__main__":
    run("08_vector", {"four environments": train}, before="07_minibatches")
