"""Generalized state-dependent exploration (Raffin et al. 2020, arXiv 2005.05719)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array, lax

from proximo.on_jax.distributions import LOG_2_PI, ActionHead, array_module
from proximo.on_jax.networks import Linear


class ExploringGaussian(NamedTuple):
    """A Gaussian whose noise is a linear function of features, with the same random matrix for several steps.

    The matrix has independent normal entries with standard deviations exp(logstd), so the noise of one step is normal
    with variance features^2 @ exp(logstd)^2 (equation 8 of the paper). No gradient flows into the features through it.
    """

    mean: Array  # (..., k)
    features: Array  # (..., F), without a gradient
    logstd: Array  # (F, k)

    def variance(self) -> Array:
        """Return the variance of each component, (..., k); 1e-6 keeps it above 0."""
        return jnp.square(self.features) @ jnp.exp(2 * self.logstd) + 1e-6

    def sample(self, noise: Array) -> Array:
        """Return (..., k), not clipped to any bounds; `noise` (..., F, k) is standard normal."""
        deviation = array_module(noise).exp(self.logstd)
        return self.mean + (self.features[..., None] * (noise * deviation)).sum(-2)

    def logprob(self, action: Array) -> Array:
        variance = self.variance()
        return -0.5 * (jnp.square(action - self.mean) / variance + jnp.log(variance) + LOG_2_PI).sum(-1)

    def entropy(self) -> Array:
        return 0.5 * (jnp.log(self.variance()) + 1 + LOG_2_PI).sum(-1)

    def mode(self) -> Array:
        return self.mean


def without_gradient(x: Any) -> Any:
    """Return an array of JAX, from which no gradient flows back, or one of numpy as it is."""
    return x if isinstance(x, np.ndarray) else lax.stop_gradient(x)


class GSDEHead(ActionHead):
    """Box actions: `network` maps to features, `last` maps these to means.

    Args:
        network: The policy's network up to its last hidden layer.
        last: The linear layer after it.
        log_std_init: First logarithm of every standard deviation.
        sample_freq: Steps between two draws of the matrices; 0: one draw for a rollout.
    """

    def __init__(self, network: nnx.Module, last: Linear, log_std_init: float = 0.0, sample_freq: int = 0) -> None:
        size, features = dict(last.shapes)["weight"]
        super().__init__(network, (size,), np.float32)
        self.last, self.sample_freq, self.matrix = last, sample_freq, (features, size)
        self.logstd = nnx.Param(np.full((features, size), log_std_init, np.float32))

    def __call__(self, features: Array, mask: Array | None) -> ExploringGaussian:
        hidden = self.network(features)
        return ExploringGaussian(mean=self.last(hidden), features=without_gradient(hidden), logstd=self.logstd[...])

    def noise(self, key: Array, *lead: int) -> Array:
        """Draw (*lead, F, k): for one step (N,), or for a rollout (T, N), in which sample_freq steps share a draw."""
        steps = lead[0] if len(lead) > 1 else 1
        every = self.sample_freq or steps
        draws = jax.random.normal(key, (-(-steps // every), lead[-1], *self.matrix))
        return jnp.repeat(draws, every, axis=0)[:steps] if len(lead) > 1 else draws[0]
