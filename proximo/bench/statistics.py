"""Statistics over seeds: aggregates and intervals by rliable, tests by scipy. All functions are pure."""

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from proximo.errors import UsageError

REPETITIONS = 2000  # of the bootstrap
LEVEL = 0.05  # of the tests
PACKAGES = ("rliable", "scipy")  # of the extra [bench]


class Estimate(NamedTuple):
    """A number and its 95 % confidence interval."""

    value: float
    low: float
    high: float


class Verdict(NamedTuple):
    """How scores compare with a published number."""

    word: str
    """above, within or below; empty: no verdict is possible"""
    reason: str
    """the p value of the test, or why there is no verdict"""


def missing_packages() -> list[str]:
    """Return the packages that reports and comparisons need and that are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def require_packages(command: str) -> None:
    """Raise UsageError, with the command that installs them, if a package of the extra [bench] is missing."""
    if missing := missing_packages():
        raise UsageError(f'{command} needs {" and ".join(missing)}: pip install "proximo[bench]"')


@contextmanager
def rliable_seed(seed: int) -> Iterator[None]:
    """Seed numpy's global generator, from which rliable 1.2 draws, and restore its state at the end."""
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(state)


def iqm(scores: np.ndarray) -> float:
    """Return the interquartile mean of scores (seeds, environments), as rliable's aggregate_iqm (arXiv 2108.13264)."""
    return float(trimmed_mean(np.asarray(scores, float).ravel()))


def trimmed_mean(values: np.ndarray) -> np.ndarray:
    """Return the mean along the first axis without the lowest and the highest quarter.

    This is scipy's trim_mean, ten times faster: the bootstrap calls it thousands of times for one report.
    """
    cut = len(values) // 4
    return np.sort(values, axis=0)[cut:len(values) - cut].mean(0)


def bootstrap(scores: np.ndarray | list[np.ndarray], function: Callable[..., np.ndarray], seed: int = 0,
              repetitions: int = REPETITIONS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Estimate a statistic and its 95 % interval by rliable's stratified bootstrap.

    Args:
        scores: (seeds, environments, ...). Seeds are resampled within each environment. Several arrays, as a list, are
            resampled independently.
        function: Maps scores of that shape to an array (K,).
        seed: The seed of the resampling.
        repetitions: How often to resample.

    Returns:
        The value, and the lower and upper ends of the interval, (K,) each. All three are equal for a single seed.
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
    """Estimate a statistic of scores (seeds,) or (seeds, environments) with its stratified bootstrap interval."""
    matrix = _matrix(scores)
    return _estimate(matrix.tobytes(), matrix.shape, function, seed)


@lru_cache(maxsize=1000)
def _estimate(data: bytes, shape: tuple[int, ...], function: Callable[[np.ndarray], float], seed: int) -> Estimate:
    """Cached, because a report shows the same estimate in several tables."""
    matrix = np.frombuffer(data).reshape(shape)
    value, low, high = bootstrap(matrix, lambda sample: np.array([function(sample)]), seed)
    return Estimate(float(value[0]), float(low[0]), float(high[0]))


def curve_bands(curves: np.ndarray) -> dict[str, np.ndarray]:
    """Summarise learning curves over seeds.

    Args:
        curves: (seeds, P).

    Returns:
        "mean", "iqm", and "low" and "high", the 95 % interval of the interquartile mean by a bootstrap; (P,) each. A
        resampled seed counts with its whole curve: points that are resampled on their own make a ragged band.
    """
    chosen = np.random.default_rng(0).integers(len(curves), size=(len(curves), 500))
    low, high = np.percentile(trimmed_mean(curves[chosen]), [2.5, 97.5], axis=0)
    return {"mean": curves.mean(0), "iqm": trimmed_mean(curves), "low": low, "high": high}


def improvement(new: np.ndarray, old: np.ndarray) -> float:
    """Return P(new > old), averaged over environments; a tie counts half.

    Args:
        new: (seeds, environments).
        old: (seeds, environments); the number of seeds may differ.
    """
    larger = new[:, None] > old[None]
    equal = new[:, None] == old[None]  # (seeds of new, seeds of old, environments)
    return float((larger + 0.5 * equal).mean())


def probability_of_improvement(new: np.ndarray, old: np.ndarray) -> Estimate:
    """Estimate P(new > old), where both sides are resampled independently (Agarwal et al. 2021)."""
    value, low, high = bootstrap([_matrix(new), _matrix(old)], lambda x, y: np.array([improvement(x, y)]))
    return Estimate(float(value[0]), float(low[0]), float(high[0]))


def paired_difference(new: np.ndarray, old: np.ndarray) -> Estimate:
    """Estimate the mean of new - old over pairs of equal seeds, which are resampled as pairs.

    Args:
        new: (seeds,) or (seeds, environments).
        old: The same shape; equal rows have equal seeds.
    """
    return estimate(_matrix(new) - _matrix(old), np.mean)


def paired_p_value(new: np.ndarray, old: np.ndarray) -> float:
    """Return the one-sided p value of "new is worse than old" by the paired t test (scipy's ttest_rel).

    It is 1 for fewer than two pairs.
    """
    from scipy.stats import ttest_rel
    difference = np.asarray(new, float) - np.asarray(old, float)
    if len(difference) < 2:
        return 1.0
    if np.ptp(difference) <= 1e-9 * np.abs(difference).max():
        return 0.0 if difference[0] < 0 else 1.0
    return float(ttest_rel(new, old, alternative="less").pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p values for the number of comparisons (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = running
    return adjusted


def verdict(ours: Sequence[float] | np.ndarray, mean: float, std: float | None, seeds: int) -> Verdict:
    """Compare scores with a published mean by Welch's t test from summary statistics, two-sided at 5 %.

    Args:
        ours: (seeds,).
        mean: The published mean over seeds.
        std: The published population standard deviation over seeds; None if there is none.
        seeds: The number of published seeds.

    Returns:
        The verdict; its word is empty if too little is known for a test.
    """
    from scipy.stats import ttest_ind_from_stats
    values = np.asarray(ours, float)
    if std is None:
        return Verdict("", "published without a standard deviation")
    if min(len(values), seeds) < 2:
        return Verdict("", "only one seed of ours" if len(values) < 2 else "only one seed was published")
    theirs, own = std * np.sqrt(seeds / (seeds - 1)), values.std(ddof=1)
    if theirs == 0 and own == 0:
        p = 1.0 if values.mean() == mean else 0.0
    else:
        p = float(ttest_ind_from_stats(values.mean(), own, len(values), mean, theirs, seeds, equal_var=False).pvalue)
    word = "within" if p >= LEVEL else "above" if values.mean() > mean else "below"
    return Verdict(word, f"p = {p:.2g}")


def normalise(scores: np.ndarray, low: float, high: float) -> np.ndarray:
    """Scale scores to 0 at `low` and 1 at `high`; human-normalised if these are random play and a human."""
    return (np.asarray(scores, float) - low) / (high - low)


def performance_profiles(scores: Mapping[str, np.ndarray],
                         thresholds: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """Return the share of runs above each threshold, with its interval.

    Args:
        scores: Normalised scores (seeds, environments) by name.
        thresholds: (P,).

    Returns:
        "value", "low" and "high", (P,) each, by name.
    """
    from rliable.library import create_performance_profile
    profiles = {}
    for name, matrix in scores.items():
        if len(matrix) == 1:
            value = np.array([(matrix > t).mean() for t in thresholds])
            profiles[name] = {"value": value, "low": value, "high": value}
            continue
        with rliable_seed(0):
            values, intervals = create_performance_profile({name: matrix}, thresholds, reps=500)
        profiles[name] = {"value": values[name], "low": intervals[name][0], "high": intervals[name][1]}
    return profiles


def _matrix(scores: np.ndarray) -> np.ndarray:
    matrix = np.asarray(scores, float)
    return matrix[:, None] if matrix.ndim == 1 else matrix
