"""The first layer of a network over packed rows: every part of an observation becomes features. Names as in torch."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax import Array, lax

from proximo.envs.arrays.obs_layout import Part
from proximo.errors import UsageError
from proximo.on_jax.distributions import array_module
from proximo.on_jax.networks import Conv, Linear, flatten_images, max_pool, scale_images
from proximo.on_jax.parameters import layer_init

MakeImageNet = Callable[[tuple[int, ...]], tuple[nnx.Module, int]]  # (C, H, W) -> (network, number of features)


class SmallCNN(nnx.Module):
    """Three 3x3 convolutions, each with a pooling by 2, and a dense layer: for images from 8x8."""

    def __init__(self, obs_shape: Sequence[int], features: int = 128, orthogonal: bool = True) -> None:
        channels, height, width = obs_shape
        convs = []
        for depth in (16, 32, 32):
            convs.append(layer_init(Conv(channels, depth, 3, padding=1), orthogonal=orthogonal))
            channels, height, width = depth, (height + 1) // 2, (width + 1) // 2
        self.convs = nnx.List(convs)
        self.dense = layer_init(Linear(channels * height * width, features), orthogonal=orthogonal)

    def __call__(self, obs: Array) -> Array:
        """Map (..., C, H, W) to (..., features)."""
        x = scale_images(obs, self.dense.weight[...].dtype)
        for conv in self.convs:
            x = max_pool(jax.nn.relu(conv(x)))
        return jax.nn.relu(self.dense(flatten_images(x))).reshape(*obs.shape[:-3], -1)


class OneHot(nnx.Module):
    """Whole numbers as flags: one for every choice of every number."""

    def __init__(self, choices: Sequence[int]) -> None:
        self.choices = tuple(choices)

    def __call__(self, x: Array) -> Array:
        """Map (..., numbers) to (..., sum of choices) float32."""
        number = np.repeat(np.arange(len(self.choices)), self.choices)
        return (x[..., number] == np.concatenate([np.arange(n) for n in self.choices])).astype(np.float32)


class Flat(nnx.Module):
    """A vector as float32."""

    def __call__(self, x: Array) -> Array:
        """Map (..., k) to (..., k)."""
        return x.astype(np.float32)


class Encoder(nnx.Module):
    """Takes packed rows (obs_layout.py) apart: images through networks, whole numbers to flags, vectors as they are.

    Without images the features are those of gymnasium.spaces.flatten, in the same order, and numpy rows give a numpy
    array.

    Args:
        parts: The parts to read; others of the row are left out.
        make_image_net: Makes the network of one image; None: the parts have no images.

    Raises:
        UsageError: A part is an image, and there is no function for images.
    """

    def __init__(self, parts: Sequence[Part], make_image_net: MakeImageNet | None = None) -> None:
        self.slices = tuple((part.start, part.stop, part.dtype.name, part.shape) for part in parts)
        nets, self.features = [], 0
        for part in parts:
            net, features = make_part_net(part, make_image_net)
            nets.append(net)
            self.features += features
        self.nets = nnx.List(nets)

    def __call__(self, rows: Array) -> Array:
        """Map (..., size) to (..., features)."""
        columns = [net(take_part(rows[..., start:stop], np.dtype(dtype), shape))
                   for net, (start, stop, dtype, shape) in zip(self.nets, self.slices)]
        return array_module(rows).concatenate(columns, -1)


def take_part(items: Array, dtype: np.dtype, shape: tuple[int, ...]) -> Array:
    """Read the items of a row (..., k), bytes or numbers, as an array (..., *shape); bytes get another dtype."""
    lead = items.shape[:-1]
    if items.dtype != np.uint8 or dtype == np.uint8:
        return items.reshape(*lead, *shape)
    if isinstance(items, np.ndarray):
        items = np.ascontiguousarray(items).view(dtype)
    else:
        bytes_of_each = (dtype.itemsize,) if dtype.itemsize > 1 else ()
        items = lax.bitcast_convert_type(items.reshape(*lead, math.prod(shape), *bytes_of_each), dtype)
    return items.reshape(*lead, *shape)


def make_part_net(part: Part, make_image_net: MakeImageNet | None) -> tuple[nnx.Module, int]:
    """Return the network of one part, and its number of features."""
    if part.kind == "image":
        if make_image_net is None:
            raise UsageError(f"{part.name} is an image, and make_image_net=None. Pass a function that "
                             "makes its network.")
        return make_image_net(part.shape)
    if part.kind == "discrete":
        return OneHot(part.choices), sum(part.choices)
    return Flat(), part.shape[0]


class Encoded(nnx.Module):
    """A network over the features of an encoder."""

    def __init__(self, encoder: Encoder, network: Callable[[int], nnx.Module]) -> None:
        self.encoder, self.network = encoder, network(encoder.features)

    def __call__(self, rows: Array) -> Array:
        """Map packed rows (..., size) to what the network makes of their features."""
        network: Any = self.network
        return network(self.encoder(rows))  # type: ignore[no-any-return]
