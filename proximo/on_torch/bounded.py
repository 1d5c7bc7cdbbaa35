"""Distributions on a box with finite bounds: the tanh-squashed Gaussian and the Beta distribution.

Actions are in the units of the environment. A density is that of the action, so it contains the scale of the box.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from proximo.on_torch.distributions import ActionHead, Gaussian

EDGE = 2.0**-24  # actions are moved this part of the box away from its bounds, where atanh and log are infinite
ROUNDS = 6  # proposals for one Gamma variate: the probability that all are rejected is below 2e-8, see gamma_variate
NODES = 24  # of the quadrature of Squashed.entropy
FARTHEST = 3.9  # of them, before they are scaled


class Bounds(NamedTuple):
    """A box (k,) and its map to a standard interval."""

    low: Tensor
    high: Tensor

    def to_unit(self, action: Tensor) -> Tensor:
        """Map actions to [EDGE, 1 - EDGE]."""
        return ((action - self.low) / (self.high - self.low)).clamp(EDGE, 1 - EDGE)

    def from_unit(self, x: Tensor) -> Tensor:
        """Map (0, 1) to actions."""
        return self.low + (self.high - self.low) * x

    def log_size(self) -> Tensor:
        """Return the logarithm of the volume of the box, a scalar."""
        return (self.high - self.low).log().sum()


@cache
def normal_quadrature() -> tuple[list[float], list[float]]:
    """Return nodes and weights of a quadrature: E[f(x)] of a standard normal x is about the weighted sum.

    The nodes are evenly spaced, and both are scaled so that the mean of 1 and of x^2 is exact. A Gauss-Hermite
    quadrature of as many points is less accurate for the slope of tanh where the Gaussian is wide.
    """
    x = np.linspace(-FARTHEST, FARTHEST, NODES)
    weights = np.exp(-x**2 / 2)
    weights /= weights.sum()
    return (x / np.sqrt(weights @ x**2)).tolist(), weights.tolist()


def log_slope(u: Tensor) -> Tensor:
    """Return log(d/du (1 + tanh u) / 2) = log((1 - tanh(u)^2) / 2), without overflow."""
    u = u.abs()
    return math.log(2) - 2 * u - 2 * torch.log1p(torch.exp(-2 * u))


class Squashed(NamedTuple):
    """The distribution of low + (high - low) (1 + tanh u) / 2 for a Gaussian u (Haarnoja et al. 2018, arXiv 1801.01290,
    appendix C)."""

    gaussian: Gaussian
    bounds: Bounds

    def sample(self, noise: Tensor) -> Tensor:
        """Sample from `noise` (..., k), standard normal."""
        return self.bounds.from_unit(0.5 + 0.5 * torch.tanh(self.gaussian.sample(noise)))

    def logprob(self, action: Tensor) -> Tensor:
        u = torch.atanh(2 * self.bounds.to_unit(action) - 1)
        return self.gaussian.logprob(u) - log_slope(u).sum(-1) - self.bounds.log_size()

    def entropy(self) -> Tensor:
        """Return the Gaussian's entropy plus the mean logarithm of the slope, by a quadrature of NODES points.

        Its error is below 0.001 for standard deviations up to 2.7, and 0.015 up to e^2, the largest that depends on the
        state.
        """
        nodes, weights = (self.gaussian.mean.new_tensor(x) for x in normal_quadrature())
        u = self.gaussian.mean.unsqueeze(-1) + self.gaussian.logstd.exp().unsqueeze(-1) * nodes
        slope = (log_slope(u) * weights).sum(-1)
        return self.gaussian.entropy() + slope.sum(-1) + self.bounds.log_size()

    def mode(self) -> Tensor:
        """Return the median, which is the squashed mean of the Gaussian."""
        return self.bounds.from_unit(0.5 + 0.5 * torch.tanh(self.gaussian.mode()))


def gamma_variate(shape: Tensor, noise: Tensor) -> Tensor:
    """Sample Gamma(shape, 1) for shapes of at least 1 by the method of Marsaglia & Tsang (2000, ACM TOMS 26(3)).

    A proposal is accepted with a probability of at least 0.95, so the first accepted one of ROUNDS is exact but for a
    probability of 2e-8, in which the first proposal is taken.

    Args:
        shape: (...).
        noise: (..., ROUNDS, 2), standard normal numbers and logarithms of uniform ones.
    """
    x, log_uniform = noise.unbind(-1)
    d = (shape - 1 / 3).unsqueeze(-1)
    v = (1 + x / (9 * d).sqrt()) ** 3
    positive = v.clamp(min=1e-9)
    accepted = (v > 0) & (log_uniform < 0.5 * x * x + d * (1 - v + positive.log()))
    first = accepted.to(torch.int8).argmax(-1, keepdim=True)
    return (d * positive).gather(-1, first).squeeze(-1)


class Beta(NamedTuple):
    """low + (high - low) x with x ~ Beta(1 + a, 1 + b), unimodal (Chou et al. 2017, PMLR 70)."""

    a: Tensor  # (..., k), positive
    b: Tensor
    bounds: Bounds

    def sample(self, noise: Tensor) -> Tensor:
        """Sample from `noise` (..., k, 2, ROUNDS, 2); see gamma_variate."""
        x, y = gamma_variate(1 + torch.stack([self.a, self.b], -1), noise).unbind(-1)
        return self.bounds.from_unit(x / (x + y))

    def logprob(self, action: Tensor) -> Tensor:
        x = self.bounds.to_unit(action)
        return (self.a * x.log() + self.b * torch.log1p(-x) - self._log_beta()).sum(-1) - self.bounds.log_size()

    def entropy(self) -> Tensor:
        a, b, total = self.a, self.b, self.a + self.b
        per_part = (self._log_beta() - a * torch.digamma(1 + a) - b * torch.digamma(1 + b)
                    + total * torch.digamma(2 + total))
        return per_part.sum(-1) + self.bounds.log_size()

    def mode(self) -> Tensor:
        """Return the most likely action; the middle of the box where `a` and `b` underflow to 0."""
        total = self.a + self.b
        return self.bounds.from_unit(torch.where(total > 0, self.a / total, 0.5))

    def _log_beta(self) -> Tensor:
        return torch.lgamma(1 + self.a) + torch.lgamma(1 + self.b) - torch.lgamma(2 + self.a + self.b)


class BoundedHead(ActionHead):
    """Actions in a box; the bounds are part of the action space, not of the weights."""

    low: Tensor
    high: Tensor

    def __init__(self, network: nn.Module, low: np.ndarray, high: np.ndarray) -> None:
        super().__init__(network, (low.size,), np.float32)
        self.register_buffer("low", torch.from_numpy(low.reshape(-1).astype(np.float32)), persistent=False)
        self.register_buffer("high", torch.from_numpy(high.reshape(-1).astype(np.float32)), persistent=False)

    @property
    def bounds(self) -> Bounds:
        """The box of the actions."""
        return Bounds(self.low, self.high)


class SquashedHead(BoundedHead):
    """`network` is a head that maps features to a Gaussian, which tanh squashes."""

    def forward(self, features: Tensor, mask: Tensor | None) -> Squashed:
        return Squashed(self.network(features, mask), self.bounds)


class BetaHead(BoundedHead):
    """`network` maps features to (..., 2 size) numbers, whose softplus is added to 1."""

    def forward(self, features: Tensor, mask: Tensor | None) -> Beta:
        a, b = F.softplus(self.network(features), threshold=40).chunk(2, -1)
        return Beta(a, b, self.bounds)

    def noise(self, generator: torch.Generator, *lead: int) -> Tensor:
        shape: tuple[Any, ...] = (*lead, *self.action_shape, 2, ROUNDS)
        normal = torch.empty(shape).normal_(generator=generator)
        return torch.stack([normal, -torch.empty(shape).exponential_(generator=generator)], -1)
