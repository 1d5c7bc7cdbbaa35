"""The functions of numpy that normalisation calls, for torch tensors on any device. Statistics are float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from proximo.envs.arrays.moments import Moments, Statistics
from proximo.envs.arrays.obs_layout import Layout, part_not_finite, part_not_inside, part_value
from proximo.protocols import Array, Step

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
    return x.to(_dtype(dtype))


def minimum(x: torch.Tensor, most: Any) -> torch.Tensor:
    """Return the elementwise minimum with a number or a tensor."""
    return torch.clamp(x, max=most)


def maximum(x: torch.Tensor, least: Any) -> torch.Tensor:
    """Return the elementwise maximum with a number or a tensor."""
    return torch.clamp(x, min=least)


class TensorArrays:
    """The functions of envs.arrays.batch_rows.NumpyArrays, on one device. Dtypes are those of numpy."""

    name = "torch"

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return torch.zeros(shape, dtype=_dtype(dtype), device=self._device)

    def cast(self, x: Any, dtype: Any) -> Array:
        """Return a copy of an array or a tensor, in another dtype."""
        return torch.as_tensor(x).to(self._device, _dtype(dtype), copy=True)

    def where(self, condition: Array, x: Any, y: Any) -> Array:
        return torch.where(condition, x, y)

    def rows_of(self, x: Any, which: Array) -> Array:
        """Return those rows of an array or a tensor where `which`, (N,) bool, is True."""
        return torch.as_tensor(x, device=self._device)[which]

    def write_parts(self, layout: Layout, observation: Any, rows: Array, read: Any) -> None:
        """Write N observations in one structure into rows (N, size); see NumpyArrays."""
        for part in layout.parts:
            numbers = self.cast(part_value(part, observation), part.dtype).reshape(len(rows), -1).contiguous()
            if part.dtype.kind == "f" and not bool(numbers[read].isfinite().all()):
                raise part_not_finite(part)
            if part.kind == "discrete":
                inside = (numbers >= 0) & (numbers < torch.as_tensor(part.choices, device=self._device))
                if not bool(inside.all()):
                    raise part_not_inside(part)
            rows[:, part.start:part.stop] = numbers.view(rows.dtype)


def _dtype(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


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
