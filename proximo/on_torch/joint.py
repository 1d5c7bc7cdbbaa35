"""Actions of several parts (Tuple and Dict spaces): one distribution over all parts together."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from proximo.on_torch.distributions import ActionHead


class Slot(NamedTuple):
    """The place of one part in an action, which is a row of float32."""

    start: int
    stop: int
    single: bool  # the part is one whole number, without an axis
    whole: bool  # the part consists of whole numbers, which float32 holds exactly up to 2**24

    def read(self, action: Tensor) -> Tensor:
        """Return the part of actions (..., width)."""
        part = action[..., self.start] if self.single else action[..., self.start:self.stop]
        return part.long() if self.whole else part

    def column(self, part: Tensor) -> Tensor:
        """Return a part as columns (..., stop - start) of a row."""
        return (part.unsqueeze(-1) if self.single else part).float()


class Joint(NamedTuple):
    """Independent parts: log-probabilities and entropies are summed, as in detail 37."""

    parts: tuple[Any, ...]  # distributions
    slots: tuple[Slot, ...]
    sizes: tuple[int, ...]  # of the noise of each part

    def sample(self, noise: Tensor) -> Tensor:
        """Sample from `noise` (..., sum of sizes). Returns (..., width) float32."""
        drawn = [part.sample(one) for part, one in zip(self.parts, noise.split(list(self.sizes), -1))]
        return torch.cat([slot.column(x) for slot, x in zip(self.slots, drawn)], -1)

    def logprob(self, action: Tensor) -> Tensor:
        return torch.stack([part.logprob(slot.read(action)) for part, slot in zip(self.parts, self.slots)]).sum(0)

    def entropy(self) -> Tensor:
        return torch.stack([part.entropy() for part in self.parts]).sum(0)

    def mode(self) -> Tensor:
        return torch.cat([slot.column(part.mode()) for part, slot in zip(self.parts, self.slots)], -1)


class JointHead(ActionHead):
    """Actions of several parts: `network` maps features to the outputs of all heads, (..., sum of sizes).

    Args:
        network: The network below all heads.
        heads: One head for each part, over its slice of the outputs.
        sizes: Number of outputs of each head, which is also the size of its noise.
        masked: Whether a mask covers the choices of each head.
    """

    def __init__(self, network: nn.Module, heads: Sequence[nn.Module], sizes: Sequence[int],
                 masked: Sequence[bool]) -> None:
        shapes: list[Any] = [head.action_shape for head in heads]
        widths = [shape[0] if shape else 1 for shape in shapes]
        super().__init__(network, (sum(widths),), np.float32)
        self.heads, self.sizes = nn.ModuleList(heads), list(sizes)
        self.mask_sizes = [size * covered for size, covered in zip(sizes, masked)]
        stops = np.cumsum(widths).tolist()
        self.slots = tuple(Slot(start=stop - width, stop=stop, single=not shape,
                                whole=bool(np.issubdtype(head.action_dtype, np.integer)))  # type: ignore[arg-type]
                           for head, shape, width, stop in zip(heads, shapes, widths, stops))

    def forward(self, features: Tensor, mask: Tensor | None) -> Joint:
        outputs = self.network(features).split(self.sizes, -1)
        masks = [None] * len(outputs) if mask is None else mask.split(self.mask_sizes, -1)
        parts = tuple(head(x, allowed if allowed is not None and allowed.shape[-1] else None)
                      for head, x, allowed in zip(self.heads, outputs, masks))
        return Joint(parts, self.slots, tuple(self.sizes))

    def noise(self, generator: torch.Generator, *lead: int) -> Tensor:
        return torch.cat([head.noise(generator, *lead) for head in self.heads], -1)  # type: ignore[operator]
