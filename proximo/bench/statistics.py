"""Honest statistics over seeds: rliable's aggregates and intervals, scipy's tests; pure functions of arrays."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import numpy as np

REPETITIONS = 2000
LEVEL = 0.05


class Estimate(NamedTuple):
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float


class Verdict(NamedTuple):
    """How ours stands to what was published."""

    word: str
    """above, within or below; empty: no verdict is possible"""
    reason: str
    """the test and its p value, or why there is none"""


@contextmanager
def rliable_seed(seed: int) -> Iterator[None]:
    """rliable 1.2 draws from numpy's global generator: it is seeded inside and put back as it was."""
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(state)


def iqm(scores: np.ndarray) -> float:
    """Interquartile mean over all of (seeds, environments), as rliable's aggregate_iqm (arXiv 2108.13264)."""
    return float(trimmed_mean(np.asarray(scores, float).ravel()))


def trimmed_mean(values: np.ndarray) -> np.ndarray:
    """Mean along the first axis without its lowest and highest quarter: scipy's trim_mean, ten times faster.

    The bootstrap asks for it thousands of times a page.
    """
    cut = len(values) // 4
    return np.sort(values, axis=0)[cut:len(values) - cut].mean(0)


def bootstrap(scores: np.ndarray | list[np.ndarray], function: Callable[..., np.ndarray], seed: int = 0,
              repetitions: int = REPETITIONS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stratified bootstrap by rliable: (value, low, high) of function(scores), each of the function's shape (K,).

    scores (seeds, environments, ...): seeds are drawn anew within each environment. Several arrays, as a list, are
    drawn independently of each other.
    """
    from rliable.library import get_interval_estimates
    if isinstance(scores, np.ndarray) and len(scores) == 1:
        value = np.atleast_1d(function(scores))
        return value, value, value
    with rliable_seed(seed):
        values, intervals = get_interval_estimates({"_": scores}, function, reps=repetitions)
    low, high = intervals["_"]
    return np.atleast_1d(values["_"]), np.atleast_1d(low), np.atleast_1d(high)


def estimate(scores: np.ndarray, function: Callable[[np.ndarray], float] = iqm, seed: int = 0) -> Estimate:
    """A statistic of scores (seeds,) or (seeds, environments) with its stratified bootstrap interval."""
    matrix = _matrix(scores)
    return _estimate(matrix.tobytes(), matrix.shape, function, seed)


@lru_cache(maxsize=1000)
def _estimate(data: bytes, shape: tuple[int, ...], function: Callable[[np.ndarray], float], seed: int) -> Estimate:
    """A page shows the same estimate in several tables: it is drawn once."""
    matrix = np.frombuffer(data).reshape(shape)
    value, low, high = bootstrap(matrix, lambda drawn: np.array([function(drawn)]), seed)
    return Estimate(float(value[0]), float(low[0]), float(high[0]))


def curve_bands(curves: np.ndarray, seed: int = 0) -> dict[str, np.ndarray]:
    """curves (seeds, P) -> mean, iqm, low, high (P,): the interval is that of the interquartile mean."""
    value, low, high = bootstrap(curves[:, None, :], lambda drawn: trimmed_mean(drawn[:, 0]), seed, repetitions=500)
    return {"mean": curves.mean(0), "iqm": value, "low": low, "high": high}


def improvement(new: np.ndarray, old: np.ndarray) -> float:
    """P(new > old), ties half, averaged over environments; (seeds, environments) each, seeds may differ in number."""
    larger = new[:, None] > old[None]
    equal = new[:, None] == old[None]  # (seeds of new, seeds of old, environments)
    return float((larger + 0.5 * equal).mean())


def probability_of_improvement(new: np.ndarray, old: np.ndarray, seed: int = 0) -> Estimate:
    """P(new > old) with its interval, both sides drawn independently (Agarwal et al. 2021)."""
    value, low, high = bootstrap([_matrix(new), _matrix(old)],
                                 lambda x, y: np.array([improvement(x, y)]), seed)
    return Estimate(float(value[0]), float(low[0]), float(high[0]))


def paired_difference(new: np.ndarray, old: np.ndarray, seed: int = 0) -> Estimate:
    """Mean of new - old over pairs of one seed, its interval by drawing pairs; (seeds,) or (seeds, environments)."""
    return estimate(_matrix(new) - _matrix(old), np.mean, seed)


def paired_p_value(new: np.ndarray, old: np.ndarray) -> float:
    """One-sided p value of `new is worse than old` by the paired t test (scipy's ttest_rel); 1 below two pairs."""
    from scipy.stats import ttest_rel
    difference = np.asarray(new, float) - np.asarray(old, float)
    if len(difference) < 2:
        return 1.0
    if np.ptp(difference) <= 1e-9 * np.abs(difference).max():
        return 0.0 if difference[0] < 0 else 1.0
    return float(ttest_rel(new, old, alternative="less").pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted for looking at several environments at once (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = running
    return adjusted


def verdict(ours: Sequence[float] | np.ndarray, mean: float, std: float | None, seeds: int) -> Verdict:
    """Ours, one value a seed, against a published mean and population deviation over its seeds.

    Welch's t test from summary statistics, two-sided at 5 %; the published population deviation is turned into that
    of a sample. The word is empty where too little is known for a test.
    """
    from scipy.stats import ttest_ind_from_stats
    values = np.asarray(ours, float)
    if std is None:
        return Verdict("", "published without a deviation")
    if min(len(values), seeds) < 2:
        return Verdict("", "one seed only, of ours" if len(values) < 2 else "one seed only, of the published")
    theirs, own = std * np.sqrt(seeds / (seeds - 1)), values.std(ddof=1)
    if theirs == 0 and own == 0:
        p = 1.0 if values.mean() == mean else 0.0
    else:
        p = float(ttest_ind_from_stats(values.mean(), own, len(values), mean, theirs, seeds, equal_var=False).pvalue)
    word = "within" if p >= LEVEL else "above" if values.mean() > mean else "below"
    return Verdict(word, f"p = {p:.2g}")


def normalised(scores: np.ndarray, low: float, high: float) -> np.ndarray:
    """0 at low, 1 at high: human-normalised where low is random play and high a person."""
    return (np.asarray(scores, float) - low) / (high - low)


def performance_profiles(scores: Mapping[str, np.ndarray], thresholds: np.ndarray,
                         seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
    """name -> (seeds, environments) of normalised scores; the share of runs above each threshold, with its interval."""
    from rliable.library import create_performance_profile
    profiles = {}
    for name, matrix in scores.items():
        if len(matrix) == 1:
            value = np.array([(matrix > t).mean() for t in thresholds])
            profiles[name] = {"value": value, "low": value, "high": value}
            continue
        with rliable_seed(seed):
            values, intervals = create_performance_profile({name: matrix}, thresholds, reps=500)
        profiles[name] = {"value": values[name], "low": intervals[name][0], "high": intervals[name][1]}
    return profiles


def _matrix(scores: np.ndarray) -> np.ndarray:
    matrix = np.asarray(scores, float)
    return matrix[:, None] if matrix.ndim == 1 else matrix
