"""Networks for images, and the recurrent layer. Images are uint8, channels first, and divided by 255 only here."""

import itertools
import math
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Layer = TypeVar("Layer", bound=nn.Module)
CHANNELS_LAST_ROWS = 32  # from this number of images on, channels last is faster


def layer_init(layer: Layer, std: float = math.sqrt(2), bias: float = 0.0, orthogonal: bool = True) -> Layer:
    """Set orthogonal weights of gain `std` and constant biases (detail 2), or nothing if `orthogonal` is False."""
    if orthogonal:
        for name, parameter in layer.named_parameters(recurse=False):
            if name.startswith("weight"):
                nn.init.orthogonal_(parameter, std)
            else:
                nn.init.constant_(parameter, bias)
    return layer


def scaled_images(obs: Tensor, dtype: torch.dtype) -> Tensor:
    """Map images (..., C, H, W) of uint8, or of floats in [0, 1], to (rows, C, H, W) in [0, 1] (detail 22), with their
    channels last for large batches."""
    x = obs.flatten(0, -4) if obs.ndim > 4 else obs
    x = x.to(dtype) / 255.0 if x.dtype == torch.uint8 else x.to(dtype)
    if torch.compiler.is_exporting():  # an exported file takes any number of rows
        return x
    return x.contiguous(memory_format=torch.channels_last) if x.shape[0] >= CHANNELS_LAST_ROWS else x


class NatureCNN(nn.Module):
    """Three convolutions and a dense layer (Mnih et al. 2015; detail 21)."""

    def __init__(self, obs_shape: Sequence[int], features: int = 512, orthogonal: bool = True) -> None:
        super().__init__()
        channels, height, width = obs_shape
        self.convs = nn.ModuleList(layer_init(conv, orthogonal=orthogonal) for conv in (
            nn.Conv2d(channels, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1)))
        for size, stride in ((8, 4), (4, 2), (3, 1)):
            height, width = (height - size) // stride + 1, (width - size) // stride + 1
        self.dense = layer_init(nn.Linear(64 * height * width, features), orthogonal=orthogonal)

    def forward(self, obs: Tensor) -> Tensor:
        """Map (..., C, H, W) to (..., features)."""
        x = scaled_images(obs, self.dense.weight.dtype)
        for conv in self.convs:
            x = F.relu(conv(x))
        return F.relu(self.dense(x.flatten(1))).unflatten(0, obs.shape[:-3])


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.convs[0](F.relu(x))
        return x + self.convs[1](F.relu(y))


class ImpalaCNN(nn.Module):
    """The residual network of IMPALA (Espeholt et al. 2018, figure 3) with torch's initialisation."""

    def __init__(self, obs_shape: Sequence[int], features: int = 256, depths: Sequence[int] = (16, 32, 32)) -> None:
        super().__init__()
        channels, height, width = obs_shape
        self.convs, self.blocks = nn.ModuleList(), nn.ModuleList()
        for depth in depths:
            self.convs.append(nn.Conv2d(channels, depth, 3, padding=1))
            self.blocks.append(nn.Sequential(ResidualBlock(depth), ResidualBlock(depth)))
            channels, height, width = depth, (height + 1) // 2, (width + 1) // 2
        self.dense = nn.Linear(channels * height * width, features)

    def forward(self, obs: Tensor) -> Tensor:
        """Map (..., C, H, W) to (..., features)."""
        x = scaled_images(obs, self.dense.weight.dtype)
        for conv, block in zip(self.convs, self.blocks):
            x = block(F.max_pool2d(conv(x), 3, stride=2, padding=1))
        return F.relu(self.dense(F.relu(x.flatten(1)))).unflatten(0, obs.shape[:-3])


class RecurrentLayer(nn.Module):
    """An LSTM or GRU with orthogonal weights and zero biases (detail 32).

    The state is a tuple of (N, memory_size) tensors. It is zero at the start (detail 33) and wherever an episode
    begins (detail 34).
    """

    def __init__(self, kind: str, features: int, memory_size: int, orthogonal: bool = True) -> None:
        super().__init__()
        self.memory_size, self.parts = memory_size, 2 if kind == "lstm" else 1
        self.cell = (nn.LSTM if kind == "lstm" else nn.GRU)(features, memory_size)
        layer_init(self.cell, 1.0, 0.0, orthogonal)

    def initial_state(self, num_envs: int, device: torch.device | str = "cpu") -> tuple[Tensor, ...]:
        """Return zeros, (num_envs, memory_size) each."""
        dtype = next(self.cell.parameters()).dtype
        return tuple(torch.zeros(num_envs, self.memory_size, dtype=dtype, device=device) for _ in range(self.parts))

    def forward(self, x: Tensor, first: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Advance by one step, x (N, F) and first (N,), or by a sequence, x (T, n, F) and first (T, n) (detail 36)."""
        if first.ndim == 1:
            y, state = self._segment(x[None], first, state)
            return y[0], state
        starts = [0, *(torch.nonzero(first[1:].any(1)).flatten() + 1).tolist(), len(x)]
        outputs = []
        for a, b in itertools.pairwise(starts):
            y, state = self._segment(x[a:b], first[a], state)
            outputs.append(y)
        return torch.cat(outputs), state

    def _segment(self, x: Tensor, first: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Advance by (t, n, F), where episodes begin only at the first step."""
        state = tuple(torch.where(first[:, None], 0.0, part)[None] for part in state)
        y, state = self.cell(x, state if self.parts == 2 else state[0])
        return y, tuple(part[0] for part in (state if self.parts == 2 else (state,)))
