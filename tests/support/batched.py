"""A simulator whose step takes and returns torch tensors of many robots, with automatic resets, as a VecEnv."""

import numpy as np
import torch
from gymnasium import spaces

from proximo.protocols import Episode, Step


class Carts:
    """Carts on a line, pushed by the action. An episode terminates beyond 2 and is truncated after `limit` steps."""

    arrays = "torch"
    play = "host"
    keeps_state = False
    frames = observation_space = render_fps = None
    players = ()
    metric_names = ("reward_position",)
    obs_shape, obs_dtype = (2,), np.dtype(np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, num_envs, seed, limit=20, device="cpu"):
        self.num_envs, self.limit, self.device = num_envs, limit, device
        self.generator = torch.Generator(device).manual_seed(seed)
        self.x, self.time = self.draw(), torch.zeros(num_envs, dtype=torch.int32, device=device)
        self.ret = torch.zeros(num_envs, device=device)

    def draw(self):
        return 2 * torch.rand(self.num_envs, 2, generator=self.generator, device=self.device) - 1

    def reset(self):
        self.x, none = self.draw(), torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        self.time.zero_()
        self.ret.zero_()
        return self.made(self.x, none, none, ~none, torch.zeros_like(self.ret))

    def step(self, action):
        speed = self.x[:, 1] + 0.1 * action[:, 0].clamp(-1, 1)
        after = torch.stack([self.x[:, 0] + 0.1 * speed, speed], 1)
        self.time += 1
        terminated = after[:, 0].abs() > 2
        truncated = (self.time >= self.limit) & ~terminated
        over, reward = terminated | truncated, 1 - after[:, 0] ** 2
        self.ret += reward
        self.x = torch.where(over[:, None], self.draw(), after)
        step = self.made(after, terminated, truncated, over, reward)
        self.time[over], self.ret[over] = 0, 0
        return step

    def made(self, after, terminated, truncated, first, reward):
        episode = Episode(terminated | truncated, self.ret.clone(), self.time.clone())
        return Step(obs=self.x, first=first, mask=None, reward=reward, terminated=terminated, truncated=truncated,
                    final_obs=after, valid=torch.ones_like(first), episode=episode,
                    metrics={"reward_position": -after[:, 0] ** 2})

    def state(self):
        return None

    def load(self, state):
        raise NotImplementedError

    def render(self):
        return None

    def close(self):
        """Nothing is open."""


def make_carts(cfg, seeds):
    """Make one cart per seed."""
    return Carts(len(seeds), seeds[0])
