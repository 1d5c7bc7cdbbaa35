"""Warnings where a metric leaves its usual range, and none where a run learns as usual."""

import pytest

from proximo.bench.live.warnings import RANGES, check_ranges

USUAL = {"losses/approx_kl": 0.01, "losses/clipfrac": 0.1, "losses/entropy": 0.5, "losses/explained_variance": 0.5}


def warned(share=0.5, first=0.69, returns=(1.0, 2.0), lines=10, continuous=False, **values):
    rows = [USUAL | {f"losses/{name}": value for name, value in values.items()}] * lines
    return [(one.metric, one.side) for one in check_ranges([{"losses/entropy": first}] * 5, rows, share, returns, continuous)]


@pytest.mark.parametrize("values", [{}, {"approx_kl": 0.04}, {"clipfrac": 0.35}, {"explained_variance": -0.05},
                                    {"entropy": -3.0, "first": 2.8}, {"entropy": 0.3, "first": -1.0}, {"entropy": 0.02},
                                    {"entropy": 0.01, "first": 2.8, "continuous": True}])
def test_usual_values(values):
    """The entropy of continuous actions falls below 0 when the policy gets precise: that is usual."""
    assert warned(**values) == []


@pytest.mark.parametrize("values,expected", [
    ({"approx_kl": 0.06}, ("approx_kl", "above")), ({"approx_kl": 1e-9}, ("approx_kl", "below")), ({"clipfrac": 0.5}, ("clipfrac", "above")),
    ({"entropy": 0.01}, ("entropy", "below")), ({"entropy": 5.0, "first": 2.8}, ("entropy", "above")),
    ({"explained_variance": -0.2}, ("explained_variance", "below"))])
def test_unusual_values(values, expected):
    assert warned(**values) == [expected]
    assert warned(**values, lines=4) == []  # too few to say anything


def test_when_nothing_is_said():
    """Early, the value function is bad as a rule; and equal returns have no variance to explain."""
    assert warned(explained_variance=-3.0, share=0.05) == []
    assert warned(approx_kl=1e-9, share=0.95) == []  # the learning rate has nearly reached 0
    assert warned(explained_variance=-3.0, returns=(500.0, 500.0)) == []
    assert check_ranges([], [{}] * 10, 0.5, []) == []


def test_every_bound_has_its_advice_and_a_source():
    for one in RANGES:
        assert (one.low is not None) == bool(one.if_low) and (one.high is not None) == bool(one.if_high) and one.source
