"""What an agent is made from, without environments."""

from typing import NamedTuple

import gymnasium
import numpy as np


class Spec(NamedTuple):
    """Stands for environments where only their spaces are read."""

    obs_shape: tuple[int, ...]
    obs_dtype: np.dtype
    action_space: gymnasium.Space
    observation_space: gymnasium.Space | None = None
