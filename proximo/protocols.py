"""What the rest of Proximo may assume about environments."""

from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

Array = Any  # numpy, torch or jax, as VecEnv.arrays says
Play = Literal["host", "pool", "inside"]  # how JAX plays an environment suite: see VecEnv.play


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
    play: Play  # "host": stepped from Python with numpy arrays. "pool": JAX's compiled rollout steps an outside engine
    #             through a handle, and is compiled again for every new pool. "inside": a pure function of JAX.
    players: tuple[str, ...]  # label of each row of one game, else ()
    metric_names: tuple[str, ...]  # the keys of Step.metrics
    statistics: Any  # normalize.Statistics where observations or rewards are normalised, else None

    @property
    def keeps_state(self) -> bool:
        """Whether state() and load() continue the environments exactly. May try it on copies at the first call."""
        ...

    @property
    def render_fps(self) -> float | None:
        """Frames per second at which render() shows the task at its own speed; None where it is not known."""
        ...

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


class Acted(NamedTuple):
    """One step of acting on (N,) rows."""

    action: Array  # (N, *action_shape)
    state: tuple[Array, ...]  # of the recurrent layer, after this step
    logprob: Array | None  # (N,), None where the agent evaluates the whole rollout at its end
    value: Array | None  # (N,), likewise


class Distribution(Protocol):
    """A distribution over actions. Its parameters have any leading axes, which are those of every result."""

    def sample(self, noise: Array) -> Array:
        """Return the action (..., *action_shape) that `noise`, drawn by Head.noise, decides."""
        ...

    def logprob(self, action: Array) -> Array:
        """Return log-probabilities or log-densities (...)."""
        ...

    def entropy(self) -> Array:
        """Return the entropy (...)."""
        ...

    def mode(self) -> Array:
        """Return the most likely action (..., *action_shape)."""
        ...

    def perturbed(self, noise: Array | None) -> Any:
        """Return the distribution that learning uses; `noise` was drawn by Head.learning_noise."""
        ...


class Head(Protocol):
    """The last layer of a policy: features and a mask (or None) give a Distribution."""

    action_shape: tuple[int, ...]
    action_dtype: Any  # a numpy dtype

    def __call__(self, features: Array, mask: Array | None) -> Any: ...

    def noise(self, generator: Any, *lead: int) -> Array:
        """Draw what Distribution.sample takes, with leading axes `lead`."""
        ...

    def learning_noise(self, generator: Any, *lead: int) -> Array | None:
        """Draw what Distribution.perturbed takes, or return None if learning needs no noise."""
        ...


class Agent(Protocol):
    """A policy and a value function behind one calling convention."""

    recurrent: bool  # has a state, and learns from whole sequences
    evaluates_later: bool  # computes log-probabilities and values in one pass after the rollout, by `evaluate`
    head: Any  # a Head

    def initial_state(self, num_envs: int, device: Any = "cpu") -> tuple[Array, ...]:
        """Return the state before the first step, (N, memory_size) each; () where there is none."""
        ...

    def __call__(self, obs: Array, mask: Array | None, first: Array, state: tuple[Array, ...]) -> Any:
        """Return (Distribution, value, state). Leading axes are (N,) or (B,), or (T, n) for a recurrent agent."""
        ...

    def act(self, obs: Array, mask: Array | None, first: Array, state: tuple[Array, ...], noise: Array) -> Acted:
        """Choose an action for each of (N,) rows."""
        ...

    def value(self, obs: Array, first: Array, state: tuple[Array, ...]) -> Array:
        """Return the value (N,) of observations, without advancing the state."""
        ...

    def evaluate(self, obs: Array, mask: Array | None, action: Array) -> tuple[Array, Array]:
        """Return logprob (T, N) and value (T + 1, N) of a rollout whose obs (T + 1, N, ...) ends with the closing one.
        Called only where `evaluates_later` is True."""
        ...
