"""Playing T steps in N environments: who acts on what, and what truly followed each action."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from proximo.on_jax.networks import Weights
from proximo.protocols import Array, PureEnv, Step, VecEnv


class Carry(NamedTuple):
    """What acting goes on from: exactly an agent's arguments, in its order."""

    obs: Array  # (N, *obs_shape)
    mask: Array | None  # (N, A) bool
    first: Array  # (N,) bool
    state: tuple[Array, ...]  # the memory's, (N, memory_size) each; () without memory


class Rollout(NamedTuple):
    """One batch, time first. From collect_host: the storage's own arrays, to be read before the next one."""

    obs: Array  # (T, N, *obs_shape)
    first: Array  # (T, N) bool
    mask: Array | None  # (T, N, A) bool
    action: Array  # (T, N, *action_shape)  as sampled, before clipping to bounds
    logprob: Array  # (T, N)   of the action, under the policy that took it
    value: Array  # (T, N)     V(obs[t])
    next_value: Array  # (T, N)  V of what really followed action[t]: V(final_obs) where truncated
    reward: Array  # (T, N)
    terminated: Array  # (T, N) bool  no bootstrap
    done: Array  # (T, N) bool  terminated or truncated: cuts the recursion of gae
    valid: Array  # (T, N) bool  False for filler rows: no part of loss, statistics or step counts


class Episodes(NamedTuple):
    """What ended in one rollout, as arrays of fixed shape, and how many decisions were valid."""

    finished: Array  # (T, N) bool
    ret: Array  # (T, N) raw return, read only where finished
    length: Array  # (T, N) decisions, read only where finished
    valid: Array  # (T,) int32
    metrics: dict[str, Array]  # () means over all rows, NaN where there is nothing


class Played(NamedTuple):
    """One step of the compiled rollout."""

    carry: Carry  # what was acted on; without the memory
    action: Array
    logprob: Array | None
    value: Array | None
    final: Array | None  # V(final_obs), or final_obs itself where the agent evaluates later; None: next-step suite
    step: Step  # without observations


def collect(agent: Any, envs: PureEnv, env_state: Any, carry: Carry,
            noise: Array) -> tuple[Rollout, Any, Carry, Episodes]:
    """Play len(noise) steps from `carry` inside a compiled function; `noise` (T, N, ...) decides the actions."""
    never = jnp.zeros_like(carry.first)

    def play(state: tuple[Any, Carry], noise: Array) -> tuple[tuple[Any, Carry], Played]:
        env_state, carry = state
        acted = agent.act(*carry, noise)
        env_state, step = envs.step(env_state, acted.action.reshape(envs.num_envs, *envs.action_space.shape))
        final = step.final_obs
        if final is not None and not agent.evaluates_later:
            final = lax.cond(step.truncated.any(), lambda: agent.value(step.final_obs, never, acted.state),
                             lambda: jnp.zeros_like(acted.value))
        played = Played(carry._replace(state=()), acted.action, acted.logprob, acted.value, final,
                        step._replace(obs=None, first=None, mask=None, final_obs=None))
        return (env_state, Carry(step.obs, step.mask, step.first, acted.state)), played

    (env_state, carry), played = lax.scan(play, (env_state, carry), noise, unroll=2)
    return _rollout(agent, carry, played), env_state, carry, _episodes(played.step)


def _rollout(agent: Any, closing: Carry, played: Played) -> Rollout:
    """With logprob and value of every row, and what the closing observation is worth."""
    acted, step, never = played.carry, played.step, jnp.zeros_like(closing.first)
    logprob, value, final = played.logprob, played.value, played.final
    if agent.evaluates_later:
        every = jnp.concatenate([acted.obs, closing.obs[None]])
        logprob, value = agent.evaluate(every, acted.mask, played.action)
        value, last = value[:-1], value[-1]
        if final is not None:
            final = lax.cond(step.truncated.any(), lambda: agent.value(final, never, ()), lambda: jnp.zeros_like(value))
    else:
        last = agent.value(closing.obs, never, closing.state)
    next_value = jnp.concatenate([value[1:], last[None]])
    if final is not None:
        next_value = jnp.where(step.truncated, final, next_value)
    return Rollout(acted.obs, acted.first, acted.mask, played.action, logprob, value, next_value, step.reward,
                   step.terminated, step.terminated | step.truncated, step.valid)


def _episodes(step: Step) -> Episodes:
    """`step` has a leading axis of time."""
    metrics = {name: jnp.nanmean(x) for name, x in step.metrics.items()}
    return Episodes(*step.episode, step.valid.sum(1, dtype=jnp.int32), metrics)


class Policy(NamedTuple):
    """An agent's methods as compiled functions of its weights."""

    acting: Callable  # weights -> act(obs, mask, first, state, noise) -> Acted
    value: Callable  # (weights, obs, first, state) -> (N,)
    evaluate: Callable | None  # (weights, obs, mask, action) -> logprob (T, N), value (T + 1, N); None: act has them


def compiled_policy(bound: Callable[[Weights], Any], evaluates_later: bool,
                    over: Callable[[Callable, int], Callable] = lambda f, axis: f,
                    on_host: Callable[[Weights], Any] | None = None) -> Policy:
    """`bound` gives the agent with given weights; `over(f, axis)` shares the rows of that axis out to several devices;
    `on_host` gives the agent that acts in numpy, where that is faster."""
    act = jax.jit(over(lambda weights, *args: bound(weights).act(*args), 0))
    return Policy((lambda weights: partial(act, weights)) if on_host is None else lambda weights: on_host(weights).act,
                  jax.jit(over(lambda weights, *args: bound(weights).value(*args), 0)),
                  jax.jit(over(lambda weights, *args: bound(weights).evaluate(*args), 1)) if evaluates_later else None)


class Storage:
    """Preallocated numpy arrays of one rollout in environments outside the compiled function."""

    def __init__(self, envs: VecEnv, num_steps: int, head: Any, mask_size: int | None):
        lead = (num_steps, envs.num_envs)
        self.arrays = {
            "obs": np.zeros((num_steps + 1, envs.num_envs, *envs.obs_shape), envs.obs_dtype),
            "first": np.zeros((num_steps + 1, envs.num_envs), bool),
            "action": np.zeros((*lead, *head.action_shape), head.action_dtype),
            **{name: np.zeros(lead, np.float32) for name in ("logprob", "value", "final_value", "reward", "ret")},
            **{name: np.zeros(lead, bool) for name in ("terminated", "truncated", "valid", "finished")},
            "length": np.zeros(lead, np.int32)}
        if mask_size is not None:
            self.arrays["mask"] = np.zeros((num_steps + 1, envs.num_envs, mask_size), bool)
        self.metrics = {name: np.zeros(lead, np.float32) for name in envs.metric_names}
        self.rows = {name: list(x) for name, x in (self.arrays | self.metrics).items()}
        self.actions_to_step = [row.reshape(envs.num_envs, *envs.action_space.shape) for row in self.rows["action"]]

    def put(self, t: int, step: Step) -> None:
        """What came of the action at t: obs, first and mask belong to t + 1."""
        rows = self.rows
        rows["obs"][t + 1][...] = step.obs
        rows["first"][t + 1][...] = step.first
        if step.mask is not None:
            rows["mask"][t + 1][...] = step.mask
        rows["reward"][t][...] = step.reward
        rows["terminated"][t][...] = step.terminated
        rows["truncated"][t][...] = step.truncated
        rows["valid"][t][...] = step.valid
        rows["finished"][t][...] = step.episode.finished
        rows["ret"][t][...] = step.episode.ret
        rows["length"][t][...] = step.episode.length
        for name, value in step.metrics.items():
            rows[name][t][...] = value


def collect_host(policy: Policy, weights: Weights, envs: VecEnv, carry: Carry, storage: Storage,
                 noise: Array) -> tuple[Rollout, Carry, Episodes]:
    """The same in environments outside the compiled function (numpy suites), which it calls at every step."""
    rows, noise, act = storage.rows, np.asarray(noise), policy.acting(weights)
    state, never, final_rows = carry.state, np.zeros(envs.num_envs, bool), []
    for name in ("obs", "first", *(("mask",) if carry.mask is not None else ())):
        rows[name][0][...] = getattr(carry, name)
    masks = rows.get("mask", [None] * (len(noise) + 1))
    for t, step_noise in enumerate(noise):
        acted = act(rows["obs"][t], masks[t], rows["first"][t], state, step_noise)
        state = acted.state
        rows["action"][t][...] = acted.action
        if acted.value is not None:
            rows["logprob"][t][...], rows["value"][t][...] = acted.logprob, acted.value
        step = envs.step(storage.actions_to_step[t])
        storage.put(t, step)
        if step.final_obs is not None and step.truncated.any():
            rows["final_value"][t][...] = policy.value(weights, np.asarray(step.final_obs), never, state)
            final_rows.append(t)
    closing = Carry(rows["obs"][-1].copy(), None if masks[-1] is None else masks[-1].copy(), rows["first"][-1].copy(),
                    state)
    return _rollout_host(policy, weights, storage, closing, final_rows), closing, _episodes_host(storage)


def _rollout_host(policy: Policy, weights: Weights, storage: Storage, closing: Carry, final_rows: list[int]) -> Rollout:
    arrays, never = storage.arrays, np.zeros_like(closing.first)
    mask = arrays["mask"][:-1] if "mask" in arrays else None
    if policy.evaluate is None:
        logprob, value = arrays["logprob"], arrays["value"]
        last = policy.value(weights, closing.obs, never, closing.state)
    else:
        logprob, value = (np.asarray(x) for x in policy.evaluate(weights, arrays["obs"], mask, arrays["action"]))
        value, last = value[:-1], value[-1]
    next_value = np.concatenate([value[1:], np.asarray(last)[None]])
    if final_rows:
        known = np.zeros((len(value), 1), bool)
        known[final_rows] = True
        next_value = np.where(arrays["truncated"] & known, arrays["final_value"], next_value)
    return Rollout(arrays["obs"][:-1], arrays["first"][:-1], mask, arrays["action"], logprob, value, next_value,
                   arrays["reward"], arrays["terminated"], arrays["terminated"] | arrays["truncated"], arrays["valid"])


def _episodes_host(storage: Storage) -> Episodes:
    arrays = storage.arrays
    metrics = {name: x[~np.isnan(x)] for name, x in storage.metrics.items()}
    return Episodes(arrays["finished"], arrays["ret"], arrays["length"], arrays["valid"].sum(1),
                    {name: x.mean() if x.size else np.nan for name, x in metrics.items()})
