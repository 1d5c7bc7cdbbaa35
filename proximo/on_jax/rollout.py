"""Collecting T steps in N environments inside a compiled function: each observation, its action and what followed."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from proximo.envs.normalize import Normalizer
from proximo.on_jax.checks import act_of, value_of
from proximo.part_checks import check_rows
from proximo.protocols import Episode, PureEnv, Step
from proximo.types import Carry, Rollout


class Collected(NamedTuple):
    """The result of a rollout."""

    rollout: Rollout
    carry: Carry
    envs: Any  # state of the environments; () where they are stepped outside JAX
    episode: Episode  # (T, N)
    charts: dict[str, Array]  # () means of Step.metrics over all rows, NaN where there is nothing


class PlayedStep(NamedTuple):
    """One step of the rollout."""

    carry: Carry  # that the action was chosen from, without recurrent state and statistics
    action: Array
    logprob: Any  # None where the agent evaluates the whole rollout at its end
    value: Any  # likewise
    final_value: Any  # V(final_obs); None where the agent evaluates later, and in a next-step suite
    step: Step  # without observations; with final_obs where the agent evaluates later


def collect(agent: Any, envs: PureEnv, normalizer: Normalizer, env_state: Any, carry: Carry, noise: Array) -> Collected:
    """Play len(noise) steps from `carry`. `noise` (T, N, ...) decides the actions.

    V(final_obs) and V of the closing observation read the state of the recurrent layer after the step that they follow,
    and do not advance it.
    """
    never = jnp.zeros_like(carry.first)

    def play(state: tuple[Any, Carry], noise: Array) -> tuple[tuple[Any, Carry], PlayedStep]:
        env_state, carry = state
        acted = act_of(agent, carry, noise)
        shape = envs.action_space.shape  # None: a Dict or Tuple, whose parts are in one row
        action = acted.action if shape is None else acted.action.reshape(envs.num_envs, *shape)
        env_state, step = envs.step(env_state, action)
        statistics, step = normalizer.step(carry.statistics, step)
        final_obs, final_value = step.final_obs, None
        if final_obs is not None and not agent.evaluates_later:
            final_value = lax.cond(step.truncated.any(), lambda: value_of(agent, final_obs, never, acted.state),
                                   lambda: jnp.zeros_like(acted.value))
        played = PlayedStep(carry=carry._replace(state=(), statistics=None), action=acted.action, logprob=acted.logprob,
                            value=acted.value, final_value=final_value,
                            step=step._replace(obs=None, first=None, mask=None,
                                               final_obs=final_obs if agent.evaluates_later else None))
        after = Carry(obs=step.obs, mask=step.mask, first=step.first, state=acted.state, statistics=statistics)
        return (env_state, after), played

    (env_state, carry), played = lax.scan(play, (env_state, carry), noise, unroll=2)
    return Collected(rollout=make_rollout(agent, carry, played), carry=carry, envs=env_state,
                     episode=played.step.episode,
                     charts={name: jnp.nanmean(x) for name, x in played.step.metrics.items()})


def make_rollout(agent: Any, closing: Carry, played: PlayedStep) -> Rollout:
    """Complete the steps (T, N, ...) with log-probabilities and values, which include that of `closing`."""
    acted, step, never = played.carry, played.step, jnp.zeros_like(closing.first)
    logprob, value, final_value = played.logprob, played.value, played.final_value
    if agent.evaluates_later:
        logprob, value = agent.evaluate(jnp.concatenate([acted.obs, closing.obs[None]]), acted.mask, played.action)
        value, last = value[:-1], value[-1]
        check_rows(step.reward.shape, "a rollout", logprob=logprob, value=value)
        if step.final_obs is not None:
            final_value = lax.cond(step.truncated.any(), lambda: agent.value(step.final_obs, never, ()),
                                   lambda: jnp.zeros_like(value))
    else:
        last = value_of(agent, closing.obs, never, closing.state)
    next_value = jnp.concatenate([value[1:], last[None]])
    if final_value is not None:
        next_value = jnp.where(step.truncated, final_value, next_value)
    return Rollout(obs=acted.obs, first=acted.first, mask=acted.mask, action=played.action, logprob=logprob,
                   value=value, next_value=next_value, reward=step.reward, terminated=step.terminated,
                   done=step.terminated | step.truncated, valid=step.valid)
