"""Heads: features to a distribution over actions. Noise comes in from outside, keyed by streams.py."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

MASKED = -1e8  # the logit of an action that is not allowed (detail A4)
LOG_2_PI = float(np.log(2 * np.pi))


class Categorical:
    """One choice of A from `logits` (..., A), normalised only where a probability is asked for."""

    def __init__(self, logits: Tensor):
        self.logits = logits

    @cached_property
    def logp(self) -> Tensor:
        """(..., A) normalised log-probabilities."""
        return self.logits.log_softmax(-1)

    def sample(self, noise: Tensor) -> Tensor:
        """The Gumbel-max trick: noise (..., A) of -log(Exp(1)); returns (...) int64."""
        return (self.logits + noise).argmax(-1)

    def logprob(self, action: Tensor) -> Tensor:
        return self.logp.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.logp.exp() * self.logp).sum(-1)

    def mode(self) -> Tensor:
        return self.logits.argmax(-1)

    def perturbed(self, noise: Tensor | None) -> "Categorical":
        return self


class MultiCategorical(NamedTuple):
    """Independent choices, one of nvec[i] each; log-probabilities and entropies add up (detail 37)."""

    parts: tuple[Categorical, ...]

    def sample(self, noise: Tensor) -> Tensor:
        """noise (..., sum of nvec); returns (..., len(nvec)) int64."""
        sizes = [part.logits.shape[-1] for part in self.parts]
        return torch.stack([part.sample(n) for part, n in zip(self.parts, noise.split(sizes, -1))], -1)

    def logprob(self, action: Tensor) -> Tensor:
        return torch.stack([part.logprob(action[..., i]) for i, part in enumerate(self.parts)]).sum(0)

    def entropy(self) -> Tensor:
        return torch.stack([part.entropy() for part in self.parts]).sum(0)

    def mode(self) -> Tensor:
        return torch.stack([part.mode() for part in self.parts], -1)

    def perturbed(self, noise: Tensor | None) -> "MultiCategorical":
        return self


class Gaussian(NamedTuple):
    """Independent normal components (details 23 and 25)."""

    mean: Tensor  # (..., k)
    logstd: Tensor  # (k,)

    def sample(self, noise: Tensor) -> Tensor:
        """noise (..., k) standard normal; returns (..., k), not clipped to any bounds (detail 27)."""
        return self.mean + self.logstd.exp() * noise

    def logprob(self, action: Tensor) -> Tensor:
        z = (action - self.mean) * torch.exp(-self.logstd)
        return (-0.5 * z * z - self.logstd - 0.5 * LOG_2_PI).sum(-1)

    def entropy(self) -> Tensor:
        return (self.logstd + 0.5 + 0.5 * LOG_2_PI).sum(-1).expand(self.mean.shape[:-1])

    def mode(self) -> Tensor:
        return self.mean

    def perturbed(self, noise: Tensor | None) -> "Gaussian":
        """The mean moved by `noise` (..., k); None: no shift. Only RPO has noise for learning."""
        return self if noise is None else Gaussian(self.mean + noise, self.logstd)


def gumbel_noise(generator: torch.Generator, *shape: int) -> Tensor:
    """-log(Exp(1)), the noise whose argmax with logits samples from them."""
    return -torch.empty(shape).exponential_(generator=generator).log_()


class CategoricalHead(nn.Module):
    """Discrete actions: `network` maps features to (..., num_actions) logits."""

    def __init__(self, network: nn.Module, num_actions: int):
        super().__init__()
        self.network, self.num_actions = network, num_actions
        self.action_shape, self.action_dtype = (), np.dtype(np.int64)

    def forward(self, features: Tensor, mask: Tensor | None) -> Categorical:
        logits = self.network(features)
        logits = logits if mask is None else torch.where(mask, logits, MASKED)
        return Categorical(logits)

    def noise(self, generator: torch.Generator, *lead: int) -> Tensor:
        """(*lead, num_actions), for sample."""
        return gumbel_noise(generator, *lead, self.num_actions)

    def learning_noise(self, generator: torch.Generator, *lead: int) -> Tensor | None:
        return None


class MultiCategoricalHead(nn.Module):
    """MultiDiscrete actions: `network` maps features to (..., sum of nvec) logits (detail 37)."""

    def __init__(self, network: nn.Module, nvec: Sequence[int]):
        super().__init__()
        self.network, self.nvec = network, [int(n) for n in nvec]
        self.action_shape, self.action_dtype = (len(self.nvec),), np.dtype(np.int64)

    def forward(self, features: Tensor, mask: Tensor | None) -> MultiCategorical:
        logits = self.network(features)
        logits = logits if mask is None else torch.where(mask, logits, MASKED)
        return MultiCategorical(tuple(Categorical(part) for part in logits.split(self.nvec, -1)))

    def noise(self, generator: torch.Generator, *lead: int) -> Tensor:
        """(*lead, sum of nvec), for sample."""
        return gumbel_noise(generator, *lead, sum(self.nvec))

    def learning_noise(self, generator: torch.Generator, *lead: int) -> Tensor | None:
        return None


class GaussianHead(nn.Module):
    """Box actions: `network` maps features to (..., size) means; the deviation is a free vector, log 0 (detail 24)."""

    def __init__(self, network: nn.Module, size: int):
        super().__init__()
        self.network, self.logstd = network, nn.Parameter(torch.zeros(size))
        self.action_shape, self.action_dtype = (size,), np.dtype(np.float32)

    def forward(self, features: Tensor, mask: Tensor | None) -> Gaussian:
        return Gaussian(self.network(features), self.logstd)

    def noise(self, generator: torch.Generator, *lead: int) -> Tensor:
        """(*lead, size), for sample."""
        return torch.empty(*lead, *self.action_shape).normal_(generator=generator)

    def learning_noise(self, generator: torch.Generator, *lead: int) -> Tensor | None:
        return None


class RPOHead(GaussianHead):
    """A Gaussian whose mean is shifted uniformly when learning (Rahman & Xue 2022, arXiv 2212.07536, algorithm 1)."""

    def __init__(self, network: nn.Module, size: int, rpo_alpha: float):
        super().__init__(network, size)
        self.rpo_alpha = rpo_alpha

    def learning_noise(self, generator: torch.Generator, *lead: int) -> Tensor:
        """(*lead, size), uniform in [-rpo_alpha, rpo_alpha]."""
        return torch.empty(*lead, *self.action_shape).uniform_(-self.rpo_alpha, self.rpo_alpha, generator=generator)
