"""Learning from one batch: minibatches, the gradient step, and when to stop."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from proximo.config import Config
from proximo.on_torch.optimizer import Adam, apply_gradient, flat_gradient
from proximo.on_torch.rollout import Rollout


class Batch(NamedTuple):
    """What one minibatch step reads: rows (T * N, ...) without memory, (T, N, ...) with."""

    obs: Tensor
    mask: Tensor | None
    first: Tensor | None  # read with memory only
    state: tuple[Tensor, ...]  # the memory's at t = 0, (N, memory_size) each
    action: Tensor
    logprob: Tensor
    value: Tensor
    ret: Tensor
    valid: Tensor


class Draws(NamedTuple):
    """All randomness of one update, drawn before it: E epochs of M minibatches of B rows (or environments)."""

    minibatch: Tensor  # (E, M, B) int64: rows, or environments
    noise: Tensor | None  # (E, M, B, k), or (E, M, T, B, k) with memory; None but for RPO


class Learner(NamedTuple):
    """The minibatch step in two halves, between which several processes average, and the two as one."""

    gradient: Callable  # (batch, index, advantage, noise, count, clip_coef) -> (gradient (P,), stats (k,))
    apply: Callable  # (gradient, learning_rate) -> norm
    step: Callable | None  # (batch, index, advantage, noise, count, clip_coef, learning_rate) -> (k + 1,)
    names: list[str]  # of stats, known after the first call


def make_learner(agent: Any, adam: Adam, loss_fn: Callable, cfg: Config) -> Learner:
    """The eager functions; `loss_fn` has the signature of ppo_loss."""
    names: list[str] = []

    def gradient(batch: Batch, index: Tensor, advantage: Tensor, noise: Tensor | None, count: Tensor,
                 clip_coef: Tensor) -> tuple[Tensor, Tensor]:
        part = take(batch, index, agent.recurrent)
        dist, value, _ = agent(part.obs, part.mask, part.first, part.state)
        dist = dist.shifted(noise)
        loss, stats = loss_fn(dist.logprob(part.action), part.logprob, value, part.value, advantage, part.ret,
                              dist.entropy(), part.valid, count, clip_coef, cfg)
        names[:] = list(stats)
        return flat_gradient(loss, list(agent.parameters())), torch.stack(list(stats.values()))

    def apply(flat: Tensor, learning_rate: Tensor) -> Tensor:
        return apply_gradient(adam, flat, learning_rate, cfg.adam_eps, cfg.max_grad_norm)

    def step(batch: Batch, index: Tensor, advantage: Tensor, noise: Tensor | None, count: Tensor, clip_coef: Tensor,
             learning_rate: Tensor) -> Tensor:
        flat, stats = gradient(batch, index, advantage, noise, count, clip_coef)
        with torch.no_grad():
            return torch.cat([stats, apply(flat, learning_rate)[None]])

    return Learner(gradient, apply, step, names)


def flat_batch(rollout: Rollout, ret: Tensor, state: tuple[Tensor, ...], recurrent: bool) -> Batch:
    """The rollout as rows to pick from; whole environments stay together for a memory (detail 35)."""
    def rows(x: Tensor | None) -> Tensor | None:
        return x if recurrent or x is None else x.flatten(0, 1)

    return Batch(rows(rollout.obs), rows(rollout.mask), rollout.first if recurrent else None, state,
                 rows(rollout.action), rows(rollout.logprob), rows(rollout.value), rows(ret), rows(rollout.valid))


def take(batch: Batch, index: Tensor, recurrent: bool) -> Batch:
    """The rows (environments, with memory) of one minibatch."""
    axis = 1 if recurrent else 0
    def part(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.index_select(axis, index)

    return Batch(part(batch.obs), part(batch.mask), part(batch.first),
                 tuple(x.index_select(0, index) for x in batch.state), part(batch.action), part(batch.logprob),
                 part(batch.value), part(batch.ret), part(batch.valid))


def draw(cfg: Config, agent: Any, shape: Sequence[int], shuffle: np.random.Generator, rpo: torch.Generator,
         device: torch.device) -> Draws:
    """Shuffled minibatches that cover the batch of `shape` (T, N) once an epoch (detail 6), of whole environments for a
    memory (detail 35), and the noise of learning, if any."""
    rows, sequence = (shape[1], shape[:1]) if agent.recurrent else (shape[0] * shape[1], shape[:0])
    epochs, minibatches = cfg.update_epochs, cfg.num_minibatches
    index = np.stack([shuffle.permutation(rows) for _ in range(epochs)]).reshape(epochs, minibatches, -1)
    noise = agent.head.learning_noise(rpo, epochs, minibatches, *sequence, index.shape[-1])
    return Draws(torch.from_numpy(index).to(device), None if noise is None else noise.to(device))


def normalized_advantage(advantage: Tensor, valid: Tensor, index: Tensor, recurrent: bool, cfg: Config,
                         average: Callable) -> tuple[Tensor, Tensor]:
    """The advantages of every minibatch, (E, M, B) or (E, M, T, B), normalised (detail 7), and how many of their rows
    are valid over all ranks, (E, M), at least 1. Deviations are of the population (ddof 0), as in openai/baselines."""
    def picked(x: Tensor) -> Tensor:
        return x[:, index].movedim(0, 2) if recurrent else x.flatten(0, 1)[index]

    rows, ok = picked(advantage).double(), picked(valid)
    axes = tuple(range(2, rows.ndim))
    kept = torch.where(ok, rows, 0.0)
    sums = average(torch.stack([ok.sum(axes).double(), kept.sum(axes), kept.square().sum(axes)]))  # (3, E, M)
    count = sums[0].clamp(min=1.0)
    if cfg.norm_adv != "none":
        if cfg.norm_adv == "batch":  # every epoch covers the whole batch
            sums = sums.sum(2, keepdim=True).expand_as(sums)
        mean, square = sums[1:] / sums[0].clamp(min=1.0)
        std = (square - mean.square()).clamp(min=0.0).sqrt()
        shape = (*mean.shape, *(1 for _ in axes))
        rows = (rows - mean.view(shape)) / (std.view(shape) + 1e-8)
    return rows.float(), count.float()


def update(learner: Learner, batch: Batch, advantage: Tensor, count: Tensor, draws: Draws, learning_rate: float,
           clip_coef: float, cfg: Config, average: Callable) -> dict[str, float]:
    """K epochs of minibatch steps; means over all minibatches that ran. Stops before the next epoch when an epoch's
    mean approx_kl exceeds target_kl, on all ranks alike (detail A3)."""
    device, epochs = count.device, []
    rate, clip = (torch.tensor(x, dtype=torch.float32, device=device) for x in (learning_rate, clip_coef))
    for e in range(cfg.update_epochs):
        steps = []
        for m in range(cfg.num_minibatches):
            noise = None if draws.noise is None else draws.noise[e, m]
            arguments = (batch, draws.minibatch[e, m], advantage[e, m], noise, count[e, m], clip)
            if learner.step is not None:
                steps.append(learner.step(*arguments, rate))
            else:
                flat, stats = learner.gradient(*arguments)
                steps.append(torch.cat([stats, learner.apply(average(flat), rate)[None]]))
        epochs.append(torch.stack(steps).mean(0))
        if cfg.target_kl is not None:
            epochs[-1][:-1] = average(epochs[-1][:-1].clone())
            if float(epochs[-1][learner.names.index("approx_kl")]) > cfg.target_kl:
                break
    means = torch.stack(epochs).mean(0)
    if cfg.target_kl is None:
        means[:-1] = average(means[:-1].clone())
    return dict(zip([*learner.names, "grad_norm"], means.tolist()))


def explained_variance(value: Tensor, ret: Tensor, valid: Tensor, average: Callable) -> float:
    """1 - Var[ret - value] / Var[ret] over valid rows of all ranks; NaN where returns do not vary (detail 12)."""
    error = torch.where(valid, ret - value, 0.0).double()
    kept = torch.where(valid, ret, 0.0).double()
    sums = average(torch.stack([valid.sum().double(), error.sum(), error.square().sum(), kept.sum(),
                                kept.square().sum()]))
    count, error_sum, error_square, ret_sum, ret_square = sums.tolist()
    count = max(count, 1.0)
    variance = ret_square / count - (ret_sum / count) ** 2
    return float("nan") if variance <= 0 else 1 - (error_square / count - (error_sum / count) ** 2) / variance
