"""The tables of a report: results, comparison with published results, ablations, human-normalised scores."""

from collections.abc import Sequence

import numpy as np

from proximo.bench.report.ablations import Ablation
from proximo.bench.report.published import Published, atari_game, atari_scores, published_for
from proximo.bench.results import (
    Groups,
    Lacking,
    Missing,
    RunResult,
    evaluations_of,
    mean_of,
    metric_of,
    scores_of,
    steps_of,
)
from proximo.bench.sets import every_field
from proximo.bench.statistics import Estimate, Verdict, estimate, normalise, verdict
from proximo.bench.text import Table, count_text, duration_text, estimate_text, interval_text, number_text, steps_text
from proximo.catalog import VARIANTS

ALL_FINISHED = Lacking()


def results_table(groups: Groups, lacking: Missing | None = None) -> Table:
    """Return one row for each environment and label: training, evaluation and speed."""
    rows = []
    for (env_id, label), runs in groups.items():
        metric = metric_of(runs[0].variant)
        name = label + (" (length of games)" if metric == "episodic_length" else "")
        sps, seconds = mean_of(runs, "sps"), mean_of(runs, "wall_seconds")
        scores, evaluated = scores_of(runs, metric), evaluations_of(runs)
        rows.append([env_id, name, _count(scores, runs, (lacking or {}).get((env_id, label), Lacking())), _steps(runs),
                     *_cells(scores),
                     *_cells(evaluated, f" ({_count(evaluated, runs)} seeds)" * (0 < len(evaluated) < len(runs))),
                     number_text(sps, 0),
                     "-" if seconds is None else duration_text(seconds)])
    return Table(head=["environment", "run", "seeds", "steps", "training", "IQM [95 %]", "evaluation", "IQM [95 %]",
                       "steps/s", "wall time"], rows=rows,
                 note="Training: mean ± population standard deviation over seeds of the mean return of each run's last "
                      "100 training episodes, as in published tables. Evaluation: the same for evaluations "
                      "after training, with the most likely actions unless the row of the file says otherwise. IQM: "
                      "interquartile mean over seeds with its 95 % stratified bootstrap interval (rliable). Steps/s "
                      "and wall time: means over seeds. A dash: no episode ended, or there was no evaluation after "
                      "training (those during training are curves, eval/return_mean). 3 of 5: the numbers are those of "
                      "3 seeds, because the others failed or are not finished, no episode of theirs ended, or they "
                      "have no evaluation.")


def published_table(groups: Groups) -> Table:
    """Return one row for each published number that our runs can be compared with."""
    rows = []
    for (env_id, label), runs in groups.items():
        if runs[0].ablates:
            continue
        for row in published_for(runs[0].variant, env_id):
            if row.protocol != "training":
                continue
            ours = scores_of(runs, row.metric)
            found = compare_to_published(runs, row)
            rows.append([env_id, label, f"{_mean_std(ours)} ({count_text(len(ours), 'seed')}, "
                         f"{_steps(runs)})", row.implementation,
                         f"{number_text(row.mean)} ± {number_text(row.std)} ({count_text(row.seeds, 'seed')}, "
                         f"{steps_text(row.steps)})", found.word or "no verdict", found.reason, row.source])
    return Table(head=["environment", "run", "ours", "published by", "published", "verdict", "reason", "source"],
                 rows=rows,
                 note="Verdict: Welch's t test from summary statistics, two-sided; above or below where p < 0.05, "
                      "otherwise within. Published deviations are population deviations over seeds and are converted. "
                      "There is no verdict where environment, version, steps or metric differ, or where one side has a "
                      "single seed.")


def evaluations_table(groups: Groups) -> Table:
    """Return one row for each published evaluation of trained agents in an environment of our evaluated runs."""
    rows = []
    for (env_id, label), runs in groups.items():
        ours = evaluations_of(runs)
        if runs[0].ablates or len(ours) < 2:
            continue
        for row in published_for(runs[0].variant, env_id):
            if row.protocol == "evaluation":
                found, same = estimate(ours), all(steps_of(one) == row.steps for one in runs)
                remarks = [f"published for {row.published_env_id}" * (row.env_id != row.published_env_id),
                           "other numbers of steps" * (not same), row.differs]
                rows.append([env_id, label, f"{interval_text(found)} ({count_text(len(ours), 'seed')}, "
                             f"{_steps(runs)})", row.implementation,
                             f"{number_text(row.mean)} ({steps_text(row.steps)})",
                             interval_verdict(found, row.mean) if same else "no verdict",
                             "; ".join(filter(None, remarks)), row.source])
    return Table(head=["environment", "run", "ours, IQM [95 %]", "published by", "published", "verdict", "remark",
                       "source"], rows=rows,
                 note="Evaluations of trained agents, which publications give for one or a few tuned agents. Verdict: "
                      "above or below if our 95 % interval does not contain the published mean, otherwise within; "
                      "none where the numbers of steps differ.")


def interval_verdict(found: Estimate, published: float) -> str:
    """Return whether an interval lies above or below a published number, or contains it ("within")."""
    if found.low > published:
        return "above"
    return "below" if found.high < published else "within"


def compare_to_published(runs: Sequence[RunResult], row: Published) -> Verdict:
    """Compare the runs of one group with a published number; the verdict has no word if they are not comparable."""
    reason = _why_not_comparable(runs, row)
    ours = scores_of(runs, row.metric)
    if not reason and not len(ours):
        reason = "no episode ended in our runs"
    return Verdict(word="", reason=reason) if reason else verdict(ours, row.mean, row.std, row.seeds)


def atari_table(groups: Groups) -> Table:
    """Return the human-normalised scores of the Atari games among the environments."""
    rows = []
    for (env_id, label), runs in groups.items():
        game = atari_game(env_id)
        if game and len(scores_of(runs)):
            random, human = atari_scores()[game]
            scores = 100 * normalise(scores_of(runs), random, human)
            rows.append([game, label, number_text(random, 1), number_text(human, 1),
                         estimate_text(estimate(scores, np.mean), len(scores), 1)])
    return Table(head=["game", "run", "random play", "human", "human-normalised score in % [95 %]"], rows=rows)


def ablation_table(found: Sequence[Ablation]) -> Table:
    """Return one row for each environment and changed detail."""
    rows = [[one.env_id, one.base, one.detail, one.change, str(one.pairs),
             estimate_text(one.difference, one.pairs), estimate_text(one.improvement, one.pairs),
             f"{one.p_worse:.2g}"] for one in found]
    return Table(head=["environment", "run", "detail", "change", "pairs", "difference [95 %]",
                       "P(better with change) [95 %]", "p (worse with change)"], rows=rows,
                 note="Difference: score with the change minus score without, where the score is the mean return of "
                      "the last 100 training episodes; mean over pairs of equal seeds with a 95 % bootstrap interval. "
                      "Below 0, the variant's own choice is better. P: over all pairs of runs (rliable). p: one-sided "
                      "paired t test, not corrected for the number of rows.")


def _count(scores: np.ndarray, runs: Sequence[RunResult], lacking: Lacking = ALL_FINISHED) -> str:
    """Return the number of runs, how many of them have a score, and how many failed or are not finished."""
    total = len(runs) + sum(lacking)
    without = ", ".join(f"{count} {what}" for what, count in lacking._asdict().items() if count)
    text = str(total) if len(scores) in (0, total) else f"{len(scores)} of {total}"
    return f"{text} ({without})" if without else text


def _cells(scores: np.ndarray, of: str = "") -> list[str]:
    if not len(scores):
        return ["-", "-"]
    return [_mean_std(scores) + of, interval_text(estimate(scores)) if len(scores) > 1 else "one seed"]


def _mean_std(scores: np.ndarray) -> str:
    if len(scores) < 2:  # one seed has no spread
        return number_text(scores[0]) if len(scores) else "-"
    return f"{number_text(scores.mean())} ± {number_text(scores.std())}"


def _steps(runs: Sequence[RunResult]) -> str:
    """Return the length of the runs of one group: callbacks can end some earlier."""
    return " to ".join(dict.fromkeys(steps_text(find(map(steps_of, runs))) for find in (min, max)))


def _why_not_comparable(runs: Sequence[RunResult], row: Published) -> str:
    """Return why runs of one group and a published number measure different things, or an empty string."""
    run = runs[0]
    if row.differs:
        return row.differs
    if row.env_id != row.published_env_id:
        return f"published for {row.published_env_id}"
    if row.protocol != "training":
        return "published for an evaluation, not for training"
    if any(steps_of(one) != row.steps for one in runs):
        return f"published for {steps_text(row.steps)} steps"
    defaults = vars(VARIANTS[run.variant].config()) if run.variant in VARIANTS else {}
    changed = [name for name, fact in every_field().items() if fact.task and name in run.config and name in defaults
               and (run.config[name] or 0) != (defaults[name] or 0)]
    if changed:
        return "another environment: " + ", ".join(f"{name}={run.config[name]}" for name in changed)
    if row.setting and run.config.get("distribution_mode") != row.setting:
        return f"published for {row.setting}"
    return ""
