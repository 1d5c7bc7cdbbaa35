"""Heads: features to a distribution over actions. Random numbers are arguments, keyed by streams.py."""

from collections.abc import Sequence
from functools import cached_property, partial, reduce
from operator import add
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

MASKED = -1e8  # the logit of an action that is not allowed (detail A4)
LOG_2_PI = float(np.log(2 * np.pi))


@partial(jax.tree_util.register_dataclass, data_fields=["logits"], meta_fields=[])  # vmap and jit may return it
class Categorical:
    """One choice of A from `logits` (..., A), which are normalised only when a probability is needed."""

    def __init__(self, logits: Array) -> None:
        self.logits = logits

    @cached_property
    def log_probabilities(self) -> Array:
        """(..., A) normalised log-probabilities."""
        return jax.nn.log_softmax(self.logits)

    def sample(self, noise: Array) -> Array:
        """Return (...) int32 by the Gumbel-max trick; `noise` (..., A) is -log(Exp(1))."""
        return (self.logits + noise).argmax(-1).astype(np.int32)

    def logprob(self, action: Array) -> Array:
        chosen = action[..., None] == jnp.arange(self.logits.shape[-1])  # the gradient of a gather is slow on CPU
        return jnp.where(chosen, self.log_probabilities, 0.0).sum(-1)

    def entropy(self) -> Array:
        return -(jnp.exp(self.log_probabilities) * self.log_probabilities).sum(-1)

    def mode(self) -> Array:
        return self.logits.argmax(-1).astype(np.int32)


class MultiCategorical(NamedTuple):
    """Independent choices, one of nvec[i] each. Log-probabilities and entropies are sums (detail 37)."""

    parts: tuple[Categorical, ...]

    def sample(self, noise: Array) -> Array:
        """Return (..., len(nvec)) int32; `noise` is (..., sum of nvec)."""
        sizes = [part.logits.shape[-1] for part in self.parts]
        chosen = [part.sample(n) for part, n in zip(self.parts, split(noise, sizes))]
        return array_module(noise).stack(chosen, -1)

    def logprob(self, action: Array) -> Array:
        return reduce(add, (part.logprob(action[..., i]) for i, part in enumerate(self.parts)))

    def entropy(self) -> Array:
        return reduce(add, (part.entropy() for part in self.parts))

    def mode(self) -> Array:
        return jnp.stack([part.mode() for part in self.parts], -1)


class Gaussian(NamedTuple):
    """Independent normal components (details 23 and 25)."""

    mean: Array  # (..., k)
    logstd: Array  # (k,)

    def sample(self, noise: Array) -> Array:
        """Return (..., k), not clipped to any bounds (detail 27); `noise` (..., k) is standard normal."""
        return self.mean + array_module(noise).exp(self.logstd) * noise

    def logprob(self, action: Array) -> Array:
        z = (action - self.mean) * jnp.exp(-self.logstd)
        return (-0.5 * z * z - self.logstd - 0.5 * LOG_2_PI).sum(-1)

    def entropy(self) -> Array:
        return jnp.broadcast_to((self.logstd + 0.5 + 0.5 * LOG_2_PI).sum(-1), self.mean.shape[:-1])

    def mode(self) -> Array:
        return self.mean


def array_module(x: Any) -> Any:
    """Return numpy for its own arrays, with which a small network acts on the host, and otherwise jax.numpy."""
    return np if isinstance(x, np.ndarray) else jnp


def split(x: Array, sizes: Sequence[int]) -> list[Array]:
    """Split the last axis into parts of these sizes."""
    return array_module(x).split(x, np.cumsum(sizes)[:-1].tolist(), axis=-1)


def mask_logits(logits: Array, mask: Array | None) -> Array:
    """Replace the logits of actions that are not allowed by MASKED."""
    if mask is None:
        return logits
    return array_module(logits).where(mask, logits, np.float32(MASKED))


class ActionHead(nnx.Module):
    """What all heads share; see proximo.protocols.Head."""

    def __init__(self, network: Any, action_shape: tuple[int, ...], action_dtype: Any) -> None:
        self.network, self.action_shape, self.action_dtype = network, action_shape, action_dtype

    def noise(self, key: Array, *lead: int) -> Array:
        """Draw standard normal numbers (*lead, *action_shape), from which every Gaussian samples."""
        return jax.random.normal(key, (*lead, *self.action_shape))

    def learning_noise(self, key: Array, *lead: int) -> Array | None:
        return None

    def perturbed(self, dist: Any, noise: Any) -> Any:
        return dist


class CategoricalHead(ActionHead):
    """Discrete actions: `network` maps features to (..., num_actions) logits."""

    def __init__(self, network: nnx.Module, num_actions: int) -> None:
        super().__init__(network, (), np.int32)
        self.num_actions = num_actions

    def __call__(self, features: Array, mask: Array | None) -> Categorical:
        logits = self.network(features)
        return Categorical(mask_logits(logits, mask))

    def noise(self, key: Array, *lead: int) -> Array:
        """Draw (*lead, num_actions) for Categorical.sample."""
        return jax.random.gumbel(key, (*lead, self.num_actions))


class MultiCategoricalHead(ActionHead):
    """MultiDiscrete actions: `network` maps features to (..., sum of nvec) logits (detail 37)."""

    def __init__(self, network: nnx.Module, nvec: Sequence[int]) -> None:
        super().__init__(network, (len(nvec),), np.int32)
        self.nvec = tuple(int(n) for n in nvec)

    def __call__(self, features: Array, mask: Array | None) -> MultiCategorical:
        logits = self.network(features)
        parts = split(mask_logits(logits, mask), self.nvec)
        return MultiCategorical(tuple(Categorical(part) for part in parts))

    def noise(self, key: Array, *lead: int) -> Array:
        """Draw (*lead, sum of nvec) for MultiCategorical.sample."""
        return jax.random.gumbel(key, (*lead, sum(self.nvec)))


class GaussianHead(ActionHead):
    """Box actions: `network` maps features to (..., size) means. The log-deviation is a free vector that starts at
    `log_std_init` (detail 24)."""

    def __init__(self, network: nnx.Module, size: int, log_std_init: float = 0.0) -> None:
        super().__init__(network, (size,), np.float32)
        self.logstd = nnx.Param(np.full(size, log_std_init, np.float32))

    def __call__(self, features: Array, mask: Array | None) -> Gaussian:
        return Gaussian(self.network(features), self.logstd[...])
