"""The functions of numpy that normalisation calls, for torch tensors on any device. Statistics are float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from proximo.envs.moments import Moments, Statistics
from proximo.protocols import Step

float32, float64 = torch.float32, torch.float64
where, sqrt = torch.where, torch.sqrt


def zeros(shape: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return zeros on the CPU."""
    return torch.zeros(shape, dtype=dtype)


def asarray(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor of another dtype."""
    return x.to(dtype)


def with_numpy_dtype(x: torch.Tensor, dtype: Any) -> torch.Tensor:
    """Return a tensor of a dtype of numpy."""
    return x.to(torch.from_numpy(np.empty(0, dtype)).dtype)


def minimum(x: torch.Tensor, most: Any) -> torch.Tensor:
    """Return the elementwise minimum with a number or a tensor."""
    return torch.clamp(x, max=most)


def maximum(x: torch.Tensor, least: Any) -> torch.Tensor:
    """Return the elementwise maximum with a number or a tensor."""
    return torch.clamp(x, min=least)


def counted_on_device(count: Callable[[Statistics, Step], Statistics]) -> Callable[[Statistics, Step], Statistics]:
    """Let a function for tensors take statistics in numpy too, which the loop and a checkpoint hold.

    They are moved to the device of the observations once per rollout.
    """
    @torch.no_grad()
    def counted(statistics: Statistics, step: Step) -> Statistics:
        obs, ret = (Moments(*(torch.as_tensor(x, dtype=float64, device=step.obs.device) for x in moments))
                    for moments in (statistics.obs, statistics.ret))
        running = torch.as_tensor(statistics.running, dtype=float64, device=step.obs.device)
        return count(Statistics(obs=obs, ret=ret, running=running), step)

    return counted
