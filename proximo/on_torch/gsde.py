"""Generalized state-dependent exploration (Raffin et al. 2020, arXiv 2005.05719)."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from proximo.on_torch.distributions import LOG_2_PI, ActionHead


class ExploringGaussian(NamedTuple):
    """A Gaussian whose noise is a linear function of features, with the same random matrix for several steps.

    The matrix has independent normal entries with standard deviations exp(logstd), so the noise of one step is normal
    with variance features^2 @ exp(logstd)^2 (equation 8 of the paper). No gradient flows into the features through it.
    """

    mean: Tensor  # (..., k)
    features: Tensor  # (..., F), detached
    logstd: Tensor  # (F, k)

    def variance(self) -> Tensor:
        """Return the variance of each component, (..., k); 1e-6 keeps it above 0."""
        return self.features.square() @ (2 * self.logstd).exp() + 1e-6

    def sample(self, noise: Tensor) -> Tensor:
        """Sample from `noise` (..., F, k), standard normal. The action is not clipped to any bounds."""
        return self.mean + (self.features.unsqueeze(-1) * (noise * self.logstd.exp())).sum(-2)

    def logprob(self, action: Tensor) -> Tensor:
        variance = self.variance()
        return -0.5 * ((action - self.mean).square() / variance + variance.log() + LOG_2_PI).sum(-1)

    def entropy(self) -> Tensor:
        return 0.5 * (self.variance().log() + 1 + LOG_2_PI).sum(-1)

    def mode(self) -> Tensor:
        return self.mean


class GSDEHead(ActionHead):
    """Box actions: `network` maps to features, `last` maps these to means.

    Args:
        network: The policy's network up to its last hidden layer.
        last: The linear layer after it.
        log_std_init: First logarithm of every standard deviation.
        sample_freq: Steps between two draws of the matrices; 0: one draw for a rollout.
    """

    def __init__(self, network: nn.Module, last: nn.Linear, log_std_init: float = 0.0, sample_freq: int = 0) -> None:
        super().__init__(network, (last.out_features,), np.float32)
        self.last, self.sample_freq = last, sample_freq
        self.logstd = nn.Parameter(torch.full((last.in_features, last.out_features), log_std_init))

    def forward(self, features: Tensor, mask: Tensor | None) -> ExploringGaussian:
        hidden = self.network(features)
        return ExploringGaussian(mean=self.last(hidden), features=hidden.detach(), logstd=self.logstd)

    def noise(self, generator: torch.Generator, *lead: int) -> Tensor:
        """Draw (*lead, F, k): for one step (N,), or for a rollout (T, N), in which sample_freq steps share a draw."""
        steps = lead[0] if len(lead) > 1 else 1
        every = self.sample_freq or steps
        draws = torch.empty(-(-steps // every), lead[-1], *self.logstd.shape).normal_(generator=generator)
        repeated = draws.unsqueeze(1).expand(-1, every, -1, -1, -1).flatten(0, 1)[:steps]  # one draw: no copy
        return repeated if len(lead) > 1 else repeated[0]
