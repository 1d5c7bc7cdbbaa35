"""Learning from one batch: minibatches, the gradient, the clipped Adam step, and when to stop."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from proximo.config import Config
from proximo.on_torch.value_norm import with_normalized_values
from proximo.part_checks import check_rows
from proximo.types import Batch, Coefficients, LossInputs, Minibatches, Rollout

BETA1 = 0.9
BETA2 = 0.999


class Adam(NamedTuple):
    """All weights and the state of Adam (Kingma & Ba 2015, arXiv 1412.6980), changed in place."""

    weights: Tensor  # (P,) float32; the agent's parameters are views of it
    exp_avg: Tensor  # (P,)
    exp_avg_sq: Tensor  # (P,)
    step: Tensor  # () float32, number of updates
    ok: Tensor  # () bool, False from the first gradient that is not finite; nothing changes from then on
    scale: Tensor  # () float32, factor of the learning rate (--desired-kl)


class Learner(NamedTuple):
    """What update() needs besides the batch and its minibatches."""

    step: Callable[..., tuple[Tensor, Tensor]]  # (batch, minibatch, rate, coefficients) -> statistics (k,), norm ()
    names: list[str]  # of the statistics
    all_reduce_sum: Callable[[Tensor], Tensor]
    scale: Tensor  # of Adam, changed in place


def flat_adam(agent: nn.Module) -> Adam:
    """Move the agent's parameters, in the order of parameters(), into one vector, of which they become views."""
    parameters = list(agent.parameters())
    weights = torch.cat([p.detach().reshape(-1) for p in parameters])
    for p, part in zip(parameters, weights.split([p.numel() for p in parameters])):
        p.data = part.view(p.shape)
    return Adam(weights=weights, exp_avg=torch.zeros_like(weights), exp_avg_sq=torch.zeros_like(weights),
                step=torch.zeros((), device=weights.device), ok=torch.ones((), dtype=torch.bool, device=weights.device),
                scale=torch.ones((), device=weights.device))


def apply_gradient(adam: Adam, gradient: Tensor, learning_rate: Tensor, eps: float, max_grad_norm: float) -> Tensor:
    """Clip the gradient (P,) and apply one step of Adam in place (details 3 and 11). Returns its norm, a scalar."""
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


def make_gradient(agent: Any, loss_fn: Callable[..., Any], cfg: Config) -> Callable[..., tuple[Tensor, Tensor]]:
    """Make the function (batch, minibatch, coefficients) -> (gradient (P,), statistics of the loss (k,))."""
    loss_fn = with_normalized_values(loss_fn) if cfg.norm_value else loss_fn

    @torch.enable_grad()  # environments and callbacks may have switched gradients off
    def compute_gradient(batch: Batch, minibatch: Minibatches, coefficients: Coefficients) -> tuple[Tensor, Tensor]:
        rows = select_minibatch(batch, minibatch.index, agent.recurrent)
        dist, value, _ = agent(rows.obs, rows.mask, rows.first, rows.state)
        dist = agent.head.perturbed(dist, minibatch.noise)
        inputs = LossInputs(
            logprob=dist.logprob(rows.action), old_logprob=rows.logprob, value=value, old_value=rows.value,
            advantage=minibatch.advantage, ret=rows.ret, entropy=dist.entropy(), valid=rows.valid,
            count=minibatch.count, agent=agent, rows=rows, dist=dist, **coefficients._asdict())
        check_rows(rows.valid.shape, "rows", logprob=inputs.logprob, value=value, entropy=inputs.entropy)
        loss, stats = loss_fn(inputs, cfg)
        parameters = list(agent.parameters())  # --compile replaces them, so they are looked up here
        found = iter(torch.autograd.grad(loss, [p for p in parameters if p.requires_grad], allow_unused=True))
        parts = [next(found) if p.requires_grad else None for p in parameters]  # None: frozen, or not used
        flat = torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for p, g in zip(parameters, parts)])
        return flat, torch.stack(list(stats.values()))

    return compute_gradient


def make_step(gradient: Callable[..., tuple[Tensor, Tensor]], apply: Callable[[Tensor, Tensor], Tensor],
              all_reduce_sum: Callable[[Tensor], Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Make Learner.step from a gradient and `apply(gradient, learning_rate) -> norm`, which changes the weights."""
    def train_step(batch: Batch, minibatch: Minibatches, learning_rate: Tensor,
                   coefficients: Coefficients) -> tuple[Tensor, Tensor]:
        flat, stats = gradient(batch, minibatch, coefficients)
        with torch.no_grad():
            return stats, apply(all_reduce_sum(flat), learning_rate)

    return train_step


def make_batch(rollout: Rollout, ret: Tensor, state: tuple[Tensor, ...], recurrent: bool) -> Batch:
    """Return the rollout as rows, or as whole environments (detail 35) for a recurrent agent."""
    def rows(x: Tensor) -> Tensor:
        return x if recurrent else x.flatten(0, 1)

    return Batch(obs=rows(rollout.obs), mask=None if rollout.mask is None else rows(rollout.mask),
                 first=rollout.first if recurrent else None, state=state, action=rows(rollout.action),
                 logprob=rows(rollout.logprob), value=rows(rollout.value), ret=rows(ret), valid=rows(rollout.valid))


def select_minibatch(batch: Batch, index: Tensor, recurrent: bool) -> Batch:
    """Select the rows of one minibatch, or the environments for a recurrent agent. `state` has no axis of time."""
    def select(x: Tensor) -> Tensor:
        return x.index_select(1 if recurrent else 0, index)

    return Batch(obs=select(batch.obs), mask=None if batch.mask is None else select(batch.mask),
                 first=None if batch.first is None else select(batch.first), action=select(batch.action),
                 state=tuple(x.index_select(0, index) for x in batch.state), logprob=select(batch.logprob),
                 value=select(batch.value), ret=select(batch.ret), valid=select(batch.valid))


def split_minibatches(every: Minibatches) -> list[Minibatches]:
    """Return views of the E x M minibatches, epoch by epoch. Indexing each tensor for each of them is slower."""
    views = ([None] * every.count.numel() if x is None else x.flatten(0, 1).unbind() for x in every)
    return [Minibatches(*parts) for parts in zip(*views)]


def minibatch_indices(cfg: Config, shape: Sequence[int], recurrent: bool, shuffle: np.random.Generator) -> Tensor:
    """Shuffle a batch of `shape` (T, N) once per epoch into minibatches (detail 6), of whole environments for a
    recurrent agent (detail 35). Returns (E, M, B) int64 on the CPU."""
    rows = shape[1] if recurrent else shape[0] * shape[1]
    index = np.stack([shuffle.permutation(rows) for _ in range(cfg.update_epochs)])
    return torch.from_numpy(index.reshape(cfg.update_epochs, cfg.num_minibatches, -1))


def minibatch_advantages(advantage: Tensor, valid: Tensor, index: Tensor, recurrent: bool, cfg: Config,
                         all_reduce_sum: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Divide advantages (T, N) into minibatches, and normalise each over its valid rows on all ranks (detail 7).

    Deviations are of the population (ddof 0), as in openai/baselines. Returns the advantages of all minibatches,
    (E, M, B), or (E, M, T, n) for a recurrent agent, and their numbers of valid rows, (E, M).
    """
    def select(x: Tensor) -> Tensor:
        return x[:, index].movedim(0, 2) if recurrent else x.flatten(0, 1)[index]

    rows, valid_rows = select(advantage).double(), select(valid)
    axes = tuple(range(2, rows.ndim))
    kept = torch.where(valid_rows, rows, 0.0)
    sums = all_reduce_sum(torch.stack([valid_rows.sum(axes).double(), kept.sum(axes),
                                       kept.square().sum(axes)]))  # (3, E, M)
    count = sums[0]
    if cfg.norm_adv != "none":
        if cfg.norm_adv == "batch":  # every epoch covers the whole batch
            sums = sums.sum(2, keepdim=True).expand_as(sums)
        mean, mean_square = sums[1:] / sums[0].clamp(min=1.0)
        std = (mean_square - mean.square()).clamp(min=0.0).sqrt()
        shape = (*mean.shape, *(1 for _ in axes))
        rows = (rows - mean.view(shape)) / (std.view(shape) + 1e-8)
    return rows.float(), count.float()


def update(learner: Learner, batch: Batch, minibatches: Minibatches, learning_rate: float,
           coefficients: Coefficients, cfg: Config) -> dict[str, float]:
    """Train for E epochs of M minibatches. Stop after an epoch whose mean approx_kl exceeds target_kl, on all ranks
    alike (detail A3). Returns means over all minibatches that ran. One without a valid row is left out."""
    watch_kl = cfg.target_kl is not None or cfg.desired_kl is not None
    epochs, norms = list[Tensor](), list[Tensor]()
    rate, *scalars = (torch.tensor(float(x), dtype=torch.float32, device=batch.value.device)
                      for x in (learning_rate, *coefficients))
    counts, each = minibatches.count.tolist(), split_minibatches(minibatches)
    if not any(counts[0]):
        return dict.fromkeys((*learner.names, "grad_norm"), float("nan"))
    for e in range(cfg.update_epochs):
        stats, grad_norm = zip(*(
            learner.step(batch, each[e * cfg.num_minibatches + m], rate * learner.scale, Coefficients(*scalars))
            for m in range(cfg.num_minibatches) if counts[e][m]))
        epochs.append(torch.stack(stats).mean(0))
        norms.append(torch.stack(grad_norm).mean())
        if watch_kl:
            epochs[-1] = learner.all_reduce_sum(epochs[-1])
            approx_kl = epochs[-1][learner.names.index("approx_kl")]
            learner.scale.copy_(cfg.adapted_scale(learner.scale, approx_kl))
            if cfg.target_kl is not None and float(approx_kl) > cfg.target_kl:
                break
    means = torch.stack(epochs).mean(0)
    if not watch_kl:
        means = learner.all_reduce_sum(means)
    return dict(zip([*learner.names, "grad_norm"], torch.cat([means, torch.stack(norms).mean()[None]]).tolist()))


def explained_variance(value: Tensor, ret: Tensor, valid: Tensor, all_reduce_sum: Callable[[Tensor], Tensor]) -> float:
    """Return 1 - Var[ret - value] / Var[ret] over the valid rows of all ranks; NaN if all returns are equal."""
    error = torch.where(valid, ret - value, 0.0).double()
    kept = torch.where(valid, ret, 0.0).double()
    sums = all_reduce_sum(torch.stack([valid.sum().double(), error.sum(), error.square().sum(), kept.sum(),
                                       kept.square().sum()]))
    count, error_sum, error_square, ret_sum, ret_square = sums.tolist()
    count = max(count, 1.0)
    variance, unexplained = ret_square / count - (ret_sum / count) ** 2, error_square / count - (error_sum / count) ** 2
    return float("nan") if variance <= 1e-13 * ret_square / count else 1 - unexplained / variance  # 1e-13: rounding
