"""Run directories as a report reads them: finished, failed or unfinished, grouped by environment and label."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import numpy as np

from proximo.bench.process import read_json
from proximo.bench.sets import label_of, logging_fields
from proximo.catalog import VARIANTS
from proximo.errors import UsageError, notify
from proximo.facts import facts

ROLLING_WINDOW = 100
"""episodes of a rolling mean, and of the last mean of a run, as in the published tables"""


class Run(NamedTuple):
    """One run directory."""

    path: Path
    env_id: str
    variant: str
    label: str
    """what the runs that differ in their seed alone are called"""
    seed: int
    config: dict
    versions: dict
    command: str
    summary: dict
    """{} while the run is not finished"""
    evaluation: dict
    failure: str
    """last lines of a run that failed; else empty"""
    ablates: str

    def score(self, metric: str = "episodic_return") -> float | None:
        """Mean over the last 100 episodes of training; None where the run is not finished or none ended."""
        return self.summary.get(f"{metric}_mean")


Groups = dict[tuple[str, str], list[Run]]
"""(environment, label) -> its runs in order of their seeds"""


def read_runs(directory: str | Path) -> list[Run]:
    """Every run under a directory, a benchmark's or any other. Raises UsageError where there is none."""
    directory = Path(directory)
    if not directory.is_dir():
        raise UsageError(f"{directory} is no folder; give the folder that holds the runs")
    runs = [_read_run(path) for path in sorted(_run_folders(directory))]
    if not runs:
        raise UsageError(f"{directory} holds no runs; a run is a folder with a config.json")
    return sorted(_one_a_seed(runs), key=lambda run: (run.env_id, bool(run.ablates), run.label, run.seed))


def group_runs(runs: Iterable[Run]) -> Groups:
    """Of finished runs alone."""
    groups: Groups = {}
    for run in runs:
        if run.summary:
            groups.setdefault((run.env_id, run.label), []).append(run)
    return groups


def scores_of(runs: Sequence[Run], metric: str = "episodic_return") -> np.ndarray:
    """(seeds,) of the runs in which an episode ended."""
    return np.array([score for run in runs if (score := run.score(metric)) is not None], float)


def metric_of(variant: str) -> str:
    """Self-play is measured by how long games last: returns of a zero-sum game say nothing."""
    games = variant in VARIANTS and VARIANTS[variant].config.limits.max_players > 1
    return "episodic_length" if games else "episodic_return"


def rolling_curve(run: Run, axis: str) -> tuple[np.ndarray, np.ndarray]:
    """(x, mean of the last 100 episodes up to x), one entry an episode, of returns or, in self-play, of lengths.

    axis is step or seconds. Both are empty where nothing can be read.
    """
    from pandas import read_csv
    column = metric_of(run.variant).removeprefix("episodic_")
    try:
        rows = read_csv(run.path / "episodes.csv", usecols=[axis, column], on_bad_lines="skip").dropna()
    except (OSError, ValueError):  # none, empty, or of other columns
        return np.empty(0), np.empty(0)
    values = rows[column].to_numpy(float)
    total = np.concatenate([[0.0], np.cumsum(values)])
    last = np.arange(1, len(values) + 1)
    first = np.maximum(0, last - ROLLING_WINDOW)
    return rows[axis].to_numpy(float), (total[last] - total[first]) / np.maximum(1, last - first)


def common_curves(runs: Sequence[Run], axis: str, points: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """(x (P,), curves (seeds, P)) where every run has ended an episode and still plays; empty where none is."""
    curves = [curve for curve in (rolling_curve(run, axis) for run in runs) if len(curve[0])]
    if not curves:
        return np.empty(0), np.empty((0, 0))
    x = np.linspace(max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves), points)
    if x[0] >= x[-1]:
        return np.empty(0), np.empty((0, 0))
    rows = [value[np.searchsorted(steps, x, side="right") - 1] for steps, value in curves]
    return x, np.array(rows)


def differing_settings(groups: Groups) -> dict[str, dict[str, str]]:
    """field -> label -> value, for fields that differ between labels; what names or follows a run is left out."""
    skipped = {*logging_fields(), "seed", "env_id"}
    values: dict[str, dict[str, set[str]]] = {}
    labels = {label for _, label in groups}
    for (_, label), runs in groups.items():
        for run in runs:
            for name, value in run.config.items():
                if name not in skipped:
                    values.setdefault(name, {}).setdefault(label, set()).add(str(value))
    table = {}
    for name, by_label in values.items():
        cells = {label: " or ".join(sorted(by_label.get(label, {"-"}))) for label in labels}
        if len(set(cells.values())) > 1 or any(" or " in cell for cell in cells.values()):
            table[name] = cells
    return table


def _run_folders(directory: Path) -> Iterable[Path]:
    for folder, inner, files in os.walk(directory):
        inner[:] = [name for name in inner if not name.endswith(".old")]
        path = Path(folder)
        if "config.json" in files:
            inner.clear()
            yield path
        else:
            # A run that failed before it wrote anything has its record alone.
            yield from (path / name.removesuffix(".job.json") for name in files if name.endswith(".job.json")
                        and not (path / name.removesuffix(".job.json") / "config.json").exists())


def _one_a_seed(runs: list[Run]) -> Iterable[Run]:
    """Two runs of the same settings and seed are no two samples: the finished, newest one counts."""
    kept: dict[tuple[str, str, int], Run] = {}
    for run in sorted(runs, key=lambda run: (bool(run.summary), run.path.stat().st_mtime if run.path.exists() else 0)):
        if (older := kept.get((run.env_id, run.label, run.seed))) is not None:
            notify(f"{older.path} is left out: {run.path} has the same settings and seed")
        kept[run.env_id, run.label, run.seed] = run
    return kept.values()


def _label(variant: str, config: dict) -> str:
    """Of a run that no benchmark named: its variant and what differs from the variant's defaults."""
    if variant not in VARIANTS:
        return variant
    kind = VARIANTS[variant].config
    chosen = {name for name, fact in facts(kind).items() if fact.chosen}
    defaults = {f.name: list(f.default) if isinstance(f.default, tuple) else f.default for f in fields(kind)}
    return label_of(variant, {name: value for name, value in config.items()
                              if name in defaults and name not in {"seed", "env_id", "total_timesteps"} | chosen
                              and value != defaults[name]})


def _read_run(path: Path) -> Run:
    content, summary = read_json(path / "config.json"), read_json(path / "summary.json")
    record = read_json(path.with_name(f"{path.name}.job.json"))
    config = content.get("config", {})
    env_id = record.get("env_id") or config.get("env_id") or summary.get("env_id") or "?"
    variant = record.get("variant") or content.get("variant") or "?"
    failure = record.get("lines", "") if record.get("status") == "failed" and not summary else ""
    return Run(path, env_id, variant, record.get("label") or _label(variant, config),
               record.get("seed", config.get("seed", 0)), config, content.get("versions", {}),
               str(content.get("command", "")), summary, read_json(path / "eval.json"), failure,
               record.get("ablates", ""))
