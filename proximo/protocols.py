"""What the rest of Proximo may assume about environments."""

from typing import Any, NamedTuple, Protocol

import numpy as np

Array = Any  # numpy, torch or jax, as VecEnv.arrays says


class Episode(NamedTuple):
    """What ended at this step, from raw rewards: whole games (a lost life is no end), length in decisions."""

    finished: Array  # (N,) bool
    ret: Array  # (N,) float32, read only where finished
    length: Array  # (N,) int32, read only where finished


class Step(NamedTuple):
    """What every suite returns. Time is one step; N counts environments (times players)."""

    obs: Array  # (N, *obs_shape)  what the policy acts on next, in its own dtype
    first: Array  # (N,) bool      obs begins an episode (after reset(): all True)
    mask: Array | None  # (N, A) bool  actions allowed at obs (A = sum of nvec for MultiDiscrete); None: no masks here
    reward: Array  # (N,) float32   what the learner sees (clipped, scaled)
    terminated: Array  # (N,) bool  the task ended: nothing follows, its value is 0
    truncated: Array  # (N,) bool   cut by a time limit: what follows is worth V(final_obs); never True with terminated
    final_obs: Array | None  # (N, *obs_shape)  what truly followed the action, in rows that ended; None: always obs
    valid: Array  # (N,) bool  False where a next-step suite used this row to reset: action ignored, nothing to learn
    episode: Episode
    metrics: dict[str, Array]  # more to log, (N,) each, NaN where there is nothing: charts/<name>


class VecEnv(Protocol):
    """N environments behind one contract. Made by `make_SUITE(cfg, seeds)`: one environment (or player row) a seed.

    After an end in a same-step suite, `obs` begins the next episode (`first`), and `final_obs` holds what followed
    the action. A next-step suite returns the last observation as `obs` (`first` False, `final_obs` None), and its next
    row is a filler: `valid` False, reward 0, no end, `obs` begins the next episode and `first` is True.
    Arrays are fresh, or safe to read until the next call of step.
    """

    num_envs: int
    obs_shape: tuple[int, ...]
    obs_dtype: np.dtype
    action_space: Any  # the single environment's gymnasium space, with its true bounds
    arrays: str  # "numpy", "torch" or "jax": what Step holds and what step() takes
    players: tuple[str, ...]  # label of each row of one game, else ()
    metric_names: tuple[str, ...]  # the keys of Step.metrics
    statistics: Any  # normalize.Statistics where observations or rewards are normalised, else None

    def reset(self) -> Step: ...

    def step(self, action: Array) -> Step:
        """`action` (N, *action_shape) as the policy sampled it: bounds and `start` are the suite's business.
        Raises EnvError naming the environment, the step and the cause."""
        ...

    def state(self) -> dict | None:
        """All that continues the environments exactly, as nested dicts with string keys whose leaves are numpy arrays,
        numbers, strings, booleans, None or lists of such; None where it cannot be kept (then runs rebuild)."""
        ...

    def load(self, state: dict) -> None: ...

    def render(self) -> np.ndarray | None:
        """(H, W, 3) uint8 of the first environment (self-play: the shared screen), or None."""
        ...

    def close(self) -> None:
        """Ends every process and engine within seconds, also after a fault."""
        ...


class PureEnv(Protocol):
    """The same inside a compiled function; a Step of jax arrays without `metrics` that are not arrays."""

    num_envs: int
    obs_shape: tuple[int, ...]
    obs_dtype: np.dtype
    action_space: Any
    players: tuple[str, ...]
    metric_names: tuple[str, ...]

    def reset(self, key: Array) -> tuple[Any, Step]: ...

    def step(self, state: Any, action: Array) -> tuple[Any, Step]: ...
