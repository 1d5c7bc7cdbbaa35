"""--norm-value: the value function learns returns in their running standard deviations, from their running mean."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array, lax

from proximo.config import Config
from proximo.envs.arrays.moments import MOST_COUNTED
from proximo.envs.normalize import EPSILON
from proximo.on_jax.parameters import Weights
from proximo.types import LossInputs

START_COUNT = 1e-8  # the weight of the mean 0 and variance 1 that the moments begin with


class NormalizedCritic(nnx.Module):
    """A value function whose network computes normalised values. Its output has the scale of the rewards.

    The moments are parameters without a gradient, so that they are saved and loaded with the weights.

    Args:
        network: Maps its input (..., k) to values (..., 1).
    """

    def __init__(self, network: nnx.Module) -> None:
        self.network = network
        self.return_mean = nnx.Param(np.zeros((), np.float32))
        self.return_var = nnx.Param(np.ones((), np.float32))
        self.return_count = nnx.Param(np.full((), START_COUNT, np.float32))

    def __call__(self, x: Array) -> Array:
        mean, std = self._moments()
        return self.network(x) * std + mean  # type: ignore[operator, no-any-return]

    def normalize(self, value: Array) -> Array:
        """Return values, or returns, in standard deviations from the mean return."""
        mean, std = self._moments()
        return (value - mean) / std

    def _moments(self) -> tuple[Array, Array]:
        """Return mean and standard deviation, which get no gradient."""
        return lax.stop_gradient((self.return_mean[...], jnp.sqrt(self.return_var[...] + EPSILON)))


def find_critics(agent: nnx.Module) -> list[NormalizedCritic]:
    """Return every NormalizedCritic of an agent: one with --norm-value, otherwise none."""
    return [part for _, part in nnx.iter_modules(agent) if isinstance(part, NormalizedCritic)]


def with_normalized_values(loss_fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a loss function that gets normalised values and returns, so that they are also clipped as such."""
    def loss(batch: LossInputs, cfg: Config) -> Any:
        normalize = find_critics(batch.agent)[0].normalize
        return loss_fn(batch._replace(value=normalize(batch.value), old_value=normalize(batch.old_value),
                                      ret=normalize(batch.ret)), cfg)

    return loss


def count_returns(weights: Weights, ret: Array, valid: Array, all_reduce_sum: Callable[[Any], Any],
                  ok: Array | bool = True) -> Weights:
    """Add returns (T, N) to the moments among the weights: those of valid rows, of all ranks (Chan et al. 1983).

    Rows before the last 2**23 lose their weight gradually, because float32 counts no further than 2**24. The moments
    stay as they are where `ok`, (), is False, which is Adam's, or where they would not be finite.
    """
    critic = next(name for name in weights if name.endswith("return_count")).removesuffix("count")
    number, total = all_reduce_sum((valid.sum().astype(ret.dtype), jnp.where(valid, ret, 0.0).sum()))
    mean = total / jnp.maximum(number, 1.0)
    within = all_reduce_sum(jnp.square(jnp.where(valid, ret - mean, 0.0)).sum())
    count = jnp.minimum(weights[f"{critic}count"], MOST_COUNTED)
    share, delta = number / (count + number), mean - weights[f"{critic}mean"]
    spread = weights[f"{critic}var"] * count + within + jnp.square(delta) * count * share
    counted = {f"{critic}mean": weights[f"{critic}mean"] + delta * share, f"{critic}var": spread / (count + number),
               f"{critic}count": count + number}
    ok = ok & jnp.isfinite(spread)
    return weights | {name: jnp.where(ok, x, weights[name]) for name, x in counted.items()}
