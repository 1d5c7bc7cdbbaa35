"""Heads for continuous actions, chosen by --distribution and --state-dependent-std."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import numpy as np
from flax import nnx
from jax import Array

from proximo.config import Config
from proximo.on_jax.bounded import BetaHead, SquashedHead
from proximo.on_jax.distributions import ActionHead, Gaussian, GaussianHead, array_module
from proximo.on_jax.gsde import GSDEHead
from proximo.on_jax.networks import Linear

LEAST_LOGSTD = -5.0  # of a standard deviation that depends on the state
LARGEST_LOGSTD = 2.0


class PolicyNetwork(NamedTuple):
    """The network below a head, by its number of outputs: as one module, or in two parts."""

    whole: Callable[[int], nnx.Module]
    parts: Callable[[int], tuple[nnx.Module, Linear]]  # up to the last hidden layer, and the linear layer after it


MakeBoxHead = Callable[[PolicyNetwork, gym.spaces.Box, Config], nnx.Module]


class Identity(nnx.Module):
    """Returns what it is given: a network without hidden layers."""

    def __call__(self, x: Array) -> Array:
        return x


class StateDependentHead(ActionHead):
    """A Gaussian: `network` maps features to means and log standard deviations, (..., 2 size).

    `log_std_init` is added to the latter. The sum is clipped to [-5, 2], as is usual for soft actor-critic.
    """

    def __init__(self, network: nnx.Module, size: int, log_std_init: float = 0.0) -> None:
        super().__init__(network, (size,), np.float32)
        self.log_std_init = log_std_init

    def __call__(self, features: Array, mask: Array | None) -> Gaussian:
        outputs = self.network(features)
        mean, logstd = array_module(outputs).split(outputs, 2, axis=-1)
        return Gaussian(mean, (logstd + self.log_std_init).clip(LEAST_LOGSTD, LARGEST_LOGSTD))


class RPOHead(GaussianHead):
    """A Gaussian with a uniformly perturbed mean while learning (Rahman & Xue 2022, arXiv 2212.07536, algorithm 1)."""

    def __init__(self, network: nnx.Module, size: int, rpo_alpha: float, log_std_init: float = 0.0) -> None:
        super().__init__(network, size, log_std_init)
        self.rpo_alpha = rpo_alpha

    def learning_noise(self, key: Array, *lead: int) -> Array:
        """Draw (*lead, size), uniform in [-rpo_alpha, rpo_alpha]."""
        return jax.random.uniform(key, (*lead, *self.action_shape), minval=-self.rpo_alpha, maxval=self.rpo_alpha)

    def perturbed(self, dist: Gaussian, noise: Any) -> Gaussian:
        """Add `noise` to the mean."""
        return Gaussian(dist.mean + noise, dist.logstd)


def make_gaussian_head(network: PolicyNetwork, size: int, cfg: Config) -> nnx.Module:
    """Return the head of a Gaussian of `size` components."""
    if cfg.state_dependent_std:
        return StateDependentHead(network.whole(2 * size), size, cfg.log_std_init)
    return GaussianHead(network.whole(size), size, cfg.log_std_init)


def make_box_head(network: PolicyNetwork, space: gym.spaces.Box, cfg: Config) -> nnx.Module:
    """Return the head that cfg.distribution names."""
    size = math.prod(space.shape)
    if cfg.distribution == "squashed":
        return SquashedHead(make_gaussian_head(network, size, cfg), space.low, space.high)
    if cfg.distribution == "beta":
        return BetaHead(network.whole(2 * size), space.low, space.high)
    if cfg.distribution == "gsde":
        return GSDEHead(*network.parts(size), cfg.log_std_init, cfg.sde_sample_freq)
    return make_gaussian_head(network, size, cfg)


def make_rpo_head(network: PolicyNetwork, space: gym.spaces.Box, cfg: Config) -> nnx.Module:
    """Return the head of robust policy optimization; the configuration is one of RPO."""
    size = math.prod(space.shape)
    return RPOHead(network.whole(size), size, cfg.rpo_alpha, cfg.log_std_init)  # type: ignore[attr-defined]
