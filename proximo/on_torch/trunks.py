"""The networks from observations to features: --model for images, an MLP, and encoders for structured observations."""

import math
from collections.abc import Callable, Sequence
from functools import partial

from torch import nn

from proximo.config import Config
from proximo.envs.arrays.model_fit import LEAST_PIXELS, check_model, packed_layout, policy_parts
from proximo.envs.arrays.obs_layout import Layout, Part
from proximo.on_torch.encoders import Encoded, Encoder, SmallCNN
from proximo.on_torch.mlp import MLP
from proximo.on_torch.networks import ImpalaCNN, NatureCNN
from proximo.protocols import Spec


def make_trunk(spec: Spec, cfg: Config) -> tuple[nn.Module, int]:
    """Return the network that policy and value share, and its number of features.

    Args:
        spec: Of the environments.
        cfg: The configuration.

    Raises:
        UsageError: cfg.model does not fit the observations.
    """
    check_model(spec, cfg)
    if cfg.model == "mlp" or packed_layout(spec, cfg) is not None:
        return make_network(spec, cfg.hidden_sizes, cfg), cfg.hidden_sizes[-1]
    return make_image_net(spec.obs_shape, cfg)


def make_network(spec: Spec, sizes: Sequence[int], cfg: Config, out_std: float | None = None,
                 seen: Callable[[Layout, Config], Sequence[Part]] = policy_parts) -> nn.Module:
    """Return an MLP from observations to sizes[-1] units, over an encoder where they are packed.

    Args:
        spec: Of the environments.
        sizes: Units of each layer.
        cfg: The configuration.
        out_std: As for MLP.
        seen: Which parts of packed observations it sees: policy_parts or all_parts.
    """
    layout = packed_layout(spec, cfg)
    if layout is None:
        return make_mlp(spec.obs_shape, sizes, cfg, out_std)
    encoder = Encoder(seen(layout, cfg), partial(make_image_net, cfg=cfg))
    return Encoded(encoder, lambda features: make_mlp((features,), sizes, cfg, out_std))


def make_mlp(obs_shape: Sequence[int], sizes: Sequence[int], cfg: Config, out_std: float | None = None) -> nn.Module:
    """Return an MLP from flat observations to sizes[-1] units; `out_std` as for MLP."""
    return MLP([math.prod(obs_shape), *sizes], out_std, len(obs_shape), cfg.orthogonal_init, cfg.activation,
               cfg.layer_norm)


def make_image_net(shape: tuple[int, ...], cfg: Config) -> tuple[nn.Module, int]:
    """Return a network for images (C, H, W) and its number of features; with --model mlp, one that fits their size."""
    if cfg.model == "impala":
        return ImpalaCNN(shape), 256
    if cfg.model == "cnn":
        return NatureCNN(shape, 512, cfg.orthogonal_init), 512
    if min(shape[1:]) >= LEAST_PIXELS["cnn"]:
        return NatureCNN(shape, 256, cfg.orthogonal_init), 256
    return SmallCNN(shape, 128, cfg.orthogonal_init), 128
