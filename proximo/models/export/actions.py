"""The last part of an exported file: a distribution to the most likely action, as the environment takes it."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from proximo.envs.arrays.joint_actions import part_width
from proximo.envs.arrays.obs_layout import leaves
from proximo.errors import UsageError
from proximo.models.export.ports import Space, part_name
from proximo.on_torch.device import torch_dtype


class WriteNumbers(nn.Module):
    """Choices from 0 to those of the space: `start` is added."""

    start: Tensor

    def __init__(self, space: Space) -> None:
        super().__init__()
        assert space.shape is not None
        self.shape, self.dtype = space.shape, torch_dtype(space.dtype)
        start = np.broadcast_to(getattr(space, "start", 0), space.shape)
        self.register_buffer("start", torch.from_numpy(np.array(start, np.int64)))

    def forward(self, action: Tensor) -> Tensor:
        """(N, width) of any dtype -> (N, *space.shape)."""
        return (action.long().reshape(action.shape[0], *self.shape) + self.start).to(self.dtype)


class WriteBox(nn.Module):
    """Continuous actions, clipped to the bounds of the space (detail 27)."""

    low: Tensor
    high: Tensor

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        self.shape, self.dtype = space.shape, torch_dtype(space.dtype)
        self.computes = torch.promote_types(torch.float32, self.dtype)
        self.register_buffer("low", torch.from_numpy(np.array(space.low)).to(self.computes))
        self.register_buffer("high", torch.from_numpy(np.array(space.high)).to(self.computes))

    def forward(self, action: Tensor) -> Tensor:
        """(N, width) -> (N, *space.shape)."""
        action = action.reshape(action.shape[0], *self.shape).to(self.computes)
        return torch.minimum(torch.maximum(action, self.low), self.high).to(self.dtype)


class MostLikelyAction(nn.Module):
    """A distribution to named outputs.

    Args:
        space: The action space.
        also: An additional output, "logits" (after masking) or "mean" (before clipping), or "".
    """

    def __init__(self, space: Space, also: str) -> None:
        super().__init__()
        found = list(leaves(space))
        self.names, self.also = [part_name("action", path) for path, _ in found], also
        self.widths = [part_width(leaf) for _, leaf in found]
        self.continuous = [isinstance(leaf, spaces.Box) for _, leaf in found]
        self.writers = nn.ModuleList(WriteBox(leaf) if isinstance(leaf, spaces.Box) else WriteNumbers(leaf)
                                     for _, leaf in found)

    def forward(self, dist: Any) -> dict[str, Tensor]:
        """Return the actions by name, and the additional output."""
        mode = dist.mode()
        columns = mode.reshape(mode.shape[0], -1).split(self.widths, -1)
        outputs = {name: write(x) for name, write, x in zip(self.names, self.writers, columns)}
        if self.also == "logits":
            outputs["logits"] = torch.cat(logits_of(dist), -1)
        elif self.also == "mean":
            outputs["mean"] = torch.cat([x for x, kept in zip(columns, self.continuous) if kept], -1)
        return outputs


def logits_of(dist: Any) -> list[Tensor]:
    """Return the logits of every choice of a distribution, in order.

    Raises:
        UsageError: A custom distribution has no logits.
    """
    if hasattr(dist, "logits"):
        return [dist.logits]
    if not hasattr(dist, "parts"):
        raise UsageError(f"--with logits is not available: {type(dist).__name__} has no attribute logits.")
    return [x for part in dist.parts if hasattr(part, "logits") or hasattr(part, "parts") for x in logits_of(part)]
