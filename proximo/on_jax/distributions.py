"""Heads: features to a distribution over actions. Noise comes in from outside, keyed by streams.py."""

from collections.abc import Sequence
from functools import cached_property, reduce
from operator import add
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

MASKED = -1e8  # the logit of an action that is not allowed (detail A4)
LOG_2_PI = float(np.log(2 * np.pi))


class Categorical:
    """One choice of A from `logits` (..., A), normalised only where a probability is asked for."""

    def __init__(self, logits: Array):
        self.logits = logits

    @cached_property
    def logp(self) -> Array:
        """(..., A) normalised log-probabilities."""
        return jax.nn.log_softmax(self.logits)

    def sample(self, noise: Array) -> Array:
        """The Gumbel-max trick: noise (..., A) of -log(Exp(1)); returns (...) int32."""
        return (self.logits + noise).argmax(-1).astype(np.int32)

    def logprob(self, action: Array) -> Array:
        chosen = action[..., None] == jnp.arange(self.logp.shape[-1])  # a gather's gradient is slow on CPU
        return jnp.where(chosen, self.logp, 0.0).sum(-1)

    def entropy(self) -> Array:
        return -(jnp.exp(self.logp) * self.logp).sum(-1)

    def mode(self) -> Array:
        return self.logits.argmax(-1).astype(np.int32)

    def shifted(self, noise: Array | None) -> "Categorical":
        return self


class MultiCategorical(NamedTuple):
    """Independent choices, one of nvec[i] each; log-probabilities and entropies add up (detail 37)."""

    parts: tuple[Categorical, ...]

    def sample(self, noise: Array) -> Array:
        """noise (..., sum of nvec); returns (..., len(nvec)) int32."""
        sizes = [part.logits.shape[-1] for part in self.parts]
        chosen = [part.sample(n) for part, n in zip(self.parts, split(noise, sizes))]
        return array_module(noise).stack(chosen, -1)

    def logprob(self, action: Array) -> Array:
        return reduce(add, (part.logprob(action[..., i]) for i, part in enumerate(self.parts)))

    def entropy(self) -> Array:
        return reduce(add, (part.entropy() for part in self.parts))

    def mode(self) -> Array:
        return jnp.stack([part.mode() for part in self.parts], -1)

    def shifted(self, noise: Array | None) -> "MultiCategorical":
        return self


class Gaussian(NamedTuple):
    """Independent normal components (details 23 and 25)."""

    mean: Array  # (..., k)
    logstd: Array  # (k,)

    def sample(self, noise: Array) -> Array:
        """noise (..., k) standard normal; returns (..., k), not clipped to any bounds (detail 27)."""
        return self.mean + array_module(noise).exp(self.logstd) * noise

    def logprob(self, action: Array) -> Array:
        z = (action - self.mean) * jnp.exp(-self.logstd)
        return (-0.5 * z * z - self.logstd - 0.5 * LOG_2_PI).sum(-1)

    def entropy(self) -> Array:
        return jnp.broadcast_to((self.logstd + 0.5 + 0.5 * LOG_2_PI).sum(-1), self.mean.shape[:-1])

    def mode(self) -> Array:
        return self.mean

    def shifted(self, noise: Array | None) -> "Gaussian":
        """The mean moved by `noise` (..., k); None: no shift. Only RPO has noise for learning."""
        return self if noise is None else Gaussian(self.mean + noise, self.logstd)


def array_module(x: Any) -> Any:
    """numpy for its own arrays, on which a small network acts on the host; jax.numpy for all others."""
    return np if isinstance(x, np.ndarray) else jnp


def split(x: Array, sizes: Sequence[int]) -> list[Array]:
    """Parts of the last axis, of these sizes."""
    return array_module(x).split(x, np.cumsum(sizes)[:-1].tolist(), axis=-1)


def masked(logits: Array, mask: Array | None) -> Array:
    """With those of actions that are not allowed all but minus infinite."""
    if mask is None:
        return logits
    return array_module(logits).where(mask, logits, np.float32(MASKED))


class CategoricalHead(nnx.Module):
    """Discrete actions: `network` maps features to (..., num_actions) logits."""

    def __init__(self, network: nnx.Module, num_actions: int):
        self.network, self.num_actions = network, num_actions
        self.action_shape, self.action_dtype = (), np.int32

    def __call__(self, features: Array, mask: Array | None) -> Categorical:
        logits = self.network(features)
        return Categorical(masked(logits, mask))

    def noise(self, key: Array, *lead: int) -> Array:
        """(*lead, num_actions), for sample."""
        return jax.random.gumbel(key, (*lead, self.num_actions))

    def learning_noise(self, key: Array, *lead: int) -> Array | None:
        return None


class MultiCategoricalHead(nnx.Module):
    """MultiDiscrete actions: `network` maps features to (..., sum of nvec) logits (detail 37)."""

    def __init__(self, network: nnx.Module, nvec: Sequence[int]):
        self.network, self.nvec = network, tuple(int(n) for n in nvec)
        self.action_shape, self.action_dtype = (len(self.nvec),), np.int32

    def __call__(self, features: Array, mask: Array | None) -> MultiCategorical:
        logits = self.network(features)
        parts = split(masked(logits, mask), self.nvec)
        return MultiCategorical(tuple(Categorical(part) for part in parts))

    def noise(self, key: Array, *lead: int) -> Array:
        """(*lead, sum of nvec), for sample."""
        return jax.random.gumbel(key, (*lead, sum(self.nvec)))

    def learning_noise(self, key: Array, *lead: int) -> Array | None:
        return None


class GaussianHead(nnx.Module):
    """Box actions: `network` maps features to (..., size) means; the deviation is a free vector, log 0 (detail 24)."""

    def __init__(self, network: nnx.Module, size: int):
        self.network, self.logstd = network, nnx.Param(np.zeros(size, np.float32))
        self.action_shape, self.action_dtype = (size,), np.float32

    def __call__(self, features: Array, mask: Array | None) -> Gaussian:
        return Gaussian(self.network(features), self.logstd[...])

    def noise(self, key: Array, *lead: int) -> Array:
        """(*lead, size), for sample."""
        return jax.random.normal(key, (*lead, *self.action_shape))

    def learning_noise(self, key: Array, *lead: int) -> Array | None:
        return None


class RPOHead(GaussianHead):
    """A Gaussian whose mean is shifted uniformly when learning (Rahman & Xue 2022, arXiv 2212.07536, algorithm 1)."""

    def __init__(self, network: nnx.Module, size: int, rpo_alpha: float):
        super().__init__(network, size)
        self.rpo_alpha = rpo_alpha

    def learning_noise(self, key: Array, *lead: int) -> Array:
        """(*lead, size), uniform in [-rpo_alpha, rpo_alpha]."""
        return jax.random.uniform(key, (*lead, *self.action_shape), minval=-self.rpo_alpha, maxval=self.rpo_alpha)
