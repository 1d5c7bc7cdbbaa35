"""Distributions on a box with finite bounds: the tanh-squashed Gaussian and the Beta distribution.

Actions are in the units of the environment. A density is that of the action, so it contains the scale of the box.
Sampling takes arrays of JAX, or of numpy to act on the host.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jax.scipy.special import digamma, gammaln

from proximo.on_jax.distributions import ActionHead, Gaussian, array_module

EDGE = 2.0**-24  # actions are moved this part of the box away from its bounds, where atanh and log are infinite
ROUNDS = 6  # proposals for one Gamma variate: the probability that all are rejected is below 2e-8, see gamma_variate
NODES = 24  # of the quadrature of Squashed.entropy
FARTHEST = 3.9  # of them, before they are scaled


class Bounds(NamedTuple):
    """A box (k,) and its map to a standard interval."""

    low: Any
    high: Any

    def to_unit(self, action: Array) -> Array:
        """Map actions to [EDGE, 1 - EDGE]."""
        return jnp.clip((action - self.low) / (self.high - self.low), EDGE, 1 - EDGE)

    def from_unit(self, x: Array) -> Array:
        """Map (0, 1) to actions."""
        inside: Array = self.low + (self.high - self.low) * x
        return inside

    def log_size(self) -> Array:
        """Return the logarithm of the volume of the box, a scalar."""
        return jnp.log(self.high - self.low).sum()


def normal_quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of a quadrature: E[f(x)] of a standard normal x is about the weighted sum.

    The nodes are evenly spaced, and both are scaled so that the mean of 1 and of x^2 is exact. A Gauss-Hermite
    quadrature of as many points is less accurate for the slope of tanh where the Gaussian is wide.
    """
    x = np.linspace(-FARTHEST, FARTHEST, NODES)
    weights = np.exp(-x**2 / 2)
    weights /= weights.sum()
    return x / np.sqrt(weights @ x**2), weights


def log_slope(u: Array) -> Array:
    """Return log(d/du (1 + tanh u) / 2) = log((1 - tanh(u)^2) / 2), without overflow."""
    u = jnp.abs(u)
    return math.log(2) - 2 * u - 2 * jnp.log1p(jnp.exp(-2 * u))


class Squashed(NamedTuple):
    """The distribution of low + (high - low) (1 + tanh u) / 2 for a Gaussian u (Haarnoja et al. 2018, arXiv 1801.01290,
    appendix C).
    """

    gaussian: Gaussian
    bounds: Bounds

    def sample(self, noise: Array) -> Array:
        """Return (..., k); `noise` (..., k) is standard normal."""
        return self.bounds.from_unit(0.5 + 0.5 * array_module(noise).tanh(self.gaussian.sample(noise)))

    def logprob(self, action: Array) -> Array:
        u = jnp.arctanh(2 * self.bounds.to_unit(action) - 1)
        return self.gaussian.logprob(u) - log_slope(u).sum(-1) - self.bounds.log_size()

    def entropy(self) -> Array:
        """Return the Gaussian's entropy plus the mean logarithm of the slope, by a quadrature of NODES points.

        Its error is below 0.001 for standard deviations up to 2.7, and 0.015 up to e^2, the largest that depends on the
        state.
        """
        nodes, weights = (x.astype(self.gaussian.mean.dtype) for x in normal_quadrature())
        u = self.gaussian.mean[..., None] + jnp.exp(self.gaussian.logstd)[..., None] * nodes
        slope = (log_slope(u) * weights).sum(-1)
        return self.gaussian.entropy() + slope.sum(-1) + self.bounds.log_size()

    def mode(self) -> Array:
        """Return the median, which is the squashed mean of the Gaussian."""
        return self.bounds.from_unit(0.5 + 0.5 * jnp.tanh(self.gaussian.mode()))


def gamma_variate(shape: Array, noise: Array) -> Array:
    """Sample Gamma(shape, 1) for shapes of at least 1 by the method of Marsaglia & Tsang (2000, ACM TOMS 26(3)).

    A proposal is accepted with a probability of at least 0.95, so the first accepted one of ROUNDS is exact but for a
    probability of 2e-8, in which the first proposal is taken.

    Args:
        shape: (...).
        noise: (..., ROUNDS, 2), standard normal numbers and logarithms of uniform ones.
    """
    module = array_module(noise)
    x, log_uniform = noise[..., 0], noise[..., 1]
    d = (shape - 1 / 3)[..., None]
    v = (1 + x / (9 * d) ** 0.5) ** 3
    positive = module.maximum(v, 1e-9)
    accepted = (v > 0) & (log_uniform < 0.5 * x * x + d * (1 - v + module.log(positive)))
    first = accepted.argmax(-1)[..., None]
    chosen: Array = module.take_along_axis(d * positive, first, axis=-1)[..., 0]
    return chosen


class Beta(NamedTuple):
    """low + (high - low) x with x ~ Beta(1 + a, 1 + b), unimodal (Chou et al. 2017, PMLR 70)."""

    a: Array  # (..., k), positive
    b: Array
    bounds: Bounds

    def sample(self, noise: Array) -> Array:
        """Return (..., k); `noise` is (..., k, 2, ROUNDS, 2), see gamma_variate."""
        variates = gamma_variate(1 + array_module(noise).stack([self.a, self.b], -1), noise)
        return self.bounds.from_unit(variates[..., 0] / variates.sum(-1))

    def logprob(self, action: Array) -> Array:
        x = self.bounds.to_unit(action)
        per_part = self.a * jnp.log(x) + self.b * jnp.log1p(-x) - self._log_beta()
        return per_part.sum(-1) - self.bounds.log_size()

    def entropy(self) -> Array:
        a, b, total = self.a, self.b, self.a + self.b
        per_part = self._log_beta() - a * digamma(1 + a) - b * digamma(1 + b) + total * digamma(2 + total)
        return per_part.sum(-1) + self.bounds.log_size()

    def mode(self) -> Array:
        """Return the most likely action; the middle of the box where `a` and `b` underflow to 0."""
        where, total = array_module(self.a).where, self.a + self.b
        return self.bounds.from_unit(where(total > 0, self.a / where(total > 0, total, 1), 0.5))

    def _log_beta(self) -> Array:
        return gammaln(1 + self.a) + gammaln(1 + self.b) - gammaln(2 + self.a + self.b)


class BoundedHead(ActionHead):
    """Actions in a box; the bounds are part of the action space, not of the weights."""

    def __init__(self, network: nnx.Module, low: np.ndarray, high: np.ndarray) -> None:
        super().__init__(network, (low.size,), np.float32)
        self.low, self.high = tuple(low.astype(np.float32).flat), tuple(high.astype(np.float32).flat)

    def bounds(self, like: Array) -> Bounds:
        """Return the box of the actions as arrays of the kind of `like`."""
        low, high = (array_module(like).asarray(x, like.dtype) for x in (self.low, self.high))
        return Bounds(low, high)


class SquashedHead(BoundedHead):
    """`network` is a head that maps features to a Gaussian, which tanh squashes."""

    def __call__(self, features: Array, mask: Array | None) -> Squashed:
        gaussian = self.network(features, mask)
        return Squashed(gaussian, self.bounds(gaussian.mean))


class BetaHead(BoundedHead):
    """`network` maps features to (..., 2 size) numbers, whose softplus is added to 1."""

    def __call__(self, features: Array, mask: Array | None) -> Beta:
        outputs = self.network(features)
        a, b = array_module(outputs).split(array_module(outputs).logaddexp(outputs, 0), 2, axis=-1)
        return Beta(a, b, self.bounds(outputs))

    def noise(self, key: Array, *lead: int) -> Array:
        """Draw (*lead, size, 2, ROUNDS, 2) for Beta.sample."""
        shape, (normal, uniform) = (*lead, *self.action_shape, 2, ROUNDS), jax.random.split(key)
        return jnp.stack([jax.random.normal(normal, shape), -jax.random.exponential(uniform, shape)], -1)
