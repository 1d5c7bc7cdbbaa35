"""Heads and their distributions over actions. All noise is passed in, keyed by streams.py."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

MASKED = -1e8  # the logit of an action that is not allowed (detail A4)
LOG_2_PI = float(np.log(2 * np.pi))


class Categorical:
    """One choice of A from `logits` (..., A), which are MASKED where the mask (..., A) is False."""

    def __init__(self, logits: Tensor, mask: Tensor | None = None) -> None:
        self.logits, self.mask = logits, mask

    @cached_property
    def log_probabilities(self) -> Tensor:
        """Normalised log-probabilities (..., A)."""
        return self.logits.log_softmax(-1)

    def sample(self, noise: Tensor) -> Tensor:
        """Sample by the Gumbel-max trick: `noise` (..., A) is -log(Exp(1)). Returns (...) int64."""
        return (self.logits + noise).argmax(-1)

    def logprob(self, action: Tensor) -> Tensor:
        return self.log_probabilities.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        logp = self.log_probabilities if self.mask is None else torch.where(self.mask, self.log_probabilities, 0.0)
        return -(logp.exp() * logp).sum(-1)  # masked choices add 0 either way, but exp(-1e8) is slow on CPUs

    def mode(self) -> Tensor:
        return self.logits.argmax(-1)


class MultiCategorical(NamedTuple):
    """Independent choices, one of nvec[i] each: log-probabilities and entropies are summed (detail 37)."""

    parts: tuple[Categorical, ...]

    def sample(self, noise: Tensor) -> Tensor:
        """Sample from `noise` (..., sum of nvec). Returns (..., len(nvec)) int64."""
        sizes = [part.logits.shape[-1] for part in self.parts]
        return torch.stack([part.sample(n) for part, n in zip(self.parts, noise.split(sizes, -1))], -1)

    def logprob(self, action: Tensor) -> Tensor:
        return torch.stack([part.logprob(action[..., i]) for i, part in enumerate(self.parts)]).sum(0)

    def entropy(self) -> Tensor:
        return torch.stack([part.entropy() for part in self.parts]).sum(0)

    def mode(self) -> Tensor:
        return torch.stack([part.mode() for part in self.parts], -1)


class Gaussian(NamedTuple):
    """Independent normal components (details 23 and 25)."""

    mean: Tensor  # (..., k)
    logstd: Tensor  # (k,)

    def sample(self, noise: Tensor) -> Tensor:
        """Sample from `noise` (..., k), standard normal. The action is not clipped to any bounds (detail 27)."""
        return self.mean + self.logstd.exp() * noise

    def logprob(self, action: Tensor) -> Tensor:
        z = (action - self.mean) * torch.exp(-self.logstd)
        return (-0.5 * z * z - self.logstd - 0.5 * LOG_2_PI).sum(-1)

    def entropy(self) -> Tensor:
        return (self.logstd + 0.5 + 0.5 * LOG_2_PI).sum(-1).expand(self.mean.shape[:-1])

    def mode(self) -> Tensor:
        return self.mean


def gumbel_noise(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw -log(Exp(1)); the argmax of its sum with logits is a sample."""
    return -torch.empty(shape).exponential_(generator=generator).log_()


class ActionHead(nn.Module):
    """What all heads share; see proximo.protocols.Head."""

    def __init__(self, network: nn.Module, action_shape: tuple[int, ...], action_dtype: Any) -> None:
        super().__init__()
        self.network, self.action_shape, self.action_dtype = network, action_shape, np.dtype(action_dtype)

    def noise(self, generator: torch.Generator, *lead: int) -> Tensor:
        """Draw standard normal numbers (*lead, *action_shape), from which every Gaussian samples."""
        return torch.empty(*lead, *self.action_shape).normal_(generator=generator)

    def learning_noise(self, generator: torch.Generator, *lead: int) -> Tensor | None:
        return None

    def perturbed(self, dist: Any, noise: Any) -> Any:
        return dist

    def allowed_logits(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Return the outputs of the network, with those of masked actions replaced."""
        logits = self.network(features)
        return logits if mask is None else torch.where(mask, logits, MASKED)


class CategoricalHead(ActionHead):
    """Discrete actions: `network` maps features to logits (..., num_actions)."""

    def __init__(self, network: nn.Module, num_actions: int) -> None:
        super().__init__(network, (), np.int64)
        self.num_actions = num_actions

    def forward(self, features: Tensor, mask: Tensor | None) -> Categorical:
        return Categorical(self.allowed_logits(features, mask), mask)

    def noise(self, generator: torch.Generator, *lead: int) -> Tensor:
        return gumbel_noise(generator, *lead, self.num_actions)


class MultiCategoricalHead(ActionHead):
    """MultiDiscrete actions: `network` maps features to logits (..., sum of nvec) (detail 37)."""

    def __init__(self, network: nn.Module, nvec: Sequence[int]) -> None:
        super().__init__(network, (len(nvec),), np.int64)
        self.nvec = [int(n) for n in nvec]

    def forward(self, features: Tensor, mask: Tensor | None) -> MultiCategorical:
        logits = self.allowed_logits(features, mask).split(self.nvec, -1)
        masks = [None] * len(logits) if mask is None else mask.split(self.nvec, -1)
        return MultiCategorical(tuple(map(Categorical, logits, masks)))

    def noise(self, generator: torch.Generator, *lead: int) -> Tensor:
        return gumbel_noise(generator, *lead, sum(self.nvec))


class GaussianHead(ActionHead):
    """Box actions: `network` maps features to means (..., size); the log standard deviation is a vector of weights
    that starts at `log_std_init` (detail 24)."""

    def __init__(self, network: nn.Module, size: int, log_std_init: float = 0.0) -> None:
        super().__init__(network, (size,), np.float32)
        self.logstd = nn.Parameter(torch.full((size,), log_std_init))

    def forward(self, features: Tensor, mask: Tensor | None) -> Gaussian:
        return Gaussian(self.network(features), self.logstd)
