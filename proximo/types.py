"""What the loop of either framework hands to whoever watches it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from proximo.protocols import VecEnv


class Finished(NamedTuple):
    """The episodes that ended in one iteration, over all ranks, in order of time; numpy arrays of equal length."""

    step: np.ndarray  # (k,) decisions of the whole run when it ended
    row: np.ndarray  # (k,) environment, numbered over all ranks
    ret: np.ndarray  # (k,) raw return
    length: np.ndarray  # (k,) decisions


class Iteration(NamedTuple):
    """What one iteration leaves to whoever watches; `snapshot` and `weights` are computed when called."""

    iteration: int  # 1..num_iterations
    steps: int  # valid decisions so far, over all ranks
    stats: dict[str, float]  # charts/... and losses/...
    finished: Finished  # the episodes that ended in it
    snapshot: Callable[[], dict]  # all that train(state=...) continues from
    weights: Callable[[], dict[str, np.ndarray]]  # the agent's parameters by name
    envs: VecEnv
    rank: int
    keeps_state: bool  # False: a snapshot is exact only where (iteration % checkpoint_every) == 0
