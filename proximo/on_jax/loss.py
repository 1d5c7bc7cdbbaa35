"""The clipped objective of PPO (Schulman et al. 2017, arXiv 1707.06347, eq. 7 and 9)."""

import jax.numpy as jnp
from jax import Array

from proximo.config import Config
from proximo.types import LossInputs


def ppo_loss(batch: LossInputs, cfg: Config) -> tuple[Array, dict[str, Array]]:
    """Return the loss of one minibatch to minimise, a scalar, and named scalars for the log.

    Each is this rank's share of a mean: a sum over its valid rows, divided by the number of valid rows of all ranks.
    """
    def mean(x: Array) -> Array:
        return jnp.where(batch.valid, x, 0.0).sum() / batch.count

    logratio = batch.logprob - batch.old_logprob
    ratio, clip = jnp.exp(logratio), batch.clip_coef
    clipped_ratio = jnp.clip(ratio, 1 - clip, 1 + clip)
    policy_loss = mean(jnp.maximum(-batch.advantage * ratio, -batch.advantage * clipped_ratio))  # detail 8

    error = jnp.square(batch.value - batch.ret)
    if cfg.clip_vloss:  # detail 9
        clipped_value = batch.old_value + jnp.clip(batch.value - batch.old_value, -clip, clip)
        error = jnp.maximum(error, jnp.square(clipped_value - batch.ret))
    value_loss = 0.5 * mean(error)

    entropy = mean(batch.entropy)
    loss = policy_loss - batch.ent_coef * entropy + cfg.vf_coef * value_loss  # detail 10
    # detail 12; both estimators of the KL divergence: Schulman 2020, "Approximating KL divergence"
    stats = {"value_loss": value_loss, "policy_loss": policy_loss, "entropy": entropy,
             "old_approx_kl": mean(-logratio), "approx_kl": mean(ratio - 1 - logratio),
             "clipfrac": mean((jnp.abs(ratio - 1) > clip).astype(ratio.dtype))}
    return loss, stats
