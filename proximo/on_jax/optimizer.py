"""Adam (Kingma & Ba 2015, arXiv 1412.6980, algorithm 1; optax's moments), with gradient clipping."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from proximo.on_jax.networks import Weights

BETA1, BETA2 = 0.9, 0.999


class Adam(NamedTuple):
    """All weights and moments."""

    weights: Weights
    exp_avg: Weights
    exp_avg_sq: Weights
    step: Array  # 0-d int32: updates applied
    ok: Array  # 0-d bool: every gradient so far was finite; False from the first that is not, and nothing moves


def start_adam(weights: Weights) -> Adam:
    """Nothing learned yet."""
    moments = optax.scale_by_adam(BETA1, BETA2).init(weights)
    return Adam(weights, moments.mu, moments.nu, moments.count, jnp.ones((), bool))


def apply_gradient(adam: Adam, gradient: Weights, learning_rate: Array | float, eps: float,
                   max_grad_norm: float) -> tuple[Adam, Array]:
    """One clipped step (details 3 and 11) and the norm before clipping, 0-d.

    From the first gradient that is not finite on, weights and moments stay as they are and `ok` is False."""
    norm = optax.tree.norm(gradient)
    ok = adam.ok & jnp.isfinite(norm)
    scale = jnp.minimum(max_grad_norm / (norm + 1e-6), 1.0)
    gradient = jax.tree.map(lambda g: g * scale, gradient)
    moments = optax.ScaleByAdamState(adam.step, adam.exp_avg, adam.exp_avg_sq)
    direction, moments = optax.scale_by_adam(BETA1, BETA2, eps).update(gradient, moments)
    weights = jax.tree.map(lambda w, d: w - learning_rate * d, adam.weights, direction)
    moved = Adam(weights, moments.mu, moments.nu, moments.count, ok)
    return jax.tree.map(lambda new, old: jnp.where(ok, new, old), moved, adam._replace(ok=ok)), norm
