"""The effect of implementation details: runs with one detail changed against the runs without the change."""

from typing import NamedTuple

from proximo.bench.labels import compared_settings
from proximo.bench.results import Groups, RunResult, metric_of, paired_scores
from proximo.bench.statistics import Estimate, paired_difference, paired_p_value, probability_of_improvement


class Ablation(NamedTuple):
    """One detail in one environment."""

    env_id: str
    base: str
    """label of the runs without the change"""
    detail: str
    change: str
    """the changed fields, with both values"""
    pairs: int
    """number of seeds that both sides have"""
    difference: Estimate
    """mean over pairs of the score with the change minus the score without"""
    improvement: Estimate
    """probability that a run with the change is better"""
    p_worse: float
    """one-sided p value of "the change makes it worse", not corrected for the number of details"""


def find_ablations(groups: Groups) -> list[Ablation]:
    """Compare all runs in which a detail was changed with those of the same environment, settings and seeds."""
    found = []
    for (env_id, label), runs in groups.items():
        base_label = label.removesuffix(f"-changed_{runs[0].ablates}")
        base = groups.get((env_id, base_label)) if runs[0].ablates else None
        if base is None:
            continue
        with_change, without = paired_scores(runs, base, metric_of(runs[0].variant))
        if len(with_change):
            found.append(Ablation(env_id=env_id, base=base_label, detail=runs[0].ablates,
                                  change=_describe_change(runs[0], base[0]), pairs=len(with_change),
                                  difference=paired_difference(with_change, without),
                                  improvement=probability_of_improvement(with_change, without),
                                  p_worse=paired_p_value(with_change, without)))
    return found


def _describe_change(run: RunResult, base: RunResult) -> str:
    return ", ".join(f"{name} {_value_text(base.config.get(name))} to {_value_text(value)}"
                     for name, value in compared_settings(run.config).items() if base.config.get(name) != value)


def _value_text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
