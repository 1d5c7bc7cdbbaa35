"""Classic control without velocities, so that an agent needs a recurrent layer. Importing this registers the ids.

    proximo train --env-id proximo.envs.no_velocity:CartPoleNoVel-v1

rl-zoo3 has the same environments: velocities in the observation are 0.
"""

from typing import Any

import gymnasium as gym
import numpy as np

VELOCITIES = {"CartPole-v1": (1, 3), "Pendulum-v1": (2,), "MountainCarContinuous-v0": (1,)}
"""Index of the velocities in the observation of each environment."""


class NoVelocity(gym.ObservationWrapper[Any, Any, Any]):
    """Sets numbers of the observation to 0.

    Args:
        env: The environment.
        velocities: Their indices.
    """

    def __init__(self, env: gym.Env[Any, Any], velocities: tuple[int, ...]) -> None:
        super().__init__(env)
        self._kept = np.ones(env.observation_space.shape or (), np.float32)
        self._kept[list(velocities)] = 0.0

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Return the observation without its velocities."""
        return observation * self._kept


def make_without_velocity(env_id: str, **kwargs: Any) -> NoVelocity:
    """Make an environment of VELOCITIES. The time limit is that of its new id."""
    return NoVelocity(gym.make(env_id, **kwargs).unwrapped, VELOCITIES[env_id])


for _env_id in VELOCITIES:
    _name, _version = _env_id.rsplit("-", 1)
    gym.register(f"{_name}NoVel-{_version}", entry_point=f"{__name__}:make_without_velocity",
                 max_episode_steps=gym.spec(_env_id).max_episode_steps, kwargs={"env_id": _env_id})
