"""Environments of the cases of same_weights.py that no library has: masks, odd action spaces, time limits, images.

Importing the module registers them, so that `same_weights_envs:Masked-v0` is an id on the command line. They belong to
the tool, not to the checkouts, so that both checkouts play the same ones.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Short(gymnasium.Env):
    """Episodes of 3 to 9 steps that end by a time limit or not, and a reward that depends on what was done."""

    observation_space: spaces.Space = spaces.Box(-1, 1, (3,), np.float32)
    action_space: spaces.Space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.played, self.length = 0, int(self.np_random.integers(3, 10))
        self.cue = float(self.np_random.uniform(-1, 1))
        return self.observe(), self.info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        reward = self.cue * float(np.sum(action)) - 0.1 * self.played
        self.played += 1
        over, cut = self.played >= self.length, self.length % 2 == 0
        return self.observe(), reward, over and not cut, over and cut, self.info()

    def observe(self) -> Any:
        return np.array([self.cue, self.played / 10, np.sin(self.played)], np.float32)

    def info(self) -> dict:
        return {}


class Masked(Short):
    """One of the three actions is forbidden, another one at each step."""

    def info(self) -> dict:
        return {"action_mask": (np.arange(3) != self.played % 3).astype(np.int8)}


class MultiDiscrete(Short):
    action_space = spaces.MultiDiscrete([3, 2])


class MultiBinary(Short):
    action_space = spaces.MultiBinary(2)


class Bounded(Short):
    """Continuous actions whose bounds differ."""

    action_space = spaces.Box(np.array([-1, 0], np.float32), np.array([1, 2], np.float32))


class DictObs(Short):
    """Observations that have to be flattened."""

    observation_space = spaces.Dict({"vector": Short.observation_space, "kind": spaces.Discrete(3)})

    def observe(self) -> Any:
        return {"vector": super().observe(), "kind": self.played % 3}


class Image(Short):
    """Pictures of 36 x 36 pixels, channels last."""

    observation_space = spaces.Box(0, 255, (36, 36, 3), np.uint8)

    def observe(self) -> Any:
        return self.np_random.integers(0, 256, (36, 36, 3), np.uint8)


for kind in (Short, Masked, MultiDiscrete, MultiBinary, Bounded, DictObs, Image):
    gymnasium.register(f"{kind.__name__}-v0", entry_point=kind)
