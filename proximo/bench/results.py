"""The runs in a folder: finished, failed or unfinished; grouped by environment and label; with their scores."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from proximo.bench.files import read_record
from proximo.bench.labels import compared_settings, own_label, swept_names
from proximo.bench.records import EvaluationFile, JobRecord, PartialRunFile, Summary
from proximo.bench.sets import label_of, logging_fields
from proximo.bench.text import short_number
from proximo.catalog import VARIANTS
from proximo.errors import UsageError, one_line
from proximo.models.curves import newest_evaluation
from proximo.runs.command_line import pasted
from proximo.runs.folder.files import is_folder, visit_folders
from proximo.runs.folder.repeats import without_repeats
from proximo.runs.folder.run import custom_settings
from proximo.runs.folder.version_0_1 import present_fields

EVALUATION = "evaluation"  # the metric that is no training score
METRICS = ("episodic_return", "episodic_length", EVALUATION)


class RunResult(NamedTuple):
    """One run folder."""

    path: Path
    env_id: str
    variant: str
    label: str
    """name of the runs that differ from this one in the seed only"""
    seed: int
    config: dict[str, Any]
    versions: dict[str, Any]
    command: str
    machine: str
    summary: dict[str, Any]
    """{} while the run is not finished"""
    evaluation: dict[str, Any]
    """{} if there is none"""
    failure: str
    """last lines of the log of a run whose training or evaluation failed; otherwise empty"""
    ablates: str
    """the implementation detail that the run changes; empty: none"""

    def score(self, metric: str = "episodic_return") -> float | None:
        """Return the mean over the last 100 episodes of training, or of an evaluation; None where there is none.

        Args:
            metric: One of METRICS. "evaluation": that after training (eval.json), or the last one during training.
        """
        if metric != EVALUATION:
            return self.summary.get(f"{metric}_mean")
        found = self.evaluation.get("episodic_return_mean")
        return newest_evaluation(self.path) if found is None else found


Groups = dict[tuple[str, str], list[RunResult]]  # (environment, label) -> its runs in order of their seeds


class Lacking(NamedTuple):
    """How many runs of a group have no result."""

    failed: int = 0
    unfinished: int = 0


Missing = Mapping[tuple[str, str], Lacking]  # (environment, label) -> its runs without a result


def read_runs(directory: str | Path, swept: bool = True) -> list[RunResult]:
    """Read every run below a directory, of a benchmark or of `proximo train`.

    Args:
        directory: The directory.
        swept: See `read_run`.

    Returns:
        The runs in order of environment, label and seed.

    Raises:
        UsageError: There is no run.
    """
    if not is_folder(Path(directory)):
        raise UsageError(f"{one_line(directory)} is not a folder. Give a folder that contains runs.")
    directory = Path(directory).resolve()  # `.` has no name
    runs = [read_run(path, swept) for path in sorted(run_folders(directory))]
    if not runs:
        raise UsageError(f"{one_line(directory)} contains no runs. A run is a folder with a config.json.")
    kept = without_repeats(
        with_differences(runs), finished=lambda run: bool(run.summary),
        sample=lambda run: (run.env_id, run.label, run.seed, None if run.config else run.path))  # None: it is known
    return sorted(kept, key=lambda run: (run.env_id, bool(run.ablates), run.label, run.seed))


def group_runs(runs: Iterable[RunResult]) -> Groups:
    """Group the finished runs by environment and label."""
    groups: Groups = {}
    for run in runs:
        if run.summary:
            groups.setdefault((run.env_id, run.label), []).append(run)
    return groups


def lacking_runs(runs: Iterable[RunResult]) -> dict[tuple[str, str], Lacking]:
    """Return how many runs of each environment and label have failed, or are not finished for another reason."""
    found: dict[tuple[str, str], Lacking] = {}
    for run in runs:
        if not run.summary:
            before = found.get((run.env_id, run.label), Lacking())
            failed = bool(run.failure)
            found[run.env_id, run.label] = Lacking(before.failed + failed, before.unfinished + (not failed))
    return found


def metric_of(variant: str) -> str:
    """Return what measures a variant: the return, or in self-play, where returns sum to zero, the length of games."""
    games = variant in VARIANTS and VARIANTS[variant].config.limits.max_players > 1
    return "episodic_length" if games else "episodic_return"


def scores_of(runs: Sequence[RunResult], metric: str = "episodic_return") -> np.ndarray:
    """Return the scores (seeds,) of the runs in which an episode ended."""
    return np.array([score for run in runs if (score := run.score(metric)) is not None], float)


def evaluations_of(runs: Sequence[RunResult]) -> np.ndarray:
    """Return the mean evaluation return (seeds,) of the runs that have been evaluated."""
    return np.array([run.evaluation["episodic_return_mean"] for run in runs
                     if run.evaluation.get("episodic_return_mean") is not None], float)


def paired_scores(new: Sequence[RunResult], old: Sequence[RunResult], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores (pairs,) of both sides for every seed that both have."""
    by_seed = {run.seed: run.score(metric) for run in old}
    pairs = [(run.score(metric), by_seed[run.seed]) for run in new
             if run.score(metric) is not None and by_seed.get(run.seed) is not None]
    return np.array([pair[0] for pair in pairs], float), np.array([pair[1] for pair in pairs], float)


def mean_of(runs: Sequence[RunResult], name: str) -> float | None:
    """Return the mean over runs of a number in summary.json, such as "sps"; None if no run has it."""
    values = [run.summary[name] for run in runs if run.summary.get(name)]
    return float(np.mean(values)) if values else None


def steps_of(run: RunResult) -> int:
    """Return the total_timesteps of a run; of one that ended an iteration or more before them, the steps it trained."""
    planned, played = run.config.get("total_timesteps") or 0, run.summary.get("steps") or 0
    batch = run.config.get("num_envs", 0) * run.config.get("num_steps", 0)
    ended_early = batch and 0 < played <= planned - batch
    return played if ended_early or not planned else planned


def run_name(run: RunResult, directory: Path) -> str:
    """Return the folder of a run as seen from another one."""
    below = run.path.relative_to(directory) if run.path.is_relative_to(directory) else run.path
    return str(below) if str(below) != "." else run.path.name


def differing_settings(groups: Groups) -> dict[str, dict[str, str]]:
    """Return field -> label -> value for the fields that differ between labels."""
    skipped = {*logging_fields(), "seed", "env_id"}
    labels = list(dict.fromkeys(label for _, label in groups))
    values: dict[str, dict[str, set[str]]] = {}
    for (_, label), runs in groups.items():
        for run in runs:
            for name, value in run.config.items():
                if name not in skipped:
                    values.setdefault(name, {}).setdefault(label, set()).add(str(value))
    table = {}
    for name, by_label in values.items():
        texts = {value: short_number(value) for found in by_label.values() for value in found}
        if len({*texts.values()}) < len(texts):  # they would look equal
            texts = dict(zip(texts, texts))
        cells = {label: " or ".join(texts.get(one, one) for one in sorted(by_label.get(label, {"-"})))
                 for label in labels}
        if len(set(cells.values())) > 1 or any(" or " in cell for cell in cells.values()):
            table[name] = cells
    return table


def run_folders(directory: Path) -> Iterable[Path]:
    """Yield every run folder at or below a directory; nothing below a run is looked at."""
    for path, files in visit_folders(directory):
        if "config.json" in files:
            yield path
        else:  # a run that failed before it wrote anything has only its record
            yield from (path / name.removesuffix(".job.json") for name in files if name.endswith(".job.json")
                        and not (path / name.removesuffix(".job.json") / "config.json").exists())


def with_differences(runs: list[RunResult]) -> list[RunResult]:
    """Add to labels the settings in which runs of one label differ: such runs are not samples of one setting.

    What a config.json does not say, because it is damaged or of an earlier version, is no difference.
    """
    found: dict[tuple[str, str], dict[str, set[str]]] = {}
    for run in runs:
        for name, value in run.config.items():
            found.setdefault((run.env_id, run.label), {}).setdefault(name, set()).add(str(value))
    return [run._replace(label=_longer_label(run, {
        name: value for name, value in compared_settings(run.config).items()
        if len(found[run.env_id, run.label][name]) > 1})) for run in runs]


def _longer_label(run: RunResult, settings: dict[str, Any]) -> str:
    if not (more := label_of("", settings).removeprefix("-")):
        return run.label
    changed = f"-changed_{run.ablates}" if run.ablates else ""  # stays at the end, where an ablation looks for it
    base = run.label.removesuffix(changed)
    return f"{base}{',' if '-' in base else '-'}{more}{changed}"


def read_run(path: Path, swept: bool = True) -> RunResult:
    """Read the small files of one run folder; what is missing or damaged stays empty.

    Args:
        path: The folder.
        swept: Whether the label of a member of a sweep has every swept value, also one that is the default. Labels of
            other runs have none.
    """
    content = read_record(path / "config.json", PartialRunFile)
    summary = read_record(path / "summary.json", Summary,
                          f"If the run has finished, this writes it again: proximo resume {pasted(path)}")
    record = read_record(path.with_name(f"{path.name}.job.json"), JobRecord)
    evaluation = read_record(path / "eval.json", EvaluationFile)
    config = present_fields(content.get("config", {})) | (custom := custom_settings(content))
    variant = record.get("variant") or content.get("variant") or summary.get("variant") or "?"
    label = record.get("label") or own_label(variant, config, custom, swept_names(path) if swept else ())
    return RunResult(path=path, env_id=config.get("env_id") or record.get("env_id") or summary.get("env_id") or "?",
                     variant=variant, label=label,
                     seed=record.get("seed", config.get("seed", summary.get("seed", 0))), config=config,
                     versions=content.get("versions", {}), command=str(content.get("command", "")),
                     machine=str(content.get("machine", "")), summary=summary,
                     evaluation=evaluation, ablates=record.get("ablates", ""),
                     failure=_failure(record, summary, evaluation))


def _failure(record: dict[str, Any], summary: dict[str, Any], evaluation: dict[str, Any]) -> str:
    """Return the last lines of the log of a run that failed, unless what was missing is there by now."""
    evaluated = "episodes" in evaluation and evaluation.get("deterministic", True) == record.get("deterministic", True)
    mended = evaluated if record.get("stage") == "eval" else bool(summary)
    return record.get("lines", "") if record.get("status") == "failed" and not mended else ""
