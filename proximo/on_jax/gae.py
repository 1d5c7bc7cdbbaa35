"""Generalized advantage estimation (Schulman et al. 2016, arXiv 1506.02438, eq. 16; detail 5)."""

import jax.numpy as jnp
from jax import Array, lax


def gae(reward: Array, value: Array, next_value: Array, terminated: Array, done: Array,
        gamma: float, gae_lambda: float) -> Array:
    """Estimate advantages (T, N). Returns are advantages plus values (gae_lambda=1: plain returns).

    Args:
        reward: (T, N).
        value: (T, N) V of each observation.
        next_value: (T, N) V of what followed each action, which counts as 0 where `terminated`.
        terminated: (T, N) bool.
        done: (T, N) bool; cuts the recursion.
        gamma: The discount factor.
        gae_lambda: lambda.
    """
    delta = reward + gamma * jnp.where(terminated, 0.0, next_value) - value
    decay = jnp.where(done, 0.0, gamma * gae_lambda)

    def earlier(running: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        running = row[0] + row[1] * running
        return running, running

    return lax.scan(earlier, jnp.zeros_like(delta[0]), (delta, decay), reverse=True)[1]
