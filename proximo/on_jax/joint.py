"""Actions of several parts (Tuple and Dict spaces): one distribution over all parts together."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from jax import Array
from jax import numpy as jnp

from proximo.on_jax.distributions import ActionHead, array_module, split


class Slot(NamedTuple):
    """The place of one part in an action, which is a row of float32."""

    start: int
    stop: int
    single: bool  # the part is one whole number, without an axis
    whole: bool  # the part consists of whole numbers, which float32 holds exactly up to 2**24

    def read(self, action: Array) -> Array:
        """Return the part of actions (..., width)."""
        part = action[..., self.start] if self.single else action[..., self.start:self.stop]
        return part.astype(np.int32) if self.whole else part

    def column(self, part: Array) -> Array:
        """Return a part as columns (..., stop - start) of a row."""
        return (part[..., None] if self.single else part).astype(np.float32)


@partial(jax.tree_util.register_dataclass, data_fields=["parts"], meta_fields=["slots", "sizes"])
@dataclass(frozen=True)
class Joint:
    """Independent parts: log-probabilities and entropies are summed, as in detail 37."""

    parts: tuple[Any, ...]  # distributions
    slots: tuple[Slot, ...]
    sizes: tuple[int, ...]  # of the noise of each part

    def sample(self, noise: Array) -> Array:
        """Return (..., width) float32; `noise` is (..., sum of sizes)."""
        drawn = [part.sample(one) for part, one in zip(self.parts, split(noise, self.sizes))]
        return array_module(noise).concatenate([slot.column(x) for slot, x in zip(self.slots, drawn)], -1)

    def logprob(self, action: Array) -> Array:
        return reduce(add, (part.logprob(slot.read(action)) for part, slot in zip(self.parts, self.slots)))

    def entropy(self) -> Array:
        return reduce(add, (part.entropy() for part in self.parts))

    def mode(self) -> Array:
        return jnp.concatenate([slot.column(part.mode()) for part, slot in zip(self.parts, self.slots)], -1)


class JointHead(ActionHead):
    """Actions of several parts: `network` maps features to the outputs of all heads, (..., sum of sizes).

    Args:
        network: The network below all heads.
        heads: One head for each part, over its slice of the outputs.
        sizes: Number of outputs of each head, which is also the size of its noise.
        masked: Whether a mask covers the choices of each head.
    """

    def __init__(self, network: nnx.Module, heads: Sequence[Any], sizes: Sequence[int],
                 masked: Sequence[bool]) -> None:
        widths = [head.action_shape[0] if head.action_shape else 1 for head in heads]
        super().__init__(network, (sum(widths),), np.float32)
        self.heads, self.sizes = nnx.List(list(heads)), tuple(sizes)
        self.mask_sizes = tuple(size * covered for size, covered in zip(sizes, masked))
        self.places = tuple((int(stop) - width, int(stop), not head.action_shape,
                             bool(np.issubdtype(head.action_dtype, np.integer)))
                            for head, width, stop in zip(heads, widths, np.cumsum(widths)))

    def __call__(self, features: Array, mask: Array | None) -> Joint:
        network: Any = self.network
        outputs = split(network(features), self.sizes)
        masks = [None] * len(outputs) if mask is None else split(mask, self.mask_sizes)
        parts = tuple(head(x, allowed if allowed is not None and allowed.shape[-1] else None)
                      for head, x, allowed in zip(self.heads, outputs, masks))
        return Joint(parts, tuple(Slot(*place) for place in self.places), self.sizes)

    def noise(self, key: Array, *lead: int) -> Array:
        """Draw (*lead, sum of sizes) for Joint.sample."""
        keys = jax.random.split(key, len(self.heads))
        return jnp.concatenate([head.noise(one, *lead) for head, one in zip(self.heads, keys)], -1)
