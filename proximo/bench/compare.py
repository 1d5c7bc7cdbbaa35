"""proximo compare: compare two sets of runs, paired by environment and seed. A regression or failure exits with 1."""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from proximo.bench.results import (
    EVALUATION,
    METRICS,
    Groups,
    RunResult,
    group_runs,
    mean_of,
    metric_of,
    paired_scores,
    read_runs,
    steps_of,
)
from proximo.bench.statistics import (
    LEVEL,
    Estimate,
    estimate,
    holm,
    paired_difference,
    paired_p_value,
    probability_of_improvement,
    require_packages,
)
from proximo.bench.text import count_text, interval_text
from proximo.errors import UsageError, warn

Key = tuple[str, str]  # environment, label


class Comparison(NamedTuple):
    """B (new) against A (old) in one environment."""

    env_id: str
    old_label: str
    new_label: str
    pairs: int
    """number of seeds that both sides have"""
    old: Estimate
    """interquartile mean of A"""
    new: Estimate
    """interquartile mean of B"""
    difference: Estimate
    """mean of B - A over pairs of equal seeds"""
    improvement: Estimate
    """probability that a run of B is better than a run of A"""
    p_worse: float
    """one-sided paired t test of "B is worse", with Holm's correction for the number of comparisons"""
    speed: float | None
    """steps per second of B divided by those of A; None if unknown"""


def compare(a: str | Path, b: str | Path, metric: str = "") -> tuple[str, bool]:
    """Compare B (new) with A (old).

    Runs are paired by environment, label and seed. If each side has only one label in an environment, the labels may
    differ, for example by a flag or the framework.

    Args:
        a: A folder of runs.
        b: A folder of runs that should not be worse.
        metric: One of METRICS; empty: the training score that measures the variant.

    Returns:
        The table and the verdict as text for a terminal, and whether B is significantly worse in any environment or
        has a run that failed.

    Raises:
        UsageError: The metric is unknown, there are no pairs, or a package is missing.
    """
    found, new = compare_sides(a, b, metric)
    verdict = [f"regression: {one.env_id} ({one.new_label}), p = {one.p_worse:.2g}"
               for one in found if one.p_worse < LEVEL]
    verdict += [f"failed: {run.env_id} ({run.label}), seed {run.seed}" for run in new if run.failure]
    equal = (f"no significant regression (one-sided paired t test at {LEVEL:.0%}, Holm's correction over "
             f"{count_text(len(found), 'comparison')})")
    return _table(found, a, b) + "\n".join(verdict or [equal]), bool(verdict)


def compare_sides(a: str | Path, b: str | Path, metric: str) -> tuple[list[Comparison], list[RunResult]]:
    """Return the comparison of each environment that both folders have, and all runs of B; see `compare`."""
    require_packages("proximo compare")
    if metric and metric not in METRICS:
        raise UsageError(f"metric={metric} is unknown. Use one of {', '.join(METRICS)}, or leave it out for the "
                         "training score that measures the variant.")
    old_runs, new_runs = read_runs(a, swept=False), read_runs(b, swept=False)  # a sweep pairs with one run
    old, new = group_runs(old_runs), group_runs(new_runs)
    common = set.intersection(*({(run.env_id, run.label) for run in runs} for runs in (old_runs, new_runs)))
    pairs = _pair_groups(old, new, common)
    found = [one for pair in pairs if (one := _compare_groups(old, new, *pair, metric)) is not None]
    both = {env_id for env_id, _ in old} & {env_id for env_id, _ in new}
    if not found and not pairs and both - {env_id for env_id, _ in common}:
        raise UsageError(f"no setting of {a} is one of {b}, and an environment has several. Give the rows of the "
                         "benchmark file a label, by which runs are then paired, or compare one setting at a time.")
    if not found:
        scored, how = (" that have an evaluation", ", with --eval-every N") if metric == EVALUATION else ("", "")
        raise UsageError(f"the finished runs of {a} and {b} have no environment with two common seeds{scored}. Train "
                         f"the same seeds on both sides{how}.")
    adjusted = holm([one.p_worse for one in found])
    return [one._replace(p_worse=p) for one, p in zip(found, adjusted, strict=True)], new_runs


def _pair_groups(old: Groups, new: Groups, common: Collection[Key]) -> list[tuple[Key, Key]]:
    """Return the groups that are compared. Those in `common`, which both sides have begun, have no other partner."""
    pairs = []
    for env_id in dict.fromkeys(env_id for env_id, _ in (*old, *new)):
        left, right = ([label for one, label in side if one == env_id] for side in (old, new))
        if len(left) == len(right) == 1 and not {(env_id, left[0]), (env_id, right[0])} & {*common}:
            pairs.append(((env_id, left[0]), (env_id, right[0])))
            continue
        pairs += [((env_id, label), (env_id, label)) for label in left if label in right]
        if single := sorted({*left} ^ {*right}):
            warn(f"{env_id}: only one side has finished runs of {', '.join(single)}. They are left out.")
    return pairs


def _compare_groups(old: Groups, new: Groups, old_key: Key, new_key: Key, metric: str) -> Comparison | None:
    before, after = old[old_key], new[new_key]
    new_scores, old_scores = paired_scores(after, before, metric or metric_of(after[0].variant))
    env_id = old_key[0]
    if len(new_scores) < 2:
        what = "common evaluated seed" if metric == EVALUATION else "common seed"
        warn(f"{env_id} ({new_key[1]}): {count_text(len(new_scores), what)} with a score. "
             "A comparison needs at least two.")
        return None
    if len(new_scores) < max(len(before), len(after)):
        warn(f"{env_id} ({new_key[1]}): only {count_text(len(new_scores), 'seed')} with a score on both sides are "
             f"compared. The old side has {count_text(len(before), 'run')}, the new side {len(after)}.")
    if metric == EVALUATION and len({"episodes" in run.evaluation for run in (*before, *after)}) > 1:
        warn(f"{env_id} ({new_key[1]}): some runs were evaluated after training (eval.json), of others the last "
             "evaluation during training is compared. Run `proximo eval` on all of them for equal conditions.")
    steps = sorted({steps_of(run) for run in (*before, *after)})
    if len(steps) > 1:
        warn(f"{env_id}: the runs have different lengths ({', '.join(map(str, steps))} steps).")
    old_sps, new_sps = mean_of(before, "sps"), mean_of(after, "sps")
    return Comparison(env_id=env_id, old_label=old_key[1], new_label=new_key[1], pairs=len(new_scores),
                      old=estimate(old_scores), new=estimate(new_scores),
                      difference=paired_difference(new_scores, old_scores),
                      improvement=probability_of_improvement(new_scores, old_scores),
                      p_worse=paired_p_value(new_scores, old_scores),
                      speed=new_sps / old_sps if old_sps and new_sps else None)


def _table(found: list[Comparison], a: str | Path, b: str | Path) -> str:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    table = Table(title=escape(f"A: {a}\nB: {b}"), title_justify="left")
    for name in ("environment", "A", "B", "pairs", "IQM of A [95 %]", "IQM of B [95 %]", "B - A [95 %]",
                 "P(B better) [95 %]", "p (B worse)", "speed"):
        table.add_column(name, overflow="fold")
    for one in found:
        style = "red" if one.p_worse < LEVEL else "green" if one.difference.low > 0 else None
        speed = "-" if one.speed is None else f"x{one.speed:.2f}"
        table.add_row(*map(escape, (one.env_id, one.old_label, one.new_label)), str(one.pairs), interval_text(one.old),
                      interval_text(one.new), interval_text(one.difference), interval_text(one.improvement),
                      f"{one.p_worse:.2g}", speed, style=style)
    console = Console(width=None if Console().is_terminal else 220)  # a pipe has no width: rich would fold to 80
    with console.capture() as capture:
        console.print(table)
    return capture.get()
