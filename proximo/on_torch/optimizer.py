"""Adam on one flat vector of weights (Kingma & Ba 2015, arXiv 1412.6980, algorithm 1), with gradient clipping."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

BETA1, BETA2 = 0.9, 0.999


class Adam(NamedTuple):
    """All weights and moments, mutated in place; the agent's parameters are views of `weights`."""

    weights: Tensor  # (P,) float32
    exp_avg: Tensor  # (P,)
    exp_avg_sq: Tensor  # (P,)
    step: Tensor  # 0-d float32: updates applied
    ok: Tensor  # 0-d bool: every gradient so far was finite; False from the first that is not, and nothing moves


def flat_adam(agent: nn.Module) -> Adam:
    """Move the agent's parameters into one vector, of which they become views, in the order of parameters()."""
    parameters = list(agent.parameters())
    device = parameters[0].device
    weights = torch.cat([p.detach().reshape(-1) for p in parameters])
    for p, part in zip(parameters, weights.split([p.numel() for p in parameters])):
        p.data = part.view(p.shape)
    return Adam(weights, torch.zeros_like(weights), torch.zeros_like(weights), torch.zeros((), device=device),
                torch.ones((), dtype=torch.bool, device=device))


def flat_gradient(loss: Tensor, parameters: list[Tensor]) -> Tensor:
    """The gradient of all parameters as one vector (P,), zero for those the loss does not reach."""
    parts = torch.autograd.grad(loss, parameters, allow_unused=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for p, g in zip(parameters, parts)])


def apply_gradient(adam: Adam, gradient: Tensor, learning_rate: Tensor, eps: float, max_grad_norm: float) -> Tensor:
    """One clipped step in place (details 3 and 11); returns the norm before clipping, 0-d.

    From the first gradient that is not finite on, weights and moments stay as they are and `ok` is False."""
    norm = torch.linalg.vector_norm(gradient)
    adam.ok.logical_and_(norm.isfinite())
    moved = adam.ok.to(gradient.dtype)
    adam.step.add_(moved)
    gradient = torch.where(adam.ok, gradient * (max_grad_norm / (norm + 1e-6)).clamp(max=1.0), 0.0)
    adam.exp_avg.lerp_(gradient, (1 - BETA1) * moved)
    adam.exp_avg_sq.lerp_(gradient.square(), (1 - BETA2) * moved)
    step = adam.step.clamp(min=1.0)
    denominator = (adam.exp_avg_sq / (1 - BETA2**step)).sqrt_().add_(eps)
    adam.weights.sub_(adam.exp_avg / denominator * (moved * learning_rate / (1 - BETA1**step)))
    return norm
