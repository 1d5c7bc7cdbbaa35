"""Generalized advantage estimation (Schulman et al. 2016, arXiv 1506.02438, eq. 16; detail 5)."""

import jax.numpy as jnp
from jax import Array, lax

from proximo.config import Config
from proximo.types import Rollout


def without_fillers(rollout: Rollout) -> Rollout:
    """Put 0 for rewards and values of rows that are not valid, so that they add nothing to advantages.

    Their log-probabilities stay those of the network: with others, the ratio of probabilities could overflow.
    """
    return rollout._replace(**{name: jnp.where(rollout.valid, getattr(rollout, name), 0.0)
                               for name in ("reward", "value", "next_value")})


def estimate_advantages(rollout: Rollout, cfg: Config) -> Array:
    """Return the advantages (T, N) of a rollout in which rows that are not valid are 0."""
    no_bootstrap = rollout.terminated if cfg.bootstrap_truncated else rollout.done
    return gae(rollout.reward, rollout.value, rollout.next_value, no_bootstrap, rollout.done, cfg.gamma, cfg.gae_lambda)


def gae(reward: Array, value: Array, next_value: Array, terminated: Array, done: Array,
        gamma: float, gae_lambda: float) -> Array:
    """Estimate advantages: A[t] = delta[t] + gamma * gae_lambda * A[t + 1], and A[t] = delta[t] where `done`.

    delta[t] = reward[t] + gamma * next_value[t] - value[t]. `next_value` is the value of what followed each action; it
    counts as 0 where `terminated`. All arrays are (T, N). The targets of the value function are A + value.
    """
    delta = reward + gamma * jnp.where(terminated, 0.0, next_value) - value
    decay = jnp.where(done, 0.0, gamma * gae_lambda)

    def earlier(running: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        running = row[0] + row[1] * running
        return running, running

    return lax.scan(earlier, jnp.zeros_like(delta[0]), (delta, decay), reverse=True, unroll=8)[1]
