"""The first part of an exported file: observations as the environment returns them to what the network reads."""

from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from proximo.config import Config
from proximo.envs.arrays.image_axes import Axes, image_axes
from proximo.envs.arrays.model_fit import packed_layout
from proximo.envs.arrays.moments import Moments
from proximo.envs.arrays.obs_layout import Layout, Part, obs_layout
from proximo.envs.arrays.spaces import read_space
from proximo.envs.normalize import EPSILON
from proximo.models.export.ports import Space, part_name
from proximo.on_torch.device import torch_dtype
from proximo.on_torch.encoders import Encoder, OneHot
from proximo.protocols import Spec


class Pixels(nn.Module):
    """Images (N, as the environment returns them) to (N, C, H, W); other arrays keep their axes."""

    def __init__(self, axes: Axes, dtype: torch.dtype) -> None:
        super().__init__()
        self.axes, self.dtype = axes, dtype

    def forward(self, x: Tensor) -> Tensor:
        """Move the channels, and convert the numbers."""
        x = x.movedim(-1, -3) if self.axes == "last" else x.unsqueeze(-3) if self.axes == "grey" else x
        return x.to(self.dtype)


class Numbers(nn.Module):
    """Arrays (N, ...) to (N, k) of one dtype; `start` is subtracted from whole numbers."""

    start: Tensor | None

    def __init__(self, dtype: torch.dtype, start: Any = None) -> None:
        super().__init__()
        self.dtype = dtype
        self.register_buffer("start", None if start is None else torch.as_tensor(np.ravel(start)))

    def forward(self, x: Tensor) -> Tensor:
        """Flatten, subtract, convert."""
        x = x.reshape(x.shape[0], -1)
        return (x if self.start is None else x - self.start).to(self.dtype)


class Normalize(nn.Module):
    """Observations normalised with fixed statistics, in their precision (envs/normalize.py)."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: np.ndarray, var: np.ndarray, clip: float) -> None:
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(np.array(mean)))
        self.register_buffer("std", torch.from_numpy(np.sqrt(var + EPSILON)))
        self.clip = clip

    def forward(self, x: Tensor) -> Tensor:
        """(N, *shape) -> the same, float32."""
        return ((x.to(self.mean.dtype) - self.mean) / self.std).clamp(-self.clip, self.clip).float()


class WholeObservation(nn.Module):
    """An observation that the network reads as one array, from one input or from several vectors."""

    def __init__(self, readers: dict[str, nn.Module], normalize: nn.Module) -> None:
        super().__init__()
        self.names, self.readers, self.normalize = list(readers), nn.ModuleList(readers.values()), normalize

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return (N, *obs_shape)."""
        parts = [read(inputs[name]) for name, read in zip(self.names, self.readers)]
        return cast(Tensor, self.normalize(parts[0] if len(parts) == 1 else torch.cat(parts, -1)))


class PartsOfObservation(nn.Module):
    """An observation of several parts, which an encoder reads one by one. Parts that are no input are zeros."""

    def __init__(self, readers: dict[str, nn.Module], normalize: list[nn.Module], parts: tuple[Part, ...]) -> None:
        super().__init__()
        self.names, self.readers = list(readers), nn.ModuleList(readers.values())
        self.normalize = nn.ModuleList(normalize)
        self.empty = [(part.shape, torch_dtype(part.dtype)) for part in parts]

    def forward(self, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return (N, *part.shape) of each part."""
        rows = next(iter(inputs.values())).shape[0]
        return tuple(normalize(read(inputs[name]) if name in inputs else torch.zeros(rows, *shape, dtype=dtype))
                     for name, read, normalize, (shape, dtype)
                     in zip(self.names, self.readers, self.normalize, self.empty))


class PartsEncoder(nn.Module):
    """An encoder that gets the parts instead of packed rows."""

    def __init__(self, encoder: Encoder, layout: Layout) -> None:
        super().__init__()
        places = {part.start: i for i, part in enumerate(layout.parts)}
        self.encoder, self.places = encoder, [places[start] for start, *_ in encoder.slices]

    def forward(self, parts: tuple[Tensor, ...]) -> Tensor:
        """Map parts (N, *part.shape) to (N, features)."""
        return self.encoder.encode([parts[i] for i in self.places])


def make_observation(spec: Spec, cfg: Config, moments: Moments | None) -> nn.Module:
    """Return the module from named inputs to what the network reads."""
    layout = obs_layout(spec.observation_space)
    if layout is None:
        return WholeObservation({"obs": _reader(spec)}, _normalizer(moments, slice(None), cfg))
    readers = {part_name("obs", part.path): _part_reader(part) for part in layout.parts}
    if packed_layout(spec, cfg) is None:
        return WholeObservation(readers, _normalizer(moments, slice(None), cfg))
    normalize: list[nn.Module] = []
    start = 0  # among the numbers that are normalised
    for part in layout.parts:
        stop = start + part.shape[0] * part.is_float_vector
        normalize.append(_normalizer(moments if part.is_float_vector else None, slice(start, stop), cfg))
        start = stop
    return PartsOfObservation(readers, normalize, layout.parts)


def read_parts(agent: nn.Module, spec: Spec, cfg: Config) -> None:
    """Replace the encoders of an agent, which read packed rows, by ones that get the parts."""
    layout = packed_layout(spec, cfg)
    if layout is None:
        return
    for module in list(agent.modules()):
        for name, child in module.named_children():
            if isinstance(child, Encoder):
                setattr(module, name, PartsEncoder(child, layout))


def _normalizer(moments: Moments | None, part: slice, cfg: Config) -> nn.Module:
    return nn.Identity() if moments is None else Normalize(moments.mean[part], moments.var[part], cfg.clip_obs)


def _reader(spec: Spec) -> nn.Module:
    """Return what reads an observation of one array."""
    space: Space | None = spec.observation_space
    if space is None:
        return nn.Identity()
    reader = read_space(space, "the model's environment")
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        choices = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec).tolist()
        return nn.Sequential(Numbers(torch.int64, space.start), OneHot(choices))
    if isinstance(space, spaces.MultiBinary) or space.shape == ():
        return Numbers(torch_dtype(reader.dtype))
    return Pixels(reader.axes, torch_dtype(reader.dtype))


def _part_reader(part: Part) -> nn.Module:
    """Return what reads one part of an observation."""
    if part.kind == "image":
        return Pixels(image_axes(part.space), torch_dtype(part.dtype))
    start = part.space.start if part.kind == "discrete" else None  # type: ignore[attr-defined]
    return Numbers(torch_dtype(part.dtype), start)
