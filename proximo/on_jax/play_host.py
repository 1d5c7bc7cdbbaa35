"""Environments that Python steps with numpy arrays: acting and learning are compiled, and playing is a loop."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proximo.envs.arrays.moments import Statistics
from proximo.envs.normalize import Normalizer, continue_statistics, unpack_statistics
from proximo.on_jax.distributed import Ranks, gather_metrics, merge_over_processes
from proximo.on_jax.learner import Learner
from proximo.on_jax.mesh import compile_learn, divide_rows, local_copy, place_for_learning
from proximo.on_jax.networks import on_cpu
from proximo.on_jax.parameters import Weights, make_numpy_bind
from proximo.on_jax.player import SeededEnvs
from proximo.on_jax.rollout import Collected
from proximo.on_jax.snapshot import pack_carry, unpack_carry
from proximo.on_jax.train_step import Keys, Metrics, TrainState, fold_key, make_step
from proximo.part_checks import check_acted, check_rows
from proximo.protocols import COUNTS, Acted, Episode, VecEnv
from proximo.types import Carry, Rollout, RolloutBuffer

NUMPY_ROWS = 64  # up to this many environments, acting in numpy is faster than calling a compiled function


EvaluateFn = Callable[[RolloutBuffer, Carry], tuple[Any, Any, Any]]  # (buffer, closing) -> logprob, value; V(closing)


class Policy(NamedTuple):
    """The functions of an agent with certain weights that collecting calls."""

    act: Callable[..., Acted]  # (obs, mask, first, state, noise)
    value: Callable[..., Array]  # (obs, first, state) -> (N,)
    evaluate: EvaluateFn
    evaluates_later: bool  # Agent.evaluates_later


class HostPlayer:
    """Player of environments that Python steps with numpy arrays.

    Attributes:
        policy: Function from weights to the Policy with these weights.
        learn: The compiled function that follows playing; see make_learn.
    """

    charts_latest = False

    def __init__(self, ranks: Ranks, envs: VecEnv, normalizer: Normalizer, learner: Learner,
                 seeded_envs: SeededEnvs) -> None:
        self.envs, self.normalizer, self.keeps_state = envs, normalizer, ranks.processes == 1 and envs.keeps_state
        self.agent, self._cfg, self._ranks, self._seeded_envs = learner.agent, learner.cfg, ranks, seeded_envs
        self.policy, self.learn = make_policy(ranks, learner), compile_learn(ranks, learner)
        self._noise, self._step = jax.jit(self._draw_noise), make_step(self._play, self.learn)

    def begin(self, iteration: int, statistics: Statistics | None) -> tuple[Any, Carry]:
        """See Player. The environments have their own seeds."""
        after, step = self.normalizer.reset(statistics, self.envs.reset())
        obs, mask, first = (None if x is None else np.array(x) for x in (step.obs, step.mask, step.first))
        mask_size = None if mask is None else mask.shape[-1]
        self._buffer = RolloutBuffer(self.envs, self.normalizer.spec.obs_dtype, self._cfg.num_steps, self.agent.head,
                                     mask_size)
        memory = self.agent.initial_state(self.envs.num_envs)
        return (), Carry(obs=obs, mask=mask, first=first, state=memory,
                         statistics=merge_over_processes(self._ranks, statistics, after))

    def place(self, state: TrainState) -> TrainState:
        return place_for_learning(self._ranks, state)

    def _draw_noise(self, keys: Keys, iteration: Array) -> Array:
        """Draw (T, N, ...) for the environments of all ranks of this process."""
        return jnp.concatenate([
            self.agent.head.noise(fold_key(keys.action, iteration, rank), self._cfg.num_steps, self._cfg.num_envs)
            for rank in self._ranks.local], axis=1)

    def _play(self, state: TrainState) -> Collected:
        """Play in this process's environments, then merge the statistics of all processes."""
        policy = self.policy(local_copy(self._ranks, state.adam.weights))
        noise = np.asarray(self._noise(state.keys, state.iteration + 1))
        played = collect_on_host(policy, self.envs, self.normalizer, state.carry, self._buffer, noise)
        merged = merge_over_processes(self._ranks, state.carry.statistics, played.carry.statistics)
        return played._replace(carry=played.carry._replace(statistics=merged))

    def iterate(self, state: TrainState) -> tuple[TrainState, Metrics]:
        state, metrics = self._step(state)
        return state, gather_metrics(self._ranks, metrics)

    def rebuild(self, state: TrainState, iteration: int) -> TrainState:
        self.envs.close()
        self.envs = self._seeded_envs(iteration)
        return state._replace(carry=self.begin(iteration, state.carry.statistics)[1])

    def statistics(self, state: TrainState) -> Statistics | None:
        return state.carry.statistics

    def pack(self, state: TrainState) -> dict[str, Any]:
        return {"carry": pack_carry(state.carry), "envs": self.envs.state()}

    def unpack(self, kept: dict[str, Any], state: TrainState, whole: bool) -> TrainState:
        statistics = unpack_statistics(kept["statistics"])
        if self.envs.arrays == "jax":  # with their dtypes
            statistics = jax.tree.map(lambda x, fresh: jnp.asarray(x, fresh.dtype), statistics, state.carry.statistics)
        if not whole:
            statistics = continue_statistics(statistics, state.carry.statistics)
            return state._replace(carry=state.carry._replace(statistics=statistics))
        self.envs.load(kept["envs"])
        carry = unpack_carry(kept["carry"], state.carry)
        obs, mask, first = (None if x is None else np.asarray(x) for x in (carry.obs, carry.mask, carry.first))
        return state._replace(carry=Carry(obs=obs, mask=mask, first=first, state=carry.state, statistics=statistics))


def make_policy(ranks: Ranks, learner: Learner) -> Callable[[Weights], Policy]:
    """Compile the functions of a Policy for any weights. Few rows of a small network are computed in numpy instead.

    With several devices in this process, each computes a part of the rows.
    """
    bind, agent, mesh = learner.bind, learner.agent, None if len(ranks.local) == 1 else ranks.mesh

    def compiled(f: Callable[..., Any], axis: int) -> Callable[..., Any]:
        return jax.jit(f if mesh is None else divide_rows(mesh, f, axis))

    act = compiled(lambda weights, *args: bind(weights).act(*args), 0)
    value = compiled(lambda weights, *args: bind(weights).value(*args), 0)
    evaluate = compiled(lambda weights, *args: bind(weights).evaluate(*args), 1)

    def with_weights(weights: Weights) -> Policy:
        later = make_evaluate_all(partial(evaluate, weights)) if agent.evaluates_later \
            else make_evaluate_last(partial(value, weights))
        return Policy(act=partial(act, weights), value=partial(value, weights), evaluate=later,
                      evaluates_later=agent.evaluates_later)

    few = mesh is None and agent.evaluates_later and learner.cfg.num_envs <= NUMPY_ROWS and on_cpu()
    in_numpy = make_numpy_bind(agent) if few else None
    if in_numpy is None:
        return with_weights
    return lambda weights: with_weights(weights)._replace(act=in_numpy(weights).act)


def make_evaluate_all(evaluate: Callable[..., tuple[Array, Array]]) -> EvaluateFn:
    """Make Policy.evaluate for an agent that computes log-probabilities and values in one pass after the rollout."""
    def evaluate_all(buffer: RolloutBuffer, closing: Carry) -> tuple[Any, Any, Any]:
        mask = None if closing.mask is None else buffer.arrays["mask"][:-1]
        logprob, value = map(np.asarray, evaluate(buffer.arrays["obs"], mask, buffer.arrays["action"]))
        return logprob, value[:-1], value[-1]

    return evaluate_all


def make_evaluate_last(value: Callable[..., Array]) -> EvaluateFn:
    """Make Policy.evaluate for an agent whose acting has returned log-probabilities and values already."""
    def evaluate_last(buffer: RolloutBuffer, closing: Carry) -> tuple[Any, Any, Any]:
        last = value(closing.obs, np.zeros_like(closing.first), closing.state)
        return buffer.arrays["logprob"], buffer.arrays["value"], np.asarray(last)

    return evaluate_last


def collect_on_host(policy: Policy, envs: VecEnv, normalizer: Normalizer, carry: Carry, buffer: RolloutBuffer,
                    noise: np.ndarray) -> Collected:
    """Play len(noise) steps from `carry`. `noise` (T, N, ...) decides the actions.

    V(final_obs) and V of the closing observation read the state of the recurrent layer after the step that they follow,
    and do not advance it. The rollout's arrays are those of the buffer.
    """
    arrays, rows, state, statistics = buffer.arrays, buffer.host_rows, carry.state, carry.statistics
    never, truncated_at = np.zeros(envs.num_envs, bool), []
    masks = rows.get("mask", [None] * (len(noise) + 1))
    rows["obs"][0][...], rows["first"][0][...] = carry.obs, carry.first
    if carry.mask is not None:
        masks[0][...] = carry.mask
    for t, step_noise in enumerate(noise):
        acted = policy.act(rows["obs"][t], masks[t], rows["first"][t], state, step_noise)
        state = acted.state
        check_acted(acted, policy.evaluates_later, rows["action"][t])
        rows["action"][t][...] = acted.action
        if acted.value is not None:
            rows["logprob"][t][...], rows["value"][t][...] = acted.logprob, acted.value
        statistics, step = normalizer.step(statistics, envs.step(buffer.env_actions[t]))
        buffer.put(t, step)
        if step.final_obs is not None and np.count_nonzero(step.truncated):  # any() takes five times as long
            rows["final_value"][t][...] = policy.value(np.asarray(step.final_obs), never, state)
            truncated_at.append(t)
    closing = Carry(obs=rows["obs"][-1].copy(), mask=None if masks[-1] is None else masks[-1].copy(),
                    first=rows["first"][-1].copy(), state=state, statistics=statistics)
    logprob, value, last = policy.evaluate(buffer, closing)
    check_rows(arrays["reward"].shape, "a rollout", logprob=logprob, value=value)
    check_rows(closing.first.shape, "a step", value=last)
    next_value = np.concatenate([value[1:], last[None]])
    if truncated_at:
        known = np.zeros((len(noise), 1), bool)
        known[truncated_at] = True
        next_value = np.where(arrays["truncated"] & known, arrays["final_value"], next_value)
    rollout = Rollout(
        obs=arrays["obs"][:-1], first=arrays["first"][:-1], mask=None if carry.mask is None else arrays["mask"][:-1],
        action=arrays["action"], logprob=logprob, value=value, next_value=next_value, reward=arrays["reward"],
        terminated=arrays["terminated"], done=arrays["terminated"] | arrays["truncated"], valid=arrays["valid"])
    return Collected(rollout=rollout, carry=closing, envs=(), charts=mean_metrics(buffer),
                     episode=Episode(*(arrays[name] for name in ("finished", "ret", "length"))))


def mean_metrics(buffer: RolloutBuffer) -> dict[str, Any]:
    """Return the mean of every metric over the rows that have it, NaN where none has; of a count, the last value."""
    rows = {name: x[-1] if name in COUNTS else x for name, x in buffer.metrics.items()}
    known = {name: x[~np.isnan(x)] for name, x in rows.items()}
    return {name: x.mean() if x.size else np.nan for name, x in known.items()}
