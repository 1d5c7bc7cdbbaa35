"""proximo report: one page on the runs in a folder, and its tables as Markdown and CSV."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from proximo.bench.continuing import how_to_continue, was_not_finite
from proximo.bench.files import read_record
from proximo.bench.records import BenchRecord
from proximo.bench.report.ablations import find_ablations
from proximo.bench.report.across import across_environments
from proximo.bench.report.page import Block, Part, Picture, Section, markdown, page
from proximo.bench.report.pictures import ablation_picture, curves_picture, highest
from proximo.bench.report.population import population_sections
from proximo.bench.report.published import published_for
from proximo.bench.report.runs import single_runs
from proximo.bench.report.tables import (
    ablation_table,
    compare_to_published,
    evaluations_table,
    published_table,
    results_table,
)
from proximo.bench.results import (
    Groups,
    Lacking,
    Missing,
    RunResult,
    differing_settings,
    evaluations_of,
    group_runs,
    lacking_runs,
    mean_of,
    metric_of,
    read_runs,
    run_name,
    scores_of,
)
from proximo.bench.statistics import estimate, require_packages
from proximo.bench.text import Table, count_text, csv_text, settings_lines
from proximo.bench.tune.trial_table import named_by_trials, search_folder, searches_of, trials_sections
from proximo.errors import names_text
from proximo.models.pictures import color_places
from proximo.runs.command_line import command_line
from proximo.runs.folder.files import POPULATION_FILE, refuse_links
from proximo.runs.folder.writing import whole_file

CSV_COLUMNS = ("env_id", "run", "variant", "seeds", "steps", "metric", "mean", "std", "iqm", "iqm_low", "iqm_high",
               "evaluation_mean", "evaluation_std", "sps", "wall_seconds", "verdicts", "runs", "evaluated",
               "most_steps", "failed", "unfinished")
NO_TEXT = "backslashreplace"  # how bytes in names of folders are written that are no text
MOST_COMMANDS = 20
MOST_NAMED = 20  # groups in a sentence


def report(directory: str | Path, out: str | Path = "") -> Path:
    """Write report.html, report.md and report.csv.

    Args:
        directory: A folder of runs, of a benchmark or of `proximo train`.
        out: A folder, or the name of the page (NAME.html); empty: the directory itself.

    Returns:
        The path of the page.

    Raises:
        UsageError: There are no runs, or a package is missing.
        FilesError: A file cannot be written; earlier ones stay as they were.
    """
    require_packages("proximo report")
    runs = read_runs(directory)
    directory = Path(directory).resolve()  # `.` has no name
    searches = searches_of(runs)
    is_search = all(search_folder(run) in searches for run in runs)
    runs = named_by_trials(runs, searches) if searches else runs
    chosen = is_search or (directory / POPULATION_FILE).exists()  # by their scores, from many
    groups, lacking = group_runs(runs), lacking_runs(runs)
    bench = read_record(directory / "bench.json", BenchRecord)
    title = str(bench.get("title") or f"Runs in {directory.name}")
    sections = [_summary(runs, groups, bench, _not_started(directory, bench)), *trials_sections(searches),
                *population_sections(directory),
                *_results(groups, lacking, not chosen), *([] if chosen else across_environments(groups)),
                *single_runs(runs, groups, directory), *_settings(runs, groups, bench),
                *_failures(runs, directory, is_search)]
    target = Path(out) if str(out).endswith(".html") else Path(out or directory) / "report.html"
    refuse_links(target.with_suffix(ending) for ending in (".html", ".md", ".csv"))
    with whole_file(target) as html:  # all three, or none
        html.write_text(page(title, sections), encoding="utf-8", errors=NO_TEXT)
        with whole_file(target.with_suffix(".md")) as text:
            text.write_text(markdown(title, sections), encoding="utf-8", errors=NO_TEXT)
            with whole_file(target.with_suffix(".csv")) as table:
                _write_csv(table, groups, lacking)
    return target


def _not_started(directory: Path, bench: dict[str, Any]) -> str:
    """Return how many jobs of a benchmark have neither a run nor a record; "" if all have one."""
    waiting = sum(not (directory / name / "config.json").exists() and not (directory / f"{name}.job.json").exists()
                  for name in bench.get("jobs", []))
    return f", {waiting} not started" if waiting else ""


def _summary(runs: Sequence[RunResult], groups: Groups, bench: dict[str, Any], waiting: str = "") -> Section:
    failed = sum(bool(run.failure) for run in runs)
    unfinished = sum(not run.summary and not run.failure for run in runs)
    scored = {key: len(scores_of(group)) for key, group in groups.items()}
    silent = [f"{env_id} ({label})" for (env_id, label), number in scored.items() if not number]
    fewer = [f"{len(group) - scored[env_id, label]} of {count_text(len(group), 'run')} in {env_id} ({label})"
             for (env_id, label), group in groups.items() if 0 < scored[env_id, label] < len(group)]
    verdicts = [compare_to_published(group, row).word for (env_id, _), group in groups.items() if not group[0].ablates
                for row in published_for(group[0].variant, env_id) if row.protocol == "training"]
    counts = [f"{verdicts.count(word)} {word}" for word in ("above", "within", "below") if word in verdicts]
    parts: list[Part] = [f"{count_text(sum(map(len, groups.values())), 'finished run')} in "
                         f"{count_text(len(groups), 'group')}; {failed} failed, {unfinished} unfinished{waiting}. "
                         "A group is one environment with one setting; its runs differ in the seed only."]
    if counts:
        parts.append(f"Compared with published results: {', '.join(counts)}, "
                     f"{verdicts.count('')} without a verdict.")
    if silent:
        parts.append(f"No episode ended in {names_text(silent, MOST_NAMED)}, so there is no return to show.")
    if fewer:
        parts.append(f"No episode ended in {names_text(fewer, MOST_NAMED)}. The returns are those of the others.")
    if lost := [f"{count_text(found.failed, 'run')} in {env_id} ({label})"
                for (env_id, label), found in lacking_runs(runs).items() if found.failed and (env_id, label) in groups]:
        parts.append(f"Failed: {names_text(lost, MOST_NAMED)}. The numbers are those of the others.")
    few = min(filter(None, scored.values()), default=0)
    if 0 < few < 5:
        parts.append(f"Some groups have only {count_text(few, 'seed')}. Bootstrap intervals of fewer than five seeds "
                     "are too narrow to be trusted.")
    commands = [str(one) for one in (bench.get("command"), command_line()) if one]
    return Section("Summary", [*parts, "Commands:", Block("\n".join(commands))] if commands else parts)


def _results(groups: Groups, lacking: Missing, is_compared: bool) -> list[Section]:
    sections = [Section("Results", [results_table(groups, lacking)])]
    pictures: list[Part] = []
    panels: dict[str, dict[str, Sequence[RunResult]]] = {}
    for (env_id, label), runs in groups.items():
        panels.setdefault(env_id, {})[label] = runs
    places = color_places([*map(highest, panels.values())])
    for env_id, runs_of in panels.items():
        svg = curves_picture(env_id, runs_of, places)
        if svg:
            pictures.append(Picture(svg, f"{env_id}. Line: interquartile mean over seeds. Dotted line: mean. Band: "
                                         "95 % stratified bootstrap interval of the interquartile mean."))
        elif any(len(scores_of(group)) for group in runs_of.values()):
            pictures.append(f"{env_id} has no picture: in no group do all runs have a range of steps in common.")
    if pictures:
        sections.append(Section("Learning curves", pictures))
    published = [table for table in (published_table(groups), evaluations_table(groups)) if table.rows]
    if published and is_compared:
        sections.append(Section("Comparison with published results", published))
    found = find_ablations(groups)
    if found:
        caption = ("Score with the change minus score without, mean over pairs of equal seeds, with its 95 % bootstrap "
                   "interval. Red: the change makes it worse. Green: the change makes it better.")
        sections.append(Section("Effect of each implementation detail",
                                [ablation_table(found), Picture(ablation_picture(found), caption)]))
    return sections


def _settings(runs: Sequence[RunResult], groups: Groups, bench: dict[str, Any]) -> list[Section]:
    sections, labels = [], list(dict.fromkeys(label for _, label in groups))
    rows = [[name, *(cells[label] for label in labels)] for name, cells in sorted(differing_settings(groups).items())]
    if rows:
        head, *lines = settings_lines(["field", *labels], rows)
        sections.append(Section("Hyper-parameters that differ", [Table(head=head, rows=lines)]))
    versions: dict[str, set[str]] = {}
    for run in runs:
        for name, value in run.versions.items():
            versions.setdefault(name, set()).add(str(value))
    parts: list[Part] = []
    if versions:
        parts.append(Table(head=["package", "version"],
                           rows=[[name, " and ".join(sorted(found))] for name, found in versions.items()]))
    machines = [", ".join(f"{name} {value}" for name, value in bench["machine"].items())] if bench.get("machine") \
        else sorted({run.machine for run in runs if run.machine})
    parts += [f"Machine: {machine}." for machine in machines]
    if parts:
        sections.append(Section("Versions and machine", parts))
    commands = sorted({run.command for run in runs if run.command})
    if commands:
        more = [f"... and {len(commands) - MOST_COMMANDS} more"] if len(commands) > MOST_COMMANDS else []
        sections.append(Section("Commands of the runs", [Block("\n".join(commands[:MOST_COMMANDS] + more))]))
    return sections


def _failures(runs: Sequence[RunResult], directory: Path, is_search: bool) -> list[Section]:
    parts: list[Part] = []
    if is_search and (left := [run_name(run, directory) for run in runs if not run.summary and not run.failure]):
        parts.append(f"Not finished, because the trial was pruned, was stopped, or is running: "
                     f"{names_text(left, MOST_NAMED)}. The same `proximo tune` command continues what was stopped.")
    unfinished: dict[str, list[str]] = {}  # advice -> runs
    for run in runs:
        name = run_name(run, directory)
        if run.failure:
            what = f"The evaluation of {name}" if run.summary else name
            parts += [f"{what} failed. The last lines of its log:", Block(run.failure)]
        elif not run.summary and not is_search:
            advice = how_to_continue(run.path) + ("" if was_not_finite(run.path) else
                                                  ", or the command that trains all of them")
            unfinished.setdefault(advice, []).append(name)
    parts += [f"Not finished: {names_text(names, MOST_NAMED)}. Such a run is running, was stopped, or ended with an "
              f"error that it printed. {advice}." for advice, names in unfinished.items()]
    return [Section("Failed and unfinished runs", parts)] if parts else []


def _write_csv(path: Path, groups: Groups, lacking: Missing) -> None:
    """Write one row for each group, with numbers that are not rounded.

    `runs` have finished, `seeds` of them have a score, and `steps` to `most_steps` is how long they were trained.
    """
    with path.open("w", newline="", encoding="utf-8", errors=NO_TEXT) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(CSV_COLUMNS)
        for (env_id, label), runs in groups.items():
            metric = metric_of(runs[0].variant)
            scores, evaluated = scores_of(runs, metric), evaluations_of(runs)
            found = estimate(scores) if len(scores) > 1 else (*scores, "", "", "")[:3]
            steps = [run.summary["steps"] for run in runs if "steps" in run.summary]
            verdicts = "; ".join(f"{row.implementation}: {compare_to_published(runs, row).word or 'no verdict'}"
                                 for row in published_for(runs[0].variant, env_id)
                                 if row.protocol == "training" and not runs[0].ablates)
            writer.writerow([*map(csv_text, (env_id, label, runs[0].variant)), len(scores),
                             min(steps, default=""), metric, *_mean_and_std(scores), *found,
                             *_mean_and_std(evaluated), mean_of(runs, "sps"), mean_of(runs, "wall_seconds"), verdicts,
                             len(runs), len(evaluated), max(steps, default=""),
                             *lacking.get((env_id, label), Lacking())])


def _mean_and_std(values: np.ndarray) -> tuple[object, object]:
    return (values.mean(), values.std()) if len(values) else ("", "")
