"""CarRacing-v3 of EnvPool as a Gymnasium environment, so that it can be wrapped: nine times as fast as Gymnasium's own.

    proximo train --env-file benchmarks/pool_car_racing.py --env-id PoolCarRacing-v3 --preset CarRacing-v3 --threads 1 \
        --total-timesteps 1000000 --seed 1
"""

from typing import Any

import envpool
import gymnasium as gym
import numpy as np


class PoolCarRacing(gym.Env[np.ndarray, np.ndarray]):
    """A pool of one environment."""

    def __init__(self) -> None:
        self._pool: Any = None
        spec = envpool.make_spec("CarRacing-v3")
        self.observation_space = spec.gymnasium_observation_space
        self.action_space = gym.spaces.Box(np.float32([-1, 0, 0]), np.float32([1, 1, 1]))

    def reset(self, *, seed: int | None = None,
              options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """See gymnasium.Env.reset."""
        super().reset(seed=seed)
        if seed is not None or self._pool is None:
            self._pool = envpool.make_gymnasium("CarRacing-v3", num_envs=1, num_threads=1,
                                                seed=int(self.np_random.integers(2**31)))
        obs, _ = self._pool.reset()
        return obs[0], {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """See gymnasium.Env.step."""
        obs, reward, terminated, truncated, _ = self._pool.step(np.asarray(action, np.float32)[None])
        return obs[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}


gym.register("PoolCarRacing-v3", PoolCarRacing)
