"""Metrics of environments (Step.metrics) over all ranks."""

from collections.abc import Callable

import torch
from torch import Tensor

from proximo.protocols import COUNTS


def merge_metrics(metrics: dict[str, float], reduce_sum: Callable[[Tensor], Tensor],
                  device: torch.device) -> dict[str, float]:
    """Return the metrics of all ranks: the sums of counts, and the means of others over the ranks that have them.

    Args:
        metrics: Those of this rank, under the same names on each.
        reduce_sum: Adds a tensor on `device` over all ranks.
        device: The device that learns.
    """
    if not metrics:
        return metrics
    own = torch.tensor(list(metrics.values()), dtype=torch.float64, device=device)
    total, ranks = reduce_sum(torch.stack([own.nan_to_num(), (~own.isnan()).double()])).tolist()
    return {name: x if name.removeprefix("charts/") in COUNTS else x / n if n else float("nan")
            for name, x, n in zip(metrics, total, ranks, strict=True)}
