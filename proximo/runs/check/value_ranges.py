"""The ranges of an environment's observations, rewards and actions, and advice for those that make learning hard."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.arrays.obs_layout import leaves, obs_layout, part_views
from proximo.protocols import Step

LARGE = 100.0  # magnitude of an observation or reward above which networks learn slowly without normalisation
FAR = 10.0  # magnitude above which a number that is never nearer to 0 hides its changes from a network
LARGEST = float(np.finfo(np.float32).max)
STEPS_APART = 64  # float32 numbers that the range of a part should at least have
LEAST_INSIDE = 0.05  # share of the first samples of an action that should at least be inside its bounds
MOST_WIDTH = 100.0  # largest distance of the bounds of an action, in standard deviations of the first samples
FLOATS_ONLY = ("--norm-obs leaves whole numbers in a Dict or Tuple as they are: let the environment return them as "
               "floats, or divide them.")


class ValueRanges:
    """The smallest and the largest value of each number of the observations, and of the rewards.

    Only parts of Box spaces count that are not uint8 (images), and no action masks.

    Args:
        space: The observation space of one environment.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        self._space = space
        self._low = self._high = np.zeros(0)
        self._reward = 0.0

    def count(self, observation: Any, reward: Any) -> str:
        """Count an observation and a reward. Return what ends training because it is not finite, otherwise ""."""
        array = np.asarray(reward)
        if array.size == 1 and array.dtype.kind in "buif":
            size = abs(float(array.reshape(())))
            if not size <= LARGEST:
                return f"reward is {reward}; it must be a finite number of float32, whose range ends at 3.4e38"
            self._reward = max(self._reward, size)
        try:
            values = np.concatenate([np.zeros(0), *_numbers(self._space, observation)])
        except (TypeError, ValueError, LookupError):
            return ""  # a fault, which other checks name
        if not (abs(values) <= LARGEST).all():
            return "observation is not finite in float32 (NaN, infinity or beyond its range)"
        if values.shape != self._low.shape:
            self._low = self._high = values
        self._low, self._high = np.minimum(self._low, values), np.maximum(self._high, values)
        return ""

    def remarks(self) -> Iterator[tuple[str, str]]:
        """Yield (what was seen, advice)."""
        largest = np.maximum(abs(self._low), abs(self._high))
        whole = _whole_numbers(self._space, largest.size)
        if largest.max(initial=0) > LARGE:
            advice = FLOATS_ONLY if largest[whole].max(initial=0) > LARGE else (
                "Normalise them with --norm-obs, the default of ppo_continuous_action.")
            yield f"observations reach from {self._low.min():.4g} to {self._high.max():.4g}", advice
        elif far := _far_from_zero(self._low, self._high):
            advice = FLOATS_ONLY if _far_from_zero(self._low[whole], self._high[whole]) else (
                "Normalise them with --norm-obs, or subtract their mean.")
            yield f"observations are far from 0: {far}", advice
        if self._reward > LARGE:
            yield (f"rewards reach a magnitude of {self._reward:.4g}",
                   "Normalise them with --norm-reward, the default of ppo_continuous_action.")
        spread = self._high - self._low
        with np.errstate(over="ignore"):  # at the end of the range of float32
            coarse = np.flatnonzero((spread > 0) & (spread < STEPS_APART * np.spacing(largest.astype(np.float32))))
        if coarse.size:
            one = coarse[0]
            yield (f"float32 cannot tell the values of {coarse.size} of {spread.size} numbers of the observations well "
                   f"apart: one lies between {float(self._low[one])} and {float(self._high[one])}",
                   "Networks see float32. Subtract the start, such as the time of the first step.")


class FirstValues:
    """The magnitudes that training gets of its environments in the first steps, where they are numpy arrays.

    Images and other parts of uint8 do not count.
    """

    def __init__(self) -> None:
        self.obs = self.reward = 0.0
        self._low = self._high = np.zeros(0)  # of each number of the observations
        self._whole = np.zeros(0, bool)  # of each of them, whether --norm-obs leaves it as it is

    def count(self, step: Step, space: spaces.Space[Any] | None = None) -> None:
        """Count a step, without rows that are not valid, which may have any reward.

        Args:
            step: What environments returned.
            space: The observation space of one environment; None: an observation is one array.
        """
        for name, x in (("obs", _numbers_of_rows(space, step.obs)), ("reward", step.reward)):
            if isinstance(x, np.ndarray) and x.dtype != np.uint8 and x.dtype.kind in "iuf":
                numbers = x[step.valid]
                largest = max(float(numbers.max(initial=0)), -float(numbers.min(initial=0)))
                setattr(self, name, max(getattr(self, name), largest))
                if name == "obs" and len(numbers):
                    rows = numbers.reshape(len(numbers), -1)
                    fits = self._low.size == rows.shape[1]
                    self._low = np.minimum(rows.min(0), self._low if fits else np.inf)
                    self._high = np.maximum(rows.max(0), self._high if fits else -np.inf)
                    self._whole = _whole_numbers(space, rows.shape[1])

    def remarks(self, cfg: Config) -> Iterator[str]:
        """Yield a sentence for each that is large, and that neither the configuration nor the value function scales."""
        low, high = self._low[self._whole], self._high[self._whole]
        whole = max(high.max(initial=0), -low.min(initial=0))
        if whole > LARGE:
            yield (f"{cfg.env_id}: observations reach a magnitude of {whole:.4g}, from which networks learn slowly. "
                   f"{FLOATS_ONLY}")
        elif self.obs > LARGE and not cfg.norm_obs:
            yield (f"{cfg.env_id}: observations reach a magnitude of {self.obs:.4g}, from which networks learn slowly. "
                   "--norm-obs normalises them.")
        elif far := _far_from_zero(low, high):
            yield (f"{cfg.env_id}: observations are far from 0, so that networks see little of how they change: {far}. "
                   f"{FLOATS_ONLY}")
        elif not cfg.norm_obs and (far := _far_from_zero(self._low, self._high)):
            yield (f"{cfg.env_id}: observations are far from 0, so that networks see little of how they change: {far}. "
                   "--norm-obs normalises them.")
        if self.reward > LARGE and not cfg.norm_reward and not cfg.norm_value:
            yield (f"{cfg.env_id}: rewards reach a magnitude of {self.reward:.4g}, from which networks learn slowly. "
                   "--norm-reward normalises them.")


def _numbers_of_rows(space: spaces.Space[Any] | None, rows: Any) -> Any:
    """Return the numbers (N, K) of the parts that _whole_numbers() counts, where rows (N, size) are packed bytes."""
    layout = obs_layout(space)
    if layout is None or layout.dtype != np.uint8 or not isinstance(rows, np.ndarray):
        return rows
    views = [view for part, view in zip(layout.parts, part_views(layout, rows))
             if "action_mask" not in part.path and _is_counted(part.space)]
    return np.concatenate([np.zeros((len(rows), 0), np.float32), *(x.reshape(len(rows), -1) for x in views)], axis=1)


def _is_counted(part: spaces.Space[Any] | None) -> bool:
    return isinstance(part, spaces.Box) and part.dtype != np.uint8


def _whole_numbers(space: spaces.Space[Any] | None, size: int) -> np.ndarray:
    """Return (size,) bool: which numbers of the counted parts of a Dict or Tuple are no floats; other spaces: none."""
    parts = leaves(space) if isinstance(space, (spaces.Dict, spaces.Tuple)) else []
    counted = [part for path, part in parts if "action_mask" not in path and _is_counted(part)]
    found = np.concatenate([np.zeros(0, bool), *(
        np.full(math.prod(x.shape or ()), not np.issubdtype(x.dtype, np.floating)) for x in counted)])
    return found if found.size == size else np.zeros(size, bool)  # observations may have other shapes than the space


def _far_from_zero(low: np.ndarray, high: np.ndarray) -> str:
    """Return which numbers have been nowhere near 0, between their smallest and largest values, or an empty string."""
    far = np.flatnonzero((low > FAR) | (high < -FAR))
    if not far.size:
        return ""
    return (f"{far.size} of {low.size} number{'s' * (low.size > 1)}, number {far[0]} (counted from 0) lies between "
            f"{low[far[0]]:.4g} and {high[far[0]]:.4g}")


def is_outside(space: spaces.Space[Any], value: Any) -> bool:
    """Return whether a number of a Box is beyond its bounds. Other checks find other dtypes, shapes and keys."""
    if isinstance(space, spaces.Dict) and isinstance(value, Mapping):
        return any(is_outside(part, value[name]) for name, part in space.spaces.items() if name in value)
    if isinstance(space, spaces.Tuple) and isinstance(value, (tuple, list)):
        return any(is_outside(part, one) for part, one in zip(space.spaces, value, strict=False))
    if not isinstance(space, spaces.Box) or not isinstance(value, np.ndarray) or value.shape != space.shape:
        return False
    return not ((value >= space.low) & (value <= space.high)).all()


def unreached_actions(space: spaces.Space[Any], std: float = 1.0) -> str:
    """Return which bounds of the actions the samples of an untrained policy do not suit, as a sentence without its end.

    Args:
        space: The action space of one environment.
        std: The standard deviation of the samples, whose mean is near 0.

    Returns:
        The first component of a Box of which almost all samples are clipped, or reach a small part only; "" if none.
    """
    for path, part in leaves(space):
        for place, (low, high) in enumerate(zip(part.low.flat, part.high.flat) if isinstance(part, spaces.Box) else ()):
            inside = (math.erf(high / std / 2**0.5) - math.erf(low / std / 2**0.5)) / 2
            wide = math.isfinite(low) and math.isfinite(high) and float(high) - float(low) > MOST_WIDTH * std
            if low < high and (inside < LEAST_INSIDE or wide):
                name = "action" + "".join(f"[{key!r}]" for key in path) + f"[{place}]" * bool(part.shape)
                where = "outside and become a bound" if inside < LEAST_INSIDE else "in a small part of this range"
                return (f"an untrained policy samples {name} near 0 with the standard deviation {std:.3g}, and its "
                        f"bounds are [{low:g}, {high:g}]: almost all samples are {where}")
    return ""


def _numbers(space: spaces.Space[Any], value: Any) -> Iterator[np.ndarray]:
    """Yield the values of each part that is a Box of numbers, as float64."""
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            if name != "action_mask":
                yield from _numbers(part, value[name])
    elif isinstance(space, spaces.Tuple):
        for part, one in zip(space.spaces, value, strict=True):
            yield from _numbers(part, one)
    elif _is_counted(space):
        if (array := np.asarray(value)).dtype.kind not in "buif":  # None would become NaN
            raise TypeError("not numbers")
        yield array.astype(np.float64).reshape(-1)
