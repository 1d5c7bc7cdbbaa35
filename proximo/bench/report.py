"""proximo report: one page on a folder of runs, with the tables again as Markdown and CSV."""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from proximo.bench.process import read_json
from proximo.bench.published import atari_game, atari_scores, atari_source, published_for
from proximo.bench.report_page import Block, Part, Picture, Section, markdown, page
from proximo.bench.report_pictures import ablation_picture, curves_picture, human_picture, profiles_picture
from proximo.bench.report_tables import (
    Table,
    ablation_table,
    ablations,
    atari_table,
    compare_to_published,
    interval,
    published_table,
    results_table,
)
from proximo.bench.runner import machine
from proximo.bench.runs import Groups, Run, differing_settings, group_runs, metric_of, read_runs, scores_of
from proximo.bench.statistics import estimate, normalised, performance_profiles, probability_of_improvement
from proximo.errors import FilesError, notify


def report(directory: str | Path, out: str | Path = "") -> Path:
    """Writes report.html, report.md and report.csv and returns the page's path.

    out is a folder, or the name of the page; it defaults to the directory itself. Raises UsageError where there are
    no runs, FilesError where the page cannot be written.
    """
    directory = Path(directory)
    runs = read_runs(directory)
    groups = group_runs(runs)
    told = read_json(directory / "bench.json")
    title = str(told.get("title") or f"Runs in {directory.name}")
    sections = [_summary(runs, groups, told), *_results(groups), *_across(groups), *_settings(runs, groups, told),
                *_troubles(runs, directory)]
    target = Path(out) if str(out).endswith(".html") else Path(out or directory) / "report.html"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page(title, sections), encoding="utf-8")
        target.with_suffix(".md").write_text(markdown(title, sections), encoding="utf-8")
        _write_csv(target.with_suffix(".csv"), groups)
    except OSError as fault:
        raise FilesError(f"{target} cannot be written: {fault.strerror}") from fault
    notify(f"report: {target}")
    return target


def _summary(runs: Sequence[Run], groups: Groups, told: dict) -> Section:
    failed = sum(bool(run.failure) for run in runs)
    unfinished = sum(not run.summary and not run.failure for run in runs)
    silent = [f"{env_id} ({label})" for (env_id, label), group in groups.items() if not len(scores_of(group))]
    parts: list[Part] = [f"{sum(map(len, groups.values()))} finished runs in {len(groups)} groups, {failed} failed, "
                         f"{unfinished} not finished."]
    if silent:
        parts.append(f"No episode ended in {', '.join(silent)}: there is no return to show.")
    few = min((len(group) for group in groups.values()), default=0)
    if 0 < few < 5:
        parts.append(f"Some groups have {few} {'seed' if few == 1 else 'seeds'} only: bootstrap intervals of fewer "
                     "than five are too narrow to be trusted.")
    commands = [str(told["command"])] if told.get("command") else []
    parts += ["Played and reported by:", Block("\n".join([*commands, " ".join(["proximo", *sys.argv[1:]])]))]
    return Section("What this is", parts)


def _results(groups: Groups) -> list[Section]:
    sections = [Section("Results", [results_table(groups)])]
    published = published_table(groups)
    if published.rows:
        sections.append(Section("Beside what was published", [published]))
    found = ablations(groups)
    if found:
        sections.append(Section("What each detail is worth", [
            ablation_table(found),
            Picture(ablation_picture(found), "The detail changed minus as the variant has it, mean over pairs of one "
                                             "seed, and the 95 % bootstrap interval; red: worse when changed.")]))
    pictures = []
    for env_id in dict.fromkeys(env_id for env_id, _ in groups):
        svg = curves_picture(env_id, {label: runs for (one, label), runs in groups.items() if one == env_id})
        if svg:
            pictures.append(Picture(svg, f"{env_id}: interquartile mean over seeds (line), mean (dotted), 95 % "
                                         "stratified bootstrap interval of the former (band)."))
    return [*sections, Section("Learning curves", pictures)] if pictures else sections


def _across(groups: Groups) -> list[Section]:
    """Over environments: human-normalised scores, profiles and probabilities of improvement."""
    labels = list(dict.fromkeys(label for (_, label), runs in groups.items() if not runs[0].ablates))
    sections = []
    human = atari_table(groups)
    if human.rows:
        parts: list[Part] = [human._replace(note=f"100 % is a person, 0 % random play. Scores: {atari_source()}.")]
        svg = human_picture(groups, labels)
        if svg:
            parts.append(Picture(svg, "Median over games of the mean over seeds; band: 95 % stratified bootstrap."))
        sections.append(Section("Human-normalised scores", parts))
    families: dict[tuple[str, ...], list[str]] = {}
    for env_id in dict.fromkeys(env_id for env_id, _ in groups):
        played = tuple(label for label in labels if len(_scores(groups, env_id, label)))
        families.setdefault(played, []).append(env_id)
    for played, env_ids in families.items():
        if len(played) > 1:
            sections.append(Section(f"Against each other: {', '.join(played)}", _rivals(groups, played, env_ids)))
    return sections


def _rivals(groups: Groups, labels: Sequence[str], env_ids: Sequence[str]) -> list[Part]:
    """Aggregates, performance profiles and probabilities of improvement of runs that share environments."""
    matrices, name = _matrices(groups, labels, env_ids)
    everything = np.concatenate([matrix.ravel() for matrix in matrices.values()])
    thresholds = np.linspace(everything.min(), everything.max(), 60)
    profiles = performance_profiles(matrices, thresholds)
    aggregates = [[label, str(matrix.shape[1]), str(len(matrix)), interval(estimate(matrix)),
                   interval(estimate(matrix, np.mean))] for label, matrix in matrices.items()]
    pairs = [[a, b, interval(probability_of_improvement(matrices[a], matrices[b]))]
             for k, a in enumerate(matrices) for b in list(matrices)[k + 1:]]
    return [
        Table(["run", "environments", "seeds", "IQM [95 %]", "mean [95 %]"], aggregates, f"Scores are {name}."),
        Picture(profiles_picture(profiles, thresholds, name), "Performance profiles with 95 % intervals."),
        Table(["X", "Y", "P(X better than Y) [95 %]"], pairs, "Probability of improvement (Agarwal et al. 2021): over "
              "all pairs of seeds, averaged over environments."),
    ]


def _scores(groups: Groups, env_id: str, label: str) -> np.ndarray:
    runs = groups.get((env_id, label), [])
    return scores_of(runs, metric_of(runs[0].variant)) if runs else np.empty(0)


def _matrices(groups: Groups, labels: Sequence[str],
              env_ids: Sequence[str]) -> tuple[dict[str, np.ndarray], str]:
    """label -> (seeds, environments) of normalised scores, and how they are normalised."""
    human = all(atari_game(env_id) for env_id in env_ids)
    limits = {}
    for env_id in env_ids:
        values = np.concatenate([_scores(groups, env_id, label) for label in labels])
        limits[env_id] = atari_scores()[atari_game(env_id) or ""] if human \
            else (values.min(), max(values.max(), values.min() + 1e-9))
    matrices = {}
    for label in labels:
        columns = [normalised(_scores(groups, env_id, label), *limits[env_id]) for env_id in env_ids]
        seeds = min(map(len, columns))
        matrices[label] = np.stack([column[:seeds] for column in columns], axis=1)
    return matrices, "human-normalised (0: random play, 1: a person)" if human \
        else "normalised to 0 at the lowest and 1 at the highest run of each environment"


def _settings(runs: Sequence[Run], groups: Groups, told: dict) -> list[Section]:
    labels = list(dict.fromkeys(label for _, label in groups))
    differing = differing_settings(groups)
    rows = [[name, *(cells[label] for label in labels)] for name, cells in sorted(differing.items())]
    versions: dict[str, set[str]] = {}
    for run in runs:
        for name, value in run.versions.items():
            versions.setdefault(name, set()).add(str(value))
    parts: list[Part] = []
    if versions:
        parts.append(Table(["package", "version"], [[name, " and ".join(sorted(v))] for name, v in versions.items()]))
    played = told.get("machine") or machine()
    where = "The runs were played on" if told.get("machine") else "This page was made on"
    parts.append(f"{where}: " + ", ".join(f"{name} {value}" for name, value in played.items()) + ".")
    sections = [Section("Versions and machine", parts)]
    if rows:
        sections.insert(0, Section("Hyper-parameters that differ", [Table(["field", *labels], rows)]))
    commands = sorted({run.command for run in runs if run.command})
    if commands:
        more = [f"... and {len(commands) - 20} more"] if len(commands) > 20 else []
        sections.append(Section("Commands of the runs", [Block("\n".join(commands[:20] + more))]))
    return sections


def _troubles(runs: Sequence[Run], directory: Path) -> list[Section]:
    parts: list[Part] = []
    for run in runs:
        place = run.path.relative_to(directory) if run.path.is_relative_to(directory) else run.path
        if run.failure:
            parts += [f"{place} failed; the last lines of its log:", Block(run.failure)]
        elif not run.summary:
            parts.append(f"{place} is not finished; the command that began it goes on with it.")
    return [Section("Failed and unfinished runs", parts)] if parts else []


def _write_csv(path: Path, groups: Groups) -> None:
    """One row a group, numbers unrounded, for whoever counts on."""
    head = ["env_id", "run", "variant", "seeds", "steps", "metric", "mean", "std", "iqm", "iqm_low", "iqm_high",
            "evaluation_mean", "evaluation_std", "sps", "wall_seconds", "verdicts"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        for (env_id, label), runs in groups.items():
            metric = metric_of(runs[0].variant)
            scores = scores_of(runs, metric)
            found = estimate(scores) if len(scores) else ("", "", "")
            evaluated = [run.evaluation["episodic_return_mean"] for run in runs
                         if run.evaluation.get("episodic_return_mean") is not None]
            verdicts = "; ".join(f"{row.implementation}: {compare_to_published(runs, row).word or 'no verdict'}"
                                 for row in published_for(runs[0].variant, env_id) if not runs[0].ablates)
            writer.writerow([env_id, label, runs[0].variant, len(runs), runs[0].summary.get("steps"), metric,
                             *((scores.mean(), scores.std()) if len(scores) else ("", "")), *found,
                             *((np.mean(evaluated), np.std(evaluated)) if evaluated else ("", "")),
                             _mean(runs, "sps"), _mean(runs, "wall_seconds"), verdicts])


def _mean(runs: Sequence[Run], name: str) -> float | str:
    values = [run.summary[name] for run in runs if run.summary.get(name)]
    return float(np.mean(values)) if values else ""
