"""proximo compare: two sets of runs, paired by environment and seed; a significant regression ends with code 1."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from proximo.bench.report_tables import interval, paired_scores
from proximo.bench.runs import Groups, Run, group_runs, metric_of, read_runs
from proximo.bench.statistics import (
    LEVEL,
    Estimate,
    estimate,
    holm,
    paired_difference,
    paired_p_value,
    probability_of_improvement,
)
from proximo.errors import UsageError, notify


class Comparison(NamedTuple):
    """B against A in one environment."""

    env_id: str
    old_label: str
    new_label: str
    pairs: int
    old: Estimate
    new: Estimate
    difference: Estimate
    """mean of B - A over pairs of one seed"""
    improvement: Estimate
    """probability that a run of B beats a run of A"""
    p_worse: float
    """one-sided paired t test of `B is worse`, after Holm's correction for the number of comparisons"""
    speed: float
    """steps a second of B over those of A; nan where unknown"""


def compare(a: str | Path, b: str | Path, metric: str = "") -> int:
    """Prints B (new) against A (old); 1 where B is significantly worse in any environment, else 0.

    Runs pair up by environment, label and seed; where each side has one label only, the labels may differ (two flags,
    two frameworks). metric is episodic_return or episodic_length; empty: that of the variant. Raises UsageError where
    nothing pairs up.
    """
    found = comparisons(a, b, metric)
    _print(found, a, b)
    worse = [one for one in found if one.p_worse < LEVEL]
    for one in worse:
        print(f"regression: {one.env_id} ({one.new_label}), p = {one.p_worse:.2g}")
    if not worse:
        print(f"no significant regression (one-sided paired t test at {LEVEL:.0%}, Holm's correction over "
              f"{len(found)} comparisons)")
    return 1 if worse else 0


def comparisons(a: str | Path, b: str | Path, metric: str = "") -> list[Comparison]:
    """All pairings of two folders of runs. Raises UsageError where there is none."""
    old, new = group_runs(read_runs(a)), group_runs(read_runs(b))
    found = [one for pair in _pairings(old, new) if (one := _compare_groups(old, new, *pair, metric)) is not None]
    if not found:
        raise UsageError(f"no finished runs of {a} and {b} have an environment and two seeds in common")
    adjusted = holm([one.p_worse for one in found])
    return [one._replace(p_worse=p) for one, p in zip(found, adjusted, strict=True)]


def _pairings(old: Groups, new: Groups) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    pairs = []
    for env_id in dict.fromkeys(env_id for env_id, _ in (*old, *new)):
        left, right = ([label for one, label in side if one == env_id] for side in (old, new))
        if len(left) == len(right) == 1:
            pairs.append(((env_id, left[0]), (env_id, right[0])))
            continue
        common = [label for label in left if label in right]
        pairs += [((env_id, label), (env_id, label)) for label in common]
        alone = sorted({*left, *right} - {*common})
        if alone:
            notify(f"{env_id}: {', '.join(alone)} stand on one side only and are left out")
    return pairs


def _compare_groups(old: Groups, new: Groups, old_place: tuple[str, str], new_place: tuple[str, str],
                    metric: str) -> Comparison | None:
    before, after = old[old_place], new[new_place]
    new_scores, old_scores = paired_scores(after, before, metric or metric_of(after[0].variant))
    if len(new_scores) < 2:
        notify(f"{old_place[0]}: {len(new_scores)} seed in common; a comparison needs at least two")
        return None
    steps = {run.config.get("total_timesteps") for run in (*before, *after)}
    if len(steps) > 1:
        notify(f"{old_place[0]}: the runs are of different lengths ({', '.join(map(str, sorted(steps, key=str)))} steps)")
    return Comparison(old_place[0], old_place[1], new_place[1], len(new_scores), estimate(old_scores),
                      estimate(new_scores), paired_difference(new_scores, old_scores),
                      probability_of_improvement(new_scores, old_scores), paired_p_value(new_scores, old_scores),
                      _speed(after) / _speed(before))


def _speed(runs: list[Run]) -> float:
    speeds = [run.summary["sps"] for run in runs if run.summary.get("sps")]
    return float(np.mean(speeds)) if speeds else float("nan")


def _print(found: list[Comparison], a: str | Path, b: str | Path) -> None:
    from rich.console import Console
    from rich.table import Table
    table = Table(title=f"A: {a}\nB: {b}", title_justify="left")
    for name in ("environment", "A", "B", "pairs", "IQM of A [95 %]", "IQM of B [95 %]", "B - A [95 %]",
                 "P(B better) [95 %]", "p (B worse)", "speed"):
        table.add_column(name, overflow="fold")
    for one in found:
        style = "red" if one.p_worse < LEVEL else "green" if one.difference.low > 0 else None
        speed = "-" if np.isnan(one.speed) else f"x{one.speed:.2f}"
        table.add_row(one.env_id, one.old_label, one.new_label, str(one.pairs), interval(one.old), interval(one.new),
                      interval(one.difference), interval(one.improvement), f"{one.p_worse:.2g}", speed, style=style)
    console = Console()
    # A pipe has no width: without one of its own the table would be folded to 80 columns.
    Console(width=None if console.is_terminal else 220).print(table)
