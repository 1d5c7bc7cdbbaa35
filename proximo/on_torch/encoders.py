"""The first layer of a network over packed rows: every part of an observation becomes features."""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from proximo.envs.arrays.obs_layout import Part
from proximo.errors import UsageError
from proximo.on_torch.device import torch_dtype
from proximo.on_torch.networks import layer_init, scaled_images

MakeImageNet = Callable[[tuple[int, ...]], tuple[nn.Module, int]]  # (C, H, W) -> (network, number of features)


class SmallCNN(nn.Module):
    """Three 3x3 convolutions, each with a pooling by 2, and a dense layer: for images from 8x8."""

    def __init__(self, obs_shape: Sequence[int], features: int = 128, orthogonal: bool = True) -> None:
        super().__init__()
        channels, height, width = obs_shape
        self.convs = nn.ModuleList()
        for depth in (16, 32, 32):
            self.convs.append(layer_init(nn.Conv2d(channels, depth, 3, padding=1), orthogonal=orthogonal))
            channels, height, width = depth, (height + 1) // 2, (width + 1) // 2
        self.dense = layer_init(nn.Linear(channels * height * width, features), orthogonal=orthogonal)

    def forward(self, obs: Tensor) -> Tensor:
        """Map (..., C, H, W) to (..., features)."""
        x = scaled_images(obs, self.dense.weight.dtype)
        for conv in self.convs:
            x = F.max_pool2d(F.relu(conv(x)), 3, stride=2, padding=1)
        return F.relu(self.dense(x.flatten(1))).unflatten(0, obs.shape[:-3])


class OneHot(nn.Module):
    """Whole numbers as flags: one for every choice of every number."""

    number: Tensor
    choice: Tensor

    def __init__(self, choices: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("number", torch.arange(len(choices)).repeat_interleave(torch.tensor(choices)), False)
        self.register_buffer("choice", torch.cat([torch.arange(n) for n in choices]), False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., numbers) to (..., sum of choices) float32."""
        return (x.index_select(-1, self.number) == self.choice).float()


class Flat(nn.Module):
    """A vector as float32."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., k) to (..., k)."""
        return x.float()


class Encoder(nn.Module):
    """Takes packed rows (obs_layout.py) apart: images through networks, whole numbers to flags, vectors as they are.

    Without images the features are those of gymnasium.spaces.flatten, in the same order.

    Args:
        parts: The parts to read; others of the row are left out.
        make_image_net: Makes the network of one image; None: the parts have no images.

    Raises:
        UsageError: A part is an image, and there is no function for images.
    """

    def __init__(self, parts: Sequence[Part], make_image_net: MakeImageNet | None = None) -> None:
        super().__init__()
        self.slices = [(part.start, part.stop, torch_dtype(part.dtype), part.shape)
                       for part in parts]
        self.nets, self.features = nn.ModuleList(), 0
        for part in parts:
            net, features = make_part_net(part, make_image_net)
            self.nets.append(net)
            self.features += features

    def forward(self, rows: Tensor) -> Tensor:
        """Map (..., size) to (..., features)."""
        return self.encode([take_part(rows[..., start:stop], dtype).unflatten(-1, shape)
                            for start, stop, dtype, shape in self.slices])

    def encode(self, parts: Sequence[Tensor]) -> Tensor:
        """Map the parts that are read, (..., *part.shape) each, to (..., features)."""
        return torch.cat([net(part) for net, part in zip(self.nets, parts)], -1)


def take_part(items: Tensor, dtype: torch.dtype) -> Tensor:
    """Read the items of a row (..., k), bytes or numbers, as numbers; bytes get another dtype."""
    return items.contiguous().view(dtype) if items.dtype == torch.uint8 else items


def make_part_net(part: Part, make_image_net: MakeImageNet | None) -> tuple[nn.Module, int]:
    """Return the network of one part, and its number of features."""
    if part.kind == "image":
        if make_image_net is None:
            raise UsageError(f"{part.name} is an image, and make_image_net=None. Pass a function that "
                             "makes its network.")
        return make_image_net(part.shape)
    if part.kind == "discrete":
        return OneHot(part.choices), sum(part.choices)
    return Flat(), part.shape[0]


class Encoded(nn.Module):
    """A network over the features of an encoder."""

    def __init__(self, encoder: Encoder, network: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.encoder, self.network = encoder, network(encoder.features)

    def forward(self, rows: Tensor) -> Tensor:
        """Map packed rows (..., size) to what the network makes of their features."""
        return cast(Tensor, self.network(self.encoder(rows)))
