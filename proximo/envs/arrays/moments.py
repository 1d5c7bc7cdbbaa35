"""Running mean and variance of many rows, and of the rows of all ranks, in numpy, JAX or torch (Chan et al. 1983)."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from proximo.errors import UsageError
from proximo.protocols import Array

MOST_COUNTED = 2.0**23  # the largest weight of earlier rows in float32, which cannot count further than 2**24
MOST_MERGED = MOST_COUNTED / 2  # the same after ranks were merged, which leaves room for the rows of a rollout
IN_MODELS = ("mean", "var", "count")  # what a trained model has of its moments
PRIOR_COUNT = 1e-4  # the weight of the mean 0 and variance 1 that moments begin with, as in openai/baselines


class Moments(NamedTuple):
    """Mean and variance of `count` rows; float64 in numpy and torch, float32 in JAX."""

    mean: Array  # (*shape,)
    var: Array  # (*shape,)
    count: Array  # ()
    rest: Array = None  # (2, *shape), what float32 has lost of mean and var; 0 in float64. A trained model has none


class Increments(NamedTuple):
    """What rows add to moments, as sums, so that those of several ranks can be added up."""

    count: Array  # () number of rows
    first: Array  # (*shape,) sum of the distances to the mean before
    second: Array  # (*shape,) sum of their squares


class Statistics(NamedTuple):
    """The state of normalisation (normalize.py)."""

    obs: Moments
    ret: Moments  # of the discounted return
    running: Array  # (N,) discounted return of each row so far


def start_moments(shape: tuple[int, ...], xp: Any = np) -> Moments:
    """Return the moments of no rows. `xp` is numpy or jax.numpy."""
    dtype = xp.float64 if xp is np else xp.float32
    return Moments(mean=xp.zeros(shape, dtype), var=xp.ones(shape, dtype), count=xp.asarray(PRIOR_COUNT, dtype),
                   rest=xp.zeros((2, *shape), dtype))


def known_statistics(start: Callable[[], Statistics], known: Mapping[str, Moments]) -> Statistics:
    """Return what `start` returns, with known moments in place of "obs" and "ret".

    Raises:
        UsageError: They have other shapes.
    """
    empty = start()
    dtype = empty.running.dtype
    begun = {name: getattr(empty, name)._replace(**{field: np.asarray(x, dtype) for field, x in zip(IN_MODELS, found)})
             for name, found in known.items()}
    if dtype.itemsize < 8:  # float32 counts no further
        begun = {name: found._replace(count=np.minimum(found.count, np.asarray(MOST_MERGED, dtype)))
                 for name, found in begun.items()}
    wrong = [name for name, found in begun.items()
             if any(x.shape != y.shape for x, y in zip(found, getattr(empty, name)))]
    if wrong:
        raise UsageError(f"init_from: the statistics {', '.join(wrong)} of the model have other shapes than the run's.")
    return empty._replace(**begun)


def update_moments(moments: Moments, batch: Array, counted: Array | None, xp: Any = np) -> Moments:
    """Add rows.

    Args:
        moments: The moments so far.
        batch: (N, *shape).
        counted: (N,) bool, the rows that are added; None: all.
        xp: numpy, jax.numpy or torch_arrays.
    """
    number, mean, within = _moments_of_batch(batch, counted, moments.mean.dtype, xp)
    if not (xp is np or is_double(moments.mean)):
        return _add_in_float32(moments, number, mean, within, xp)
    count = moments.count
    total = count + number
    share = number / total  # 0 if no row is added
    delta = mean - moments.mean
    moved = delta * share
    moved += moments.mean
    spread = moments.var * count
    if within is not None:
        spread += within
    delta *= delta  # numpy computes in place what is a new array, which takes half the time
    delta *= count * share
    spread += delta
    spread /= total
    return Moments(mean=moved, var=spread, count=total, rest=moments.rest)


def _add_in_float32(moments: Moments, number: Any, mean: Array, within: Array | None, xp: Any) -> Moments:
    """Add rows by their moments, with compensated sums (Kahan 1965): one row in millions changes no digit of float32.

    Rows before the last 2**23 (2**22 with several ranks) lose their weight gradually, because float32 counts no
    further.
    """
    count = xp.minimum(moments.count, MOST_COUNTED)
    total = count + number
    share = number / total
    delta = mean - moments.mean - moments.rest[0]
    spread = delta * delta * (count * share) + (0 if within is None else within)
    mean, low = compensated_sum(moments.mean, moments.rest[0], delta * share)
    var, low_var = compensated_sum(moments.var, moments.rest[1], (spread - number * moments.var) / total)
    begun = count >= number  # before, most of var is the prior, which does not cancel exactly
    return Moments(mean=mean, var=xp.where(begun, var, (moments.var * count + spread) / total), count=total,
                   rest=xp.stack([low, xp.where(begun, low_var, 0)]))


def compensated_sum(x: Array, rest: Array, step: Array) -> tuple[Array, Array]:
    """Return x + rest + step, rounded, and what rounding has lost of it (Kahan 1965)."""
    step = step + rest
    total = x + step
    return total, step - (total - x)


def is_double(x: Array) -> bool:
    """Return whether an array of numpy, torch or JAX is float64."""
    return bool(x.dtype.itemsize == 8)


def _moments_of_batch(batch: Array, counted: Array | None, dtype: Any, xp: Any) -> tuple[Any, Array, Array | None]:
    """Return the number of rows that count, their mean, and the sum of their squared distances to it (None: 0)."""
    if counted is None and len(batch) == 1:  # one environment: half the work of the general case
        return 1, batch[0], None
    if counted is None:
        mean = batch.sum(axis=0, dtype=dtype) / len(batch)
        return len(batch), mean, ((batch - mean) ** 2).sum(axis=0)
    number = counted.sum()
    rows = counted.reshape(-1, *(1,) * (batch.ndim - 1))
    mean = xp.where(rows, batch, 0).sum(axis=0, dtype=dtype) / xp.maximum(number, 1)
    return number, mean, xp.where(rows, (batch - mean) ** 2, 0).sum(axis=0)


def increments_since(base: Moments, local: Moments) -> Increments:
    """Return what rows have added to `base`, where `local` are the moments that include them."""
    moved = local.mean - base.mean + (local.rest[0] - base.rest[0])
    first = moved * local.count
    second = local.var * local.count - base.var * base.count + moved * first
    return Increments(count=local.count - base.count, first=first, second=second)


def most_merged(moments: Moments) -> float:
    """Return the largest count of merged moments from which rows can be counted in this dtype during a rollout."""
    return np.inf if is_double(moments.mean) else MOST_MERGED


def add_increments(base: Moments, added: Increments, most: float = np.inf, xp: Any = np) -> Moments:
    """Return `base` with a sum of increments_since(base, ...) added, and a count of `most` at most."""
    total = base.count + added.count
    shift = xp.asarray(added.first / total, base.mean.dtype)
    spread = xp.maximum(base.var * base.count + added.second - shift * added.first, 0)
    mean, low = (base.mean + shift, base.rest[0]) if is_double(base.mean) else compensated_sum(
        base.mean, base.rest[0], shift)
    return Moments(mean=mean, var=spread / total, count=xp.minimum(total, most), rest=xp.stack([low, 0 * low]))


def merge_statistics(base: Statistics, local: Statistics, reduce_sum: Callable[[np.ndarray], np.ndarray],
                     most: float = np.inf) -> Statistics:
    """Merge the statistics of all ranks, in numpy: `base` and what each rank added since then.

    Args:
        base: Statistics that are equal on all ranks.
        local: This rank's statistics, which continue `base`.
        reduce_sum: Sums a float64 vector over all ranks.
        most: The largest count; see most_merged().

    Returns:
        The merged statistics; `running` is this rank's own.
    """
    own = [*increments_since(base.obs, local.obs), *increments_since(base.ret, local.ret)]
    sums = reduce_sum(np.concatenate([np.ravel(x) for x in own]).astype(np.float64))
    stops = np.cumsum([np.size(x) for x in own])
    every = [part.reshape(np.shape(x)) for part, x in zip(np.split(sums, stops[:-1]), own)]
    return Statistics(obs=add_increments(base.obs, Increments(*every[:3]), most),
                      ret=add_increments(base.ret, Increments(*every[3:]), most), running=local.running)
