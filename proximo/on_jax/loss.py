"""The clipped objective of PPO (Schulman et al. 2017, arXiv 1707.06347, eq. 7 and 9)."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from proximo.config import Config


def ppo_loss(logprob: Array, old_logprob: Array, value: Array, old_value: Array, advantage: Array, ret: Array,
             entropy: Array, valid: Array, count: Array, clip_coef: Array,
             cfg: Config) -> tuple[Array, dict[str, Array]]:
    """All rows of one minibatch, any shape; `count` is how many are valid over all ranks (at least 1), `advantage` is
    normalised already. Every mean is over valid rows. Returns the loss to minimise and named means for the log."""
    def mean(x: Array) -> Array:
        return jnp.where(valid, x, 0.0).sum() / count

    logratio = logprob - old_logprob
    ratio = jnp.exp(logratio)
    clipped_ratio = jnp.clip(ratio, 1 - clip_coef, 1 + clip_coef)
    policy_loss = mean(jnp.maximum(-advantage * ratio, -advantage * clipped_ratio))  # detail 8

    error = jnp.square(value - ret)
    if cfg.clip_vloss:  # detail 9
        clipped_value = old_value + jnp.clip(value - old_value, -clip_coef, clip_coef)
        error = jnp.maximum(error, jnp.square(clipped_value - ret))
    value_loss = 0.5 * mean(error)

    mean_entropy = mean(entropy)
    loss = policy_loss - cfg.ent_coef * mean_entropy + cfg.vf_coef * value_loss  # detail 10
    stats = {"value_loss": value_loss, "policy_loss": policy_loss, "entropy": mean_entropy}
    return loss, stats | _debug(ratio, logratio, mean, clip_coef)


def _debug(ratio: Array, logratio: Array, mean: Callable[[Array], Array], clip_coef: Array) -> dict[str, Array]:
    """Detail 12: both estimators of the KL divergence (Schulman 2020, "Approximating KL divergence") and clipfrac."""
    return {"old_approx_kl": mean(-logratio), "approx_kl": mean(ratio - 1 - logratio),
            "clipfrac": mean((jnp.abs(ratio - 1) > clip_coef).astype(ratio.dtype))}
