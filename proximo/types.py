"""The records that both frameworks pass from one step of the algorithm to the next.

Axes: T steps, N environments (times players), B rows of a minibatch, n environments of one, E epochs, M minibatches.
Arrays are torch tensors, JAX arrays or numpy arrays, as the framework and the environments require.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from proximo.envs.arrays.moments import Statistics
from proximo.protocols import Array, MakeModel, Spec, Step, VecEnv


class Carry(NamedTuple):
    """What playing continues from: the arguments of an agent, in its order, and the statistics of normalisation."""

    obs: Array  # (N, *obs_shape)
    mask: Array | None  # (N, A) bool, the allowed actions
    first: Array  # (N,) bool, obs begins an episode
    state: tuple[Array, ...]  # of the recurrent layer, (N, memory_size) each
    statistics: Statistics | None  # None: nothing is normalised


class Rollout(NamedTuple):
    """One batch of experience. Its arrays may belong to the rollout buffer: read them before the next rollout."""

    obs: Array  # (T, N, *obs_shape)
    first: Array  # (T, N) bool
    mask: Array | None  # (T, N, A) bool
    action: Array  # (T, N, *action_shape)  as sampled, before clipping to bounds
    logprob: Array  # (T, N)   of the action, under the policy that took it
    value: Array  # (T, N)     V(obs[t])
    next_value: Array  # (T, N)  V of what followed action[t]: V(final_obs) where truncated; no meaning where terminated
    reward: Array  # (T, N)
    terminated: Array  # (T, N) bool  no bootstrap
    done: Array  # (T, N) bool  terminated or truncated: cuts the recursion of GAE
    valid: Array  # (T, N) bool  False for filler rows, which take no part in loss, statistics or step counts


class RolloutBuffer:
    """Preallocated arrays of a rollout, one row per step: put() writes `host_rows`, environments read `env_actions`.

    Args:
        envs: Have the shapes of observations and actions, and the names of metrics.
        obs_dtype: Dtype of observations as the agent reads them.
        num_steps: T.
        head: Has the shape and dtype of actions.
        mask_size: A, the number of actions that a mask covers; None: no masks.
        zeros: Makes an array of zeros from its shape and dtype.
        obs_rows: Number of rows of observations; None: T + 1.
    """

    def __init__(self, envs: VecEnv, obs_dtype: np.dtype[Any], num_steps: int, head: Any, mask_size: int | None,
                 zeros: Callable[..., Array] = np.zeros, obs_rows: int | None = None) -> None:
        T, N = num_steps, envs.num_envs
        self.arrays: dict[str, Array] = {
            "obs": zeros((obs_rows or T + 1, N, *envs.obs_shape), obs_dtype), "first": zeros((T + 1, N), np.bool_),
            "action": zeros((T, N, *head.action_shape), head.action_dtype), "length": zeros((T, N), np.int32)}
        self.arrays |= {key: zeros((T, N), np.float32) for key in ("logprob", "value", "final_value", "reward", "ret")}
        self.arrays |= {key: zeros((T, N), np.bool_) for key in ("terminated", "truncated", "valid", "finished")}
        if mask_size is not None:
            self.arrays["mask"] = zeros((T + 1, N, mask_size), np.bool_)
        self.metrics = {name: zeros((T, N), np.float32) for name in envs.metric_names}
        self.host_rows = {name: list(x) for name, x in self.arrays.items()}
        self.metric_rows = {name: list(x) for name, x in self.metrics.items()}
        shape = envs.action_space.shape or head.action_shape  # Dict and Tuple spaces have none: an action is a row
        self.env_actions = [row.reshape(envs.num_envs, *shape) for row in self.host_rows["action"]]

    def put(self, t: int, step: Step) -> None:
        """Write what followed the action at t. `obs`, `first` and `mask` belong to t + 1."""
        rows = self.host_rows
        rows["obs"][t + 1][...], rows["first"][t + 1][...] = step.obs, step.first
        if step.mask is not None:
            rows["mask"][t + 1][...] = step.mask
        rows["reward"][t][...], rows["valid"][t][...] = step.reward, step.valid
        rows["terminated"][t][...], rows["truncated"][t][...] = step.terminated, step.truncated
        rows["finished"][t][...], rows["ret"][t][...] = step.episode.finished, step.episode.ret
        rows["length"][t][...] = step.episode.length
        for name, value in step.metrics.items():
            self.metric_rows[name][t][...] = value


class Batch(NamedTuple):
    """The rollout as the learner reads it: rows (T * N, ...), or (T, N, ...) for a recurrent agent."""

    obs: Array
    mask: Array | None
    first: Array | None  # None without a recurrent layer
    state: tuple[Array, ...]  # of the recurrent layer at t = 0, (N, memory_size) each
    action: Array
    logprob: Array
    value: Array
    ret: Array
    valid: Array


class Minibatches(NamedTuple):
    """What distinguishes the minibatches of one update, with leading axes (E, M); of one of them, without those."""

    index: Array  # (E, M, B) integers: indices of rows, or of environments for a recurrent agent
    advantage: Array  # (E, M, B), or (E, M, T, n) for a recurrent agent: normalised as the configuration says
    count: Array  # (E, M) float: number of valid rows over all ranks; nothing is learned where it is 0
    noise: Array | None  # (E, M, B, k), or (E, M, T, n, k) for a recurrent agent; None for every head but RPO's


class Coefficients(NamedTuple):
    """Coefficients of the loss in one iteration, after annealing, () each."""

    clip_coef: Array
    ent_coef: Array


class LossInputs(NamedTuple):
    """The rows of one minibatch, as a loss function reads them: (B,), or (T, n) for a recurrent agent."""

    logprob: Array  # under the current policy
    old_logprob: Array  # under the policy that took the action
    value: Array  # of the current network; norm_value normalises it as well as old_value and ret
    old_value: Array  # when the rollout was collected
    advantage: Array  # normalised as the configuration says
    ret: Array  # advantage (not normalised) plus old_value
    entropy: Array
    valid: Array  # bool; every mean is over valid rows
    count: Array  # (): number of valid rows of the minibatch over all ranks, at least 1
    clip_coef: Array  # (): epsilon of this iteration
    ent_coef: Array  # (): weight of the entropy bonus in this iteration
    agent: Any = None  # the network with its current weights, an Agent
    rows: Batch = None  # type: ignore[assignment]  # these rows: observations, masks, actions
    dist: Any = None  # Distribution over actions that the network gives for them


class FinishedEpisodes(NamedTuple):
    """Episodes that ended in one iteration, over all ranks, in order of time."""

    step: np.ndarray  # (k,) environment steps of the whole run when the episode ended
    row: np.ndarray  # (k,) environment, numbered over all ranks
    ret: np.ndarray  # (k,) undiscounted return of raw rewards
    length: np.ndarray  # (k,) environment steps of the episode


class Iteration(NamedTuple):
    """The result of one iteration. Call `snapshot`, `weights` and `call_envs` before the next one begins."""

    iteration: int  # 1..num_iterations
    steps: int  # environment steps so far (valid rows), over all ranks
    stats: dict[str, float]  # charts/... and losses/...
    finished: FinishedEpisodes
    snapshot: Callable[[], dict[str, Any]]  # everything that train(state=...) continues from
    weights: Callable[[], dict[str, np.ndarray]]  # the agent's parameters by name
    call_envs: Callable[..., list[Any]]  # (name, *arguments): calls a method of every environment of this process
    spec: Spec  # of the environments
    players: tuple[str, ...]  # labels of the rows of one game of several agents, otherwise ()
    statistics: Statistics | None  # numpy, equal on all ranks but for `running`; None: nothing is normalised
    keeps_state: bool  # False: a snapshot is exact only where iteration % checkpoint_every == 0
    model: MakeModel = None  # type: ignore[assignment]  # the agent as it acts; in callbacks and in proximo.iterations
