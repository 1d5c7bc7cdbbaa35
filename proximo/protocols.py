"""What the parts of Proximo may assume about each other: environments, distributions, heads and agents."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol
from typing import Any as Array  # of numpy, torch or jax; for an alias, pyright takes `a | b` for a union of types

import numpy as np

if TYPE_CHECKING:
    from proximo.models.model import Model
    from proximo.types import LossInputs

__all__ = ["AGENT_PARTS", "COUNTS", "Acted", "Agent", "Array", "Distribution", "Episode", "EvaluatingAgent",
           "FrameStack", "GroupedVecEnv", "Head", "LossFn", "MakeAgent", "MakeEnvs", "MakeModel",
           "Play", "PureEnv", "SetUp", "Spec", "Step", "VecEnv"]
Play = Literal["host", "pool", "inside"]  # how JAX plays environments; see VecEnv.play


class Spec(NamedTuple):
    """What a network needs to know of its environments."""

    obs_shape: tuple[int, ...]
    obs_dtype: np.dtype[Any]  # float32 where observations are normalised
    action_space: Any  # the gymnasium space of one environment, with its true bounds
    observation_space: Any = None  # that of one environment; None: an observation is a row of `obs` already
    masked: bool = False  # whether training had action masks; known after the first reset, not in make_agent


class FrameStack(NamedTuple):
    """An observation that is a stack of frames along its first axis, the oldest one first; the rest never changes.

    After a step within an episode, it has the frames that it had before, without the oldest one, and a new frame.
    """

    length: int  # frames
    channels: int  # of each frame


class Episode(NamedTuple):
    """The episodes that ended at a step: whole games from raw rewards. The loss of a life does not end one."""

    finished: Array  # (N,) bool
    ret: Array  # (N,) float32, sum of raw rewards; defined only where finished
    length: Array  # (N,) int32, number of steps; defined only where finished


class Step(NamedTuple):
    """What environments return for one step. N counts environments (in self-play, players of all games)."""

    obs: Array  # (N, *obs_shape)  what the policy acts on next
    first: Array  # (N,) bool      obs begins an episode (after reset() True, except for players who join later)
    mask: Array | None  # (N, A) bool  actions allowed at obs; A = sum of nvec for MultiDiscrete. None: no masks
    reward: Array  # (N,) float32   what the learner sees (clipped, scaled)
    terminated: Array  # (N,) bool  the task ended: the value of what follows is 0
    truncated: Array  # (N,) bool   cut by a time limit: what follows is worth V(final_obs); never True with terminated
    final_obs: Array | None  # (N, *obs_shape)  what the action led to, where the episode ended. None: obs is that
    valid: Array  # (N,) bool  False in filler rows, whose action was ignored: there is nothing to learn
    episode: Episode
    metrics: dict[str, Array]  # further values to log as charts/<name>, (N,) each, NaN where there is none; see COUNTS


COUNTS = ("env_restarts",)  # metrics that count: the last value is logged, added up over processes. Others are averaged


class VecEnv(Protocol):
    """N environments behind one interface. `make_SUITE(cfg, seeds)` makes them, one environment (or player) per seed.

    A same-step suite resets an environment in the step in which its episode ends: `obs` begins the next episode
    (`first`), and `final_obs` is the observation after the action. A next-step suite resets it one step later: `obs` is
    the last observation of the episode (`first` False, `final_obs` None), and the next row is a filler: `valid` False,
    reward 0, no end, `first` True, and `obs` begins the next episode.

    The arrays of a Step may be read until the next call of step().
    """

    num_envs: int
    obs_shape: tuple[int, ...]
    obs_dtype: np.dtype
    action_space: Any  # the gymnasium space of one environment, with its true bounds
    observation_space: Any  # the gymnasium space of one environment, None if its observations are rows already
    arrays: str  # "numpy", "torch" or "jax": what a Step holds and what step() takes
    frames: FrameStack | None  # of what frames an observation is a stack (numpy arrays only), None: of none
    play: Play  # how JAX plays them. "host": stepped from Python with numpy arrays. "pool": the compiled rollout steps
    #             an outside engine through a handle, and is compiled again for every new pool. "inside": pure functions
    players: tuple[str, ...]  # labels of the rows of one game of several agents, otherwise ()
    metric_names: tuple[str, ...]  # the keys of Step.metrics; not those that the log has itself, such as SPS

    @property
    def keeps_state(self) -> bool:
        """Whether state() and load() continue the environments exactly. The first call may test it on copies."""

    @property
    def render_fps(self) -> float | None:
        """Frames per second at which render() shows the task at its own speed; None if it is not known."""

    def reset(self) -> Step:
        """Begin an episode in every environment. `valid` is True, rewards are 0; see Step.first."""

    def step(self, action: Array, /) -> Step:
        """Step every environment.

        Args:
            action: (N, *action_shape) as the policy sampled it. The suite clips it to the bounds, and adds `start` of a
                Discrete space.

        Raises:
            EnvError: An environment failed. The message names the environment, the step and the cause.
        """

    def state(self) -> dict[str, Any] | None:
        """Return everything that continues the environments exactly, or None if it cannot be saved.

        Returns:
            Nested dicts with string keys. Leaves are numpy arrays, numbers, strings, booleans, None or lists of these.
            They are copies: later steps do not change them.
        """

    def load(self, state: dict[str, Any], /) -> None:
        """Continue from what state() returned for environments of the same kind and number."""

    def render(self) -> np.ndarray | None:
        """Return a picture (H, W, 3) uint8 of the first environment (self-play: of the shared screen), or None."""

    def close(self) -> None:
        """End all processes and engines within seconds, also after an error."""


MakeEnvs = Callable[[Any, list[int]], VecEnv]  # (configuration, one seed per environment)
MakeAgent = Callable[[Spec, Any], Any]  # (what a network needs to know, configuration) -> an Agent
LossFn = Callable[["LossInputs", Any], tuple[Any, Mapping[str, Any]]]  # (inputs, configuration) -> loss, statistics
SetUp = Callable[[Any, MakeEnvs, MakeAgent, LossFn, dict[str, Any] | None], Any]  # see train() of the framework
MakeModel = Callable[[], "Model"]


class GroupedVecEnv(VecEnv, Protocol):
    """A VecEnv whose rows are in groups of equal size, one after the other, of which each is stepped on its own.

    Every group gets its actions, then its Step is received, in turns. reset(), state(), load() and step() are for all
    groups, and are called only when every group has been received.
    """

    groups: int

    def send(self, group: int, action: Array, /) -> None:
        """Begin a step of one group, and return at once. Meanwhile the others may be sent and received."""

    def receive(self, group: int, /) -> Step:
        """Wait for the end of the step that send() began. N counts the environments of the group."""


class PureEnv(Protocol):
    """N environments as pure functions of JAX. A Step holds JAX arrays."""

    num_envs: int
    obs_shape: tuple[int, ...]
    obs_dtype: np.dtype
    action_space: Any
    observation_space: Any
    players: tuple[str, ...]
    metric_names: tuple[str, ...]

    def reset(self, key: Array, /) -> tuple[Any, Step]:
        """Return the state and the Step with which every environment begins an episode."""

    def step(self, state: Any, action: Array, /) -> tuple[Any, Step]:
        """Return the next state and its Step; see VecEnv.step."""


class Acted(NamedTuple):
    """One step of acting on (N,) rows."""

    action: Array  # (N, *action_shape)
    state: tuple[Array, ...]  # of the recurrent layer, after this step
    logprob: Array | None  # (N,), None where the agent evaluates the whole rollout at its end
    value: Array | None  # (N,), None where the agent evaluates the whole rollout at its end


class Distribution(Protocol):
    """A distribution over actions. Its parameters have any leading axes, which are those of every result."""

    def sample(self, noise: Array, /) -> Array:
        """Return the action (..., *action_shape) that `noise`, drawn by Head.noise, decides."""

    def logprob(self, action: Array, /) -> Array:
        """Return log-probabilities or log-densities (...)."""

    def entropy(self) -> Array:
        """Return the entropy (...)."""

    def mode(self) -> Array:
        """Return the action without noise (..., *action_shape): the most likely one, of `squashed` the median."""


class Head(Protocol):
    """The last layer of a policy: features and a mask (or None) give a Distribution."""

    action_shape: tuple[int, ...]
    action_dtype: Any  # a numpy dtype

    def __call__(self, features: Array, mask: Array | None, /) -> Any: ...

    def noise(self, generator: Any, /, *lead: int) -> Array:
        """Draw what Distribution.sample takes, with leading axes `lead`."""

    def learning_noise(self, generator: Any, /, *lead: int) -> Array | None:
        """Draw what `perturbed` takes, or return None if learning needs no noise."""

    def perturbed(self, dist: Any, noise: Any, /) -> Any:
        """Return the distribution that learning uses in place of `dist`; `noise` was drawn by learning_noise."""


AGENT_PARTS = ("recurrent", "evaluates_later", "head", "initial_state", "act", "value")  # what every agent must have


class Agent(Protocol):
    """A policy and a value function behind one calling convention."""

    recurrent: bool  # has a state, and learns from whole sequences
    evaluates_later: bool  # it is an EvaluatingAgent
    head: Any  # a Head

    def initial_state(self, num_envs: int, /, *device: Any, **options: Any) -> tuple[Array, ...]:
        """Return the state before the first step, (N, memory_size) each; () where there is none.

        The argument `device` is that of torch. An agent of JAX needs none.
        """

    def __call__(self, obs: Array, mask: Array | None, first: Array, state: tuple[Array, ...], /) -> Any:
        """Return (Distribution, value, state). Leading axes are (N,) or (B,), or (T, n) for a recurrent agent."""

    def act(self, obs: Array, mask: Array | None, first: Array, state: tuple[Array, ...], noise: Array, /) -> Acted:
        """Choose an action for each of (N,) rows."""

    def value(self, obs: Array, first: Array, state: tuple[Array, ...], /) -> Array:
        """Return the value (N,) of observations, without advancing the state."""


class EvaluatingAgent(Agent, Protocol):
    """An Agent that computes log-probabilities and values in one pass after the rollout: `evaluates_later` is True."""

    def evaluate(self, obs: Array, mask: Array | None, action: Array, /) -> tuple[Array, Array]:
        """Return logprob (T, N) and value (T + 1, N) of a rollout, whose obs (T + 1, N, ...) ends with the closing one.
        """
