"""Working through many rows in parts whose intermediate results stay in the cache of a CPU core.

torch writes the activations of all rows to memory before the next layer reads them. For tens of thousands of rows that
takes longer than the arithmetic (benchmarks/parts.py).
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from proximo.types import Batch, Minibatches

Evaluate = Callable[..., tuple[Tensor, Tensor]]  # (obs, mask, action) of T + 1, T and T steps -> logprob, value
Gradient = Callable[..., tuple[Tensor, Tensor]]  # (batch, minibatch, clip_coef) -> gradient (P,), statistics (k,)

ROWS = 2048  # of a part, at most


def number_of_parts(rows: int, device: torch.device) -> int:
    """Return into how many equal parts rows are divided: 1 on anything but a CPU, otherwise the smallest number that
    leaves at most ROWS in each; 1 if that would leave less than a quarter.
    """
    fewest = math.ceil(rows / ROWS)
    if device.type != "cpu":
        return 1
    return next((parts for parts in range(fewest, 4 * fewest) if rows % parts == 0), 1)


def evaluate_in_parts(evaluate: Evaluate) -> Evaluate:
    """Make a function that evaluates a few steps of a rollout at a time, at least eight: the last value of each part is
    computed again by the next.
    """
    def evaluate_parts(obs: Tensor, mask: Tensor | None, action: Tensor) -> tuple[Tensor, Tensor]:
        steps, size = len(action), max(ROWS // action.shape[1], 8)
        if size >= steps or action.device.type != "cpu":
            return evaluate(obs, mask, action)
        logprobs, values = zip(*(
            evaluate(obs[t:t + size + 1], None if mask is None else mask[t:t + size], action[t:t + size])
            for t in range(0, steps, size)))
        return torch.cat(logprobs), torch.cat([*(value[:-1] for value in values), values[-1][-1:]])

    return evaluate_parts


def gradient_in_parts(gradient: Gradient, parts: int) -> Gradient:
    """Make a gradient that is the sum of those of equal parts of the rows. The loss must be such a sum, too."""
    def compute_gradient(batch: Batch, minibatch: Minibatches, clip_coef: Tensor) -> tuple[Tensor, Tensor]:
        def divide(x: Tensor | None) -> Any:
            return [None] * parts if x is None else x.chunk(parts)

        rows = zip(divide(minibatch.index), divide(minibatch.advantage), divide(minibatch.noise))
        of_parts = [gradient(batch, Minibatches(index=index, advantage=advantage, count=minibatch.count, noise=noise),
                             clip_coef) for index, advantage, noise in rows]
        flat, stats = zip(*of_parts)
        return torch.stack(flat).sum(0), torch.stack(stats).sum(0)

    return gradient if parts == 1 else compute_gradient
