"""The tables of a report, computed from groups of runs: results, published values with verdicts, ablations."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from proximo.bench.progress import duration_text
from proximo.bench.published import Published, atari_game, atari_scores, published_for
from proximo.bench.runs import Groups, Run, metric_of, scores_of
from proximo.bench.sets import every_field
from proximo.bench.statistics import (
    Estimate,
    Verdict,
    estimate,
    normalised,
    paired_difference,
    paired_p_value,
    probability_of_improvement,
    verdict,
)
from proximo.catalog import VARIANTS


class Table(NamedTuple):
    """What HTML, Markdown and CSV show alike."""

    head: list[str]
    rows: list[list[str]]
    note: str = ""


class Ablation(NamedTuple):
    """What one detail is worth in one environment: changed minus as the variant has it, on the same seeds."""

    env_id: str
    base: str
    """label of the runs as the variant has it"""
    detail: str
    change: str
    pairs: int
    difference: Estimate
    improvement: Estimate
    p_worse: float


def number_text(value: float | None, digits: int = 2) -> str:
    """1234567.8 -> 1,234,567.80; None and what is no number -> a dash."""
    return "-" if value is None or not np.isfinite(value) else f"{value:,.{digits}f}"


def short(steps: int) -> str:
    """500000 -> 500k, 8000000 -> 8M."""
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if steps >= unit:
            return f"{steps / unit:g}{name}"
    return str(steps)


def interval(found: Estimate, digits: int = 2) -> str:
    """value [low, high]"""
    return f"{number_text(found.value, digits)} [{number_text(found.low, digits)}, {number_text(found.high, digits)}]"


def results_table(groups: Groups) -> Table:
    """One row for each environment and run: training, evaluation, speed."""
    rows = []
    for (env_id, label), runs in groups.items():
        metric = metric_of(runs[0].variant)
        scores = scores_of(runs, metric)
        name = label + (" (length of games)" if metric == "episodic_length" else "")
        evaluated = np.array([run.evaluation["episodic_return_mean"] for run in runs
                              if run.evaluation.get("episodic_return_mean") is not None], float)
        speeds = [run.summary["sps"] for run in runs if run.summary.get("sps")]
        walls = [run.summary["wall_seconds"] for run in runs if run.summary.get("wall_seconds")]
        rows.append([env_id, name, str(len(runs)), short(_steps(runs[0])), *_cells(scores), *_cells(evaluated),
                     number_text(np.mean(speeds), 0) if speeds else "-",
                     duration_text(np.mean(walls)) if walls else "-"])
    return Table(["environment", "run", "seeds", "steps", "last 100 training episodes", "IQM [95 %]",
                  "deterministic evaluation", "IQM [95 %]", "steps/s", "wall time"], rows,
                 "Mean ± population standard deviation over seeds of each seed's mean, as published; interquartile "
                 "mean with its 95 % stratified bootstrap interval (rliable). A dash: no episode ended, or no "
                 "evaluation. Steps/s and wall time are means over seeds.")


def published_table(groups: Groups) -> Table:
    """Ours beside what was published, with a verdict or the reason why there is none."""
    rows = []
    for (env_id, label), runs in groups.items():
        if runs[0].ablates:
            continue
        for row in published_for(runs[0].variant, env_id):
            ours = scores_of(runs, row.metric)
            found = compare_to_published(runs, row)
            rows.append([env_id, label, f"{_mean_std(ours)} ({len(ours)} seeds, {short(_steps(runs[0]))})",
                         row.implementation, f"{number_text(row.mean)} ± {number_text(row.std)} ({row.seeds} "
                         f"{'seed' if row.seeds == 1 else 'seeds'}, {short(row.steps)})",
                         found.word or "no verdict", found.reason, row.source])
    return Table(["environment", "run", "ours", "published by", "published", "verdict", "why", "source"], rows,
                 "Above or below: Welch's t test from summary statistics, two-sided, p < 0.05; else within. Published "
                 "deviations are population deviations over seeds and are converted. No verdict where environment, "
                 "version, steps or metric differ, or where one side has a single seed.")


def compare_to_published(runs: Sequence[Run], row: Published) -> Verdict:
    """The verdict of the runs of one group on one published number; no word, and the reason, where none is fair."""
    reason = _unfair(runs[0], row)
    ours = scores_of(runs, row.metric)
    if not reason and not len(ours):
        reason = "no episode of ours ended"
    return Verdict("", reason) if reason else verdict(ours, row.mean, row.std, row.seeds)


def atari_table(groups: Groups) -> Table:
    """Human-normalised scores of the games among the environments."""
    rows = []
    for (env_id, label), runs in groups.items():
        game = atari_game(env_id)
        if game and len(scores_of(runs)):
            random, human = atari_scores()[game]
            score = estimate(100 * normalised(scores_of(runs), random, human), np.mean)
            rows.append([game, label, number_text(random, 1), number_text(human, 1), interval(score, 1)])
    return Table(["game", "run", "random play", "a person", "human-normalised score in % [95 %]"], rows)


def ablations(groups: Groups) -> list[Ablation]:
    """Every run with a detail changed against the run without the change: same environment, same row, same seeds."""
    found = []
    for (env_id, label), runs in groups.items():
        base_label = label.removesuffix(f"-changed_{runs[0].ablates}")
        base = groups.get((env_id, base_label)) if runs[0].ablates else None
        if base is None:
            continue
        changed, as_it_is = paired_scores(runs, base, metric_of(runs[0].variant))
        if len(changed):
            found.append(Ablation(env_id, base_label, runs[0].ablates, _change(runs[0], base[0]), len(changed),
                                  paired_difference(changed, as_it_is), probability_of_improvement(changed, as_it_is),
                                  paired_p_value(changed, as_it_is)))
    return found


def ablation_table(found: Sequence[Ablation]) -> Table:
    """As computed by ablations."""
    rows = [[one.env_id, one.base, one.detail, one.change, str(one.pairs), interval(one.difference),
             interval(one.improvement), f"{one.p_worse:.2g}"] for one in found]
    return Table(["environment", "run", "detail", "changed", "pairs", "difference [95 %]", "P(better changed) [95 %]",
                  "p (worse changed)"], rows,
                 "Difference: last 100 training episodes with the detail changed minus as the variant has it, mean "
                 "over pairs of one seed; below 0 the variant's choice is better. Interval: 95 % bootstrap over pairs. "
                 "P: over all pairs of seeds, as rliable has it. p: one-sided paired t test, not corrected for the "
                 "number of rows.")


def paired_scores(new: Sequence[Run], old: Sequence[Run], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """(pairs,) each, in order of the seeds that both have a score for."""
    by_seed = {run.seed: run.score(metric) for run in old}
    pairs = [(run.score(metric), by_seed[run.seed]) for run in new
             if run.score(metric) is not None and by_seed.get(run.seed) is not None]
    return np.array([pair[0] for pair in pairs], float), np.array([pair[1] for pair in pairs], float)


def _change(changed: Run, base: Run) -> str:
    names = [name for name, value in changed.config.items()
             if name not in ("seed", "run_dir") and base.config.get(name) != value]
    return ", ".join(f"{name} {_plain(base.config.get(name))} to {_plain(changed.config[name])}" for name in names)


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _steps(run: Run) -> int:
    return int(run.config.get("total_timesteps") or run.summary.get("steps") or 0)


def _cells(scores: np.ndarray) -> list[str]:
    if not len(scores):
        return ["-", "-"]
    return [_mean_std(scores), interval(estimate(scores)) if len(scores) > 1 else "one seed"]


def _mean_std(scores: np.ndarray) -> str:
    return f"{number_text(scores.mean())} ± {number_text(scores.std())}" if len(scores) else "-"


def _unfair(run: Run, row: Published) -> str:
    """Why ours and this number are not of the same thing; empty: they are."""
    if row.differs:
        return row.differs
    if row.env_id != row.published_env_id:
        return f"published on {row.published_env_id}"
    if row.protocol != "training":
        return "published of an evaluation, not of training"
    if _steps(run) != row.steps:
        return f"published at {short(row.steps)} steps"
    defaults = vars(VARIANTS[run.variant].config()) if run.variant in VARIANTS else {}
    changed = [name for name, fact in every_field().items() if fact.task and name in run.config and name in defaults
               and (run.config[name] or 0) != (defaults[name] or 0)]
    if changed:
        return "another environment: " + ", ".join(f"{name}={run.config[name]}" for name in changed)
    if row.setting and run.config.get("distribution_mode") != row.setting:
        return f"published for {row.setting}"
    return ""
