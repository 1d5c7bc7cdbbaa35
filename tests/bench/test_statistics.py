"""Statistics against rliable, scipy, and numbers worked out by hand."""

import numpy as np
import pytest
from scipy import stats

from proximo.bench.statistics import (
    bootstrap,
    curve_bands,
    estimate,
    holm,
    improvement,
    iqm,
    normalise,
    paired_difference,
    paired_p_value,
    performance_profiles,
    probability_of_improvement,
    rliable_seed,
    trimmed_mean,
    verdict,
)

library = pytest.importorskip("rliable.library")
metrics = pytest.importorskip("rliable.metrics")

SCORES = np.random.default_rng(7).normal(10, 3, size=(9, 4))
OTHERS = np.random.default_rng(8).normal(11, 3, size=(6, 4))


def test_iqm_matches_rliable():
    """For every number of values modulo 4, because the quarter that is cut off is rounded down."""
    for count in range(1, 13):
        values = SCORES.ravel()[:count]
        assert iqm(values) == pytest.approx(metrics.aggregate_iqm(values))
    assert iqm(SCORES) == pytest.approx(metrics.aggregate_iqm(SCORES))
    assert np.allclose(trimmed_mean(SCORES), stats.trim_mean(SCORES, 0.25, axis=0))


def test_intervals_match_rliable():
    """get_interval_estimates with the same seed gives the same three numbers."""
    found = estimate(SCORES, seed=3)
    with rliable_seed(3):
        values, intervals = library.get_interval_estimates(
            {"a": SCORES}, lambda scores: np.array([metrics.aggregate_iqm(scores)]), reps=2000)
    assert found == pytest.approx((values["a"][0], *intervals["a"][:, 0]))
    assert found.low < found.value < found.high
    assert estimate(SCORES[:, 0]) == estimate(SCORES[:, :1])  # seeds of one environment


def test_the_same_data_give_the_same_interval_and_the_global_generator_stays_untouched():
    """Two reports on the same runs are equal, and other code in the process keeps its random numbers."""
    np.random.seed(5)
    expected = np.random.random(3)
    np.random.seed(5)
    first = estimate(SCORES)
    assert np.array_equal(np.random.random(3), expected)
    assert estimate(SCORES) == first
    assert estimate(SCORES, seed=1) != first


def test_the_interval_covers_the_true_mean_about_as_often_as_it_says():
    """200 samples of 10 seeds from a known distribution: a 95 % percentile bootstrap covers 85 to 99 % of them."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        sample = rng.normal(0, 1, size=(10, 1))
        _, low, high = bootstrap(sample, lambda drawn: np.array([drawn.mean()]), repetitions=200)
        covered += low[0] <= 0 <= high[0]
    assert 170 <= covered <= 198


def test_one_seed_has_no_interval_and_does_not_crash():
    """The interval of a single value is the value."""
    assert estimate(np.array([3.0])) == (3.0, 3.0, 3.0)


def test_probability_of_improvement_matches_rliable():
    """rliable computes it from Mann and Whitney's U; the values include ties."""
    assert improvement(SCORES, OTHERS) == pytest.approx(metrics.probability_of_improvement(SCORES, OTHERS))
    tied_a, tied_b = SCORES.round(), OTHERS.round()
    assert improvement(tied_a, tied_b) == pytest.approx(metrics.probability_of_improvement(tied_a, tied_b))
    assert improvement(SCORES, SCORES) == pytest.approx(0.5)
    found = probability_of_improvement(SCORES + 100, OTHERS)
    assert found == (1, 1, 1)


def test_performance_profiles_match_rliable():
    """Values and intervals against create_performance_profile."""
    thresholds = np.linspace(0, 20, 7)
    found = performance_profiles({"a": SCORES}, thresholds)["a"]
    with rliable_seed(0):
        values, intervals = library.create_performance_profile({"a": SCORES}, thresholds, reps=500)
    assert np.array_equal(found["value"], values["a"])
    assert np.array_equal(np.stack([found["low"], found["high"]]), intervals["a"])
    single = performance_profiles({"a": SCORES[:1]}, thresholds)["a"]
    assert np.array_equal(single["value"], [(SCORES[:1] > t).mean() for t in thresholds])


def test_a_score_at_a_threshold_is_not_above_it():
    """Of one seed as of several, which rliable counts."""
    thresholds = np.array([0.0, 1.0, 2.0])
    one, several = (performance_profiles({"a": np.ones((seeds, 2))}, thresholds)["a"]["value"] for seeds in (1, 3))
    assert one.tolist() == several.tolist() == [1, 0, 0]


def test_curve_bands_contain_the_line():
    """Mean and trimmed mean at each point against scipy; the line is inside the band."""
    curves = np.cumsum(np.random.default_rng(1).normal(size=(8, 20)), axis=1)
    bands = curve_bands(curves)
    assert np.allclose(bands["mean"], curves.mean(0))
    assert np.allclose(bands["iqm"], stats.trim_mean(curves, 0.25, axis=0))
    assert (bands["low"] <= bands["iqm"]).all() and (bands["iqm"] <= bands["high"]).all()


def test_bands_are_the_intervals_of_each_point():
    """Against rliable's bootstrap of independent points with heavy tails, on the average over them."""
    curves = np.random.default_rng(2).standard_t(2, size=(10, 40))
    bands, (_, low, high) = curve_bands(curves), bootstrap(curves, trimmed_mean)
    assert abs((bands["low"] - low).mean()) < 0.06 and abs((bands["high"] - high).mean()) < 0.06


def test_a_resampled_seed_counts_with_its_whole_curve():
    """Curves that are constant have a band that is constant: points of their own would make it ragged."""
    bands = curve_bands(np.repeat([[0.0], [1.0], [2.0]], 50, axis=1))
    assert all(len(set(bands[name])) == 1 for name in ("low", "iqm", "high"))
    assert bands["low"][0] < 0.5 and bands["high"][0] > 1.5


def test_verdicts_match_welchs_test():
    """Against scipy's test of two samples; the verdict knows only mean and deviation of the second one. Against one that does
    not vary, it is the test of one sample."""
    words, theirs = set(), OTHERS[:, 0]
    for ours in (SCORES[:3, 0] + shift for shift in np.linspace(-9, 9, 61)):
        found = verdict(list(ours), theirs.mean(), theirs.std(), len(theirs))
        p = stats.ttest_ind(ours, theirs, equal_var=False).pvalue
        assert found.reason == f"p = {p:.2g}"
        assert found.word == ("within" if p >= 0.05 else "above" if ours.mean() > theirs.mean() else "below")
        assert verdict(ours, 11.0, 0.0, 4).reason == f"p = {stats.ttest_1samp(ours, 11.0).pvalue:.2g}"
        words.add(found.word)
    assert len(words) == 3


def test_verdicts_of_clear_differences():
    assert verdict([1.0, 1.1, 0.9], 0.0, 0.1, 3).word == "above"
    assert verdict([-1.0, -1.1, -0.9], 0.0, 0.1, 3).word == "below"


def test_verdicts_where_nothing_varies_or_too_little_is_known():
    """MountainCar-v0 is -200 ± 0 on both sides; a single seed or a missing deviation allows no test."""
    assert verdict([-200.0] * 3, -200.0, 0.0, 3).word == "within"
    assert verdict([-190.0] * 3, -200.0, 0.0, 3).word == "above"
    assert verdict([1.0], 0.0, 0.1, 3) == ("", "only one seed of ours")
    assert verdict([1.0, 2.0], 0.0, 0.1, 1) == ("", "only one seed was published")
    assert verdict([1.0, 2.0], 0.0, None, 3) == ("", "published without a standard deviation")


def test_paired_comparison():
    """The p value is that of scipy's one-sided ttest_rel; identical runs have 1, a constant loss has 0."""
    old, new = SCORES[:, 0], SCORES[:, 1]
    assert paired_p_value(new, old) == pytest.approx(stats.ttest_rel(new, old, alternative="less").pvalue)
    assert paired_p_value(old, old) == 1.0
    assert paired_p_value(old - 1, old) == 0.0
    assert paired_p_value(old[:1] - 1, old[:1]) == 1.0
    assert paired_p_value(new[:2], old[:2]) == pytest.approx(stats.ttest_rel(new[:2], old[:2], alternative="less").pvalue)
    assert paired_difference(new, old).value == pytest.approx((new - old).mean())


def test_holms_correction():
    """By hand: 0.01 x 3, 0.02 x 2, 0.5 x 1; never falling, and at most 1."""
    assert holm([0.5, 0.01, 0.02]) == pytest.approx([0.5, 0.03, 0.04])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_normalised_scores():
    """0 for random play and 1 for a human: Breakout's 1.7 and 30.5."""
    assert np.allclose(normalise(np.array([1.7, 30.5, 59.3]), 1.7, 30.5), [0, 1, 2])
