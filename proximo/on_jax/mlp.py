"""Networks of linear layers, for flat observations. They take arrays of JAX, or of numpy to act on the host."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from proximo.on_jax.networks import Linear
from proximo.on_jax.parameters import layer_init

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": jnp.tanh, "relu": jax.nn.relu, "elu": jax.nn.elu,
                                                    "gelu": partial(jax.nn.gelu, approximate=False),
                                                    "silu": jax.nn.silu}


def _numpy_gelu(x: np.ndarray) -> Any:
    from scipy.special import erf

    return 0.5 * x * (1 + erf(x * np.asarray(math.sqrt(0.5), x.dtype)))


def _numpy_silu(x: np.ndarray) -> Any:
    from scipy.special import expit

    return x * expit(x)


IN_NUMPY: dict[str, Callable[[np.ndarray], Any]] = {
    "tanh": np.tanh, "relu": lambda x: np.maximum(x, 0), "gelu": _numpy_gelu, "silu": _numpy_silu,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))}


class LayerNorm(nnx.Module):
    """Layer normalisation (Ba et al. 2016, arXiv 1607.06450) with the epsilon of torch."""

    def __init__(self, size: int) -> None:
        self.weight, self.bias = nnx.Param(np.ones(size, np.float32)), nnx.Param(np.zeros(size, np.float32))

    def __call__(self, x: Array) -> Array:
        """Map (..., size) to (..., size)."""
        centred = x - x.mean(-1, keepdims=True)
        deviation = ((centred * centred).mean(-1, keepdims=True) + 1e-5) ** 0.5
        return centred / deviation * self.weight[...] + self.bias[...]


class MLP(nnx.Module):
    """Linear layers with an activation between them (details 13 and 26).

    Args:
        sizes: Units of every layer; the first is the flat size of an observation.
        out_std: Gain of the last layer, which then has no activation; None makes it a hidden layer like the others.
        obs_ndim: Number of axes of an observation.
        orthogonal: See layer_init.
        activation: A key of ACTIVATIONS.
        layer_norm: Normalise the outputs of each linear layer before its activation.
    """

    def __init__(self, sizes: Sequence[int], out_std: float | None = None, obs_ndim: int = 1, orthogonal: bool = True,
                 activation: str = "tanh", layer_norm: bool = False) -> None:
        self.obs_ndim, self.linear_out, self.activation = obs_ndim, out_std is not None, activation
        last = len(sizes) - 2
        self.layers = nnx.List([
            layer_init(Linear(a, b), out_std if i == last and out_std is not None else math.sqrt(2), 0.0, orthogonal)
            for i, (a, b) in enumerate(pairwise(sizes))])
        hidden = sizes[1:-1] if self.linear_out else sizes[1:]
        self.norms = nnx.List([LayerNorm(size) for size in (hidden if layer_norm else ())])

    def __call__(self, x: Array) -> Array:
        """Map (..., *obs_shape) to (..., sizes[-1])."""
        x = x.reshape(*x.shape[:x.ndim - self.obs_ndim], -1).astype(self.layers[0].weight[...].dtype, copy=False)
        activation = (IN_NUMPY if isinstance(x, np.ndarray) else ACTIVATIONS)[self.activation]
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i < last or not self.linear_out:
                x = activation(self.norms[i](x) if self.norms else x)
        return x
