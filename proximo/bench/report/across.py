"""The sections of a report that look at several environments at once."""

from collections.abc import Sequence

import numpy as np

from proximo.bench.report.page import Part, Picture, Section
from proximo.bench.report.pictures import human_picture, profiles_picture
from proximo.bench.report.published import atari_game, atari_scores, atari_source
from proximo.bench.report.tables import atari_table
from proximo.bench.results import Groups, metric_of, scores_of, steps_of
from proximo.bench.statistics import (
    estimate,
    iqm,
    normalise,
    performance_profiles,
    probability_of_improvement,
)
from proximo.bench.text import Table, estimate_text

MOST_COMPARED = 10  # settings of a section: each pair of them needs a bootstrap
MOST_DRAWN = 8  # largest normalised score in a performance profile (as in rliable): one game must not stretch it


def across_environments(groups: Groups) -> list[Section]:
    """Return the sections on human-normalised scores, and on each set of labels that share environments."""
    labels = list(dict.fromkeys(label for (_, label), runs in groups.items() if not runs[0].ablates))
    sections = []
    human = atari_table(groups)
    if human.rows:
        note = f"0 % is random play, 100 % is a human. Source of both scores: {atari_source()}."
        parts: list[Part] = [human._replace(note=note)]
        if svg := human_picture(groups, labels):
            parts.append(Picture(svg, "Median over games of the mean over seeds. Band: 95 % stratified bootstrap "
                                      "interval."))
        sections.append(Section("Human-normalised scores", parts))
    families: dict[tuple[str, ...], list[str]] = {}
    for env_id in dict.fromkeys(env_id for env_id, _ in groups):
        present = tuple(label for label in labels if len(_scores(groups, env_id, label)))
        families.setdefault(present, []).append(env_id)
    sections += [Section(_title(present, env_ids), _compare_labels(groups, present, env_ids))
                 for present, env_ids in families.items() if len(present) > 1]
    return sections


def _title(labels: Sequence[str], env_ids: Sequence[str]) -> str:
    if len(labels) <= MOST_COMPARED:
        return f"Comparison of {', '.join(labels)}"
    where = env_ids[0] if len(env_ids) == 1 else f"{len(env_ids)} environments"
    return f"Comparison of {len(labels)} settings in {where}"


def _compare_labels(groups: Groups, labels: Sequence[str], env_ids: Sequence[str]) -> list[Part]:
    """Return aggregates, performance profiles and probabilities of improvement of the best labels."""
    matrices, name = _matrices(groups, labels, env_ids)
    best = sorted(labels, key=lambda label: -iqm(matrices[label]))[:MOST_COMPARED]
    matrices = {label: matrix for label, matrix in matrices.items() if label in best}
    left_out = [f"{more} of {label} in {env_id}" for label, matrix in matrices.items() for env_id in env_ids
                if (more := len(_scores(groups, env_id, label)) - len(matrix))]
    steps = sorted({steps_of(run) for env_id in env_ids for label in matrices for run in groups[env_id, label]})
    notes: list[Part] = [f"This section has the {len(best)} of {len(labels)} settings with the highest interquartile "
                         "mean."] * (len(best) < len(labels))
    notes += [f"The runs have different lengths: {', '.join(f'{one:,}' for one in steps)} steps."] * (
        len(env_ids) == 1 and len(steps) > 1)
    notes += [f"In this section, all environments of a row have the same number of runs: the first ones of each. Left "
              f"out are {', '.join(left_out)}."] if left_out else []
    everything = np.concatenate([matrix.ravel() for matrix in matrices.values()])
    least, most = everything.min(), everything.max()
    beyond = f" Scores above {MOST_DRAWN} are not drawn." * bool(least < MOST_DRAWN < most)
    thresholds = np.linspace(least, MOST_DRAWN if beyond else most, 60)
    profiles = performance_profiles(matrices, thresholds)
    aggregates = [[label, str(matrix.shape[1]), str(len(matrix)), estimate_text(estimate(matrix), len(matrix)),
                   estimate_text(estimate(matrix, np.mean), len(matrix))] for label, matrix in matrices.items()]
    pairs = [[a, b, estimate_text(probability_of_improvement(matrices[a], matrices[b]),
                                   min(len(matrices[a]), len(matrices[b])))]
             for k, a in enumerate(matrices) for b in list(matrices)[k + 1:]]
    return [
        *notes,
        Table(head=["run", "environments", "seeds", "IQM [95 %]", "mean [95 %]"], rows=aggregates,
              note=f"Scores are {name}."),
        Picture(profiles_picture(profiles, thresholds, name), f"Performance profiles with 95 % intervals.{beyond}"),
        Table(head=["X", "Y", "P(X better than Y) [95 %]"], rows=pairs,
              note="Probability of improvement (Agarwal et al. 2021): over all pairs of these runs, averaged "
                   "over environments."),
    ]


def _scores(groups: Groups, env_id: str, label: str) -> np.ndarray:
    runs = groups.get((env_id, label), [])
    return scores_of(runs, metric_of(runs[0].variant)) if runs else np.empty(0)


def _matrices(groups: Groups, labels: Sequence[str],
              env_ids: Sequence[str]) -> tuple[dict[str, np.ndarray], str]:
    """Return label -> normalised scores (seeds, environments), and how they are normalised."""
    human = all(atari_game(env_id) for env_id in env_ids)
    limits = {}
    for env_id in env_ids:
        values = np.concatenate([_scores(groups, env_id, label) for label in labels])
        limits[env_id] = atari_scores()[atari_game(env_id) or ""] if human \
            else (values.min(), max(values.max(), np.nextafter(values.min(), np.inf)))
    matrices = {}
    for label in labels:
        columns = [normalise(_scores(groups, env_id, label), *limits[env_id]) for env_id in env_ids]
        seeds = min(map(len, columns))
        matrices[label] = np.stack([column[:seeds] for column in columns], axis=1)
    return matrices, "human-normalised (0: random play, 1: human)" if human \
        else "normalised to 0 for the lowest and 1 for the highest run of each environment"
