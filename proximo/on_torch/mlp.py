"""Networks of linear layers, for flat observations."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from proximo.on_torch.networks import layer_init

# By --activation. GELU (Hendrycks & Gimpel 2016, arXiv 1606.08415) is x times the normal distribution function, by erf.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": F.relu, "elu": F.elu, "gelu": F.gelu,
                                                      "silu": F.silu}


class MLP(nn.Module):
    """Linear layers with an activation between them (details 13 and 26).

    Args:
        sizes: Number of units of each layer, starting with the flat size of an observation.
        out_std: Gain of the last layer, which then has no activation. None: it has one, as the others.
        obs_ndim: Number of axes of an observation.
        orthogonal: Initialise by layer_init.
        activation: A key of ACTIVATIONS.
        layer_norm: Normalise the outputs of each linear layer before its activation (Ba et al. 2016, arXiv 1607.06450).
    """

    def __init__(self, sizes: Sequence[int], out_std: float | None = None, obs_ndim: int = 1, orthogonal: bool = True,
                 activation: str = "tanh", layer_norm: bool = False) -> None:
        super().__init__()
        self.obs_ndim, self.linear_out, self.activation = obs_ndim, out_std is not None, ACTIVATIONS[activation]
        last = len(sizes) - 2
        self.layers = nn.ModuleList(
            layer_init(nn.Linear(a, b), out_std if i == last and out_std is not None else math.sqrt(2), 0.0, orthogonal)
            for i, (a, b) in enumerate(itertools.pairwise(sizes)))
        hidden = sizes[1:-1] if self.linear_out else sizes[1:]
        self.norms = nn.ModuleList(map(nn.LayerNorm, hidden if layer_norm else ()))
        self.layer_norm = layer_norm

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., *obs_shape) to (..., sizes[-1])."""
        x = x.flatten(-self.obs_ndim) if self.obs_ndim > 1 else x
        x = x.to(cast(nn.Linear, self.layers[0]).weight.dtype)
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i < last or not self.linear_out:
                x = self.activation(self.norms[i](x) if self.layer_norm else x)
        return x
