"""--norm-value: the value function learns returns in their running standard deviations, from their running mean."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from proximo.config import Config
from proximo.envs.arrays.moments import MOST_COUNTED
from proximo.envs.normalize import EPSILON
from proximo.types import LossInputs

START_COUNT = 1e-8  # the weight of the mean 0 and variance 1 that the moments begin with


class NormalizedCritic(nn.Module):
    """A value function whose network computes normalised values. Its output has the scale of the rewards.

    The moments are parameters that are not trained, so that they are saved and loaded with the weights.

    Args:
        network: Maps its input (..., k) to values (..., 1).
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.return_mean = nn.Parameter(torch.tensor(0.0), requires_grad=False)
        self.return_var = nn.Parameter(torch.tensor(1.0), requires_grad=False)
        self.return_count = nn.Parameter(torch.tensor(START_COUNT), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x) * (self.return_var + EPSILON).sqrt() + self.return_mean  # type: ignore[no-any-return]

    def normalize(self, value: Tensor) -> Tensor:
        """Return values, or returns, in standard deviations from the mean return."""
        return (value - self.return_mean) / (self.return_var + EPSILON).sqrt()


def find_critics(agent: nn.Module) -> list[NormalizedCritic]:
    """Return every NormalizedCritic of an agent: one with --norm-value, otherwise none."""
    return [part for part in agent.modules() if isinstance(part, NormalizedCritic)]


def with_normalized_values(loss_fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a loss function that gets normalised values and returns, so that they are also clipped as such."""
    def normalized_loss(batch: LossInputs, cfg: Config) -> Any:
        normalize = find_critics(batch.agent)[0].normalize
        return loss_fn(batch._replace(value=normalize(batch.value), old_value=normalize(batch.old_value),
                                      ret=normalize(batch.ret)), cfg)

    return normalized_loss


@torch.no_grad()
def count_returns(agent: nn.Module, ret: Tensor, valid: Tensor, all_reduce_sum: Callable[[Tensor], Tensor]) -> None:
    """Add returns (T, N) to the moments, in place: those of valid rows, of all ranks (Chan et al. 1983).

    Rows before the last 2**23 lose their weight gradually, because float32 counts no further than 2**24.
    """
    critic = find_critics(agent)[0]
    number, total = all_reduce_sum(torch.stack([valid.sum().double(), torch.where(valid, ret, 0.0).double().sum()]))
    mean = total / number.clamp(min=1.0)
    within = all_reduce_sum(torch.where(valid, ret.double() - mean, 0.0).square().sum())
    count = critic.return_count.double().clamp(max=MOST_COUNTED)
    share, delta = number / (count + number), mean - critic.return_mean
    spread = critic.return_var * count + within + delta.square() * count * share
    critic.return_mean.add_(delta * share)
    critic.return_var.copy_(spread / (count + number))
    critic.return_count.copy_(count + number)
