"""Generalized advantage estimation (Schulman et al. 2016, arXiv 1506.02438, eq. 16; detail 5)."""

import jax.numpy as jnp
from jax import Array, lax


def gae(reward: Array, value: Array, next_value: Array, terminated: Array, done: Array,
        gamma: float, gae_lambda: float, unroll: int | bool = 1) -> Array:
    """All (T, N). `next_value` is V of what truly followed each action, counted as 0 where `terminated`; `done` cuts
    the recursion. Returns the advantages (T, N); returns are advantages plus values (gae_lambda=1: plain returns)."""
    delta = reward + gamma * jnp.where(terminated, 0.0, next_value) - value
    decay = jnp.where(done, 0.0, gamma * gae_lambda)

    def earlier(running: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        running = row[0] + row[1] * running
        return running, running

    return lax.scan(earlier, jnp.zeros_like(delta[0]), (delta, decay), reverse=True, unroll=unroll)[1]
