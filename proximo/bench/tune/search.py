"""A search file: which fields may have which values, in which environments and with which seeds; and its scores."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from proximo.bench.files import read_record
from proximo.bench.names import clashes, file_name
from proximo.bench.records import SearchFile, Summary
from proximo.bench.results import EVALUATION
from proximo.bench.sets import Row, config_of, override_problems, read_seeds, task_problems
from proximo.bench.space import Space, is_whole, space_problems, twice
from proximo.bench.space_values import fixed_problems, value_problems, without_fixed
from proximo.bench.tables import read_tables
from proximo.catalog import VARIANTS
from proximo.errors import UsageError
from proximo.models.curves import newest_evaluation, newest_mean

if TYPE_CHECKING:
    from optuna import Trial

SEARCH_KEYS = tuple(SearchFile.__annotations__)
PRUNERS = ("median", "hyperband", "none")


class Search(NamedTuple):
    """A search file."""

    name: str
    variant: str
    env_ids: tuple[str, ...]
    steps: int
    seeds: tuple[int, ...]
    trials: int
    metric: str
    pruner: str
    storage: str
    """Optuna's storage; empty: a file in the folder of the search"""
    sampler_seed: int
    overrides: dict[str, Any]
    space: Space
    target_scores: dict[str, list[float]]
    """environment -> scores that count as 0 and as 1; empty: one environment, whose scores stay as they are"""

    @property
    def row(self) -> Row:
        """What all trials train."""
        return Row(variant=self.variant, env_ids=self.env_ids, steps=self.steps, overrides=self.overrides)


def load_search(path: str | Path) -> Search:
    """Read and check a search file.

    Raises:
        UsageError: The file cannot be read or has problems; the message has one line for each.
    """
    path = Path(path)
    tables = read_tables(path, SearchFile, "benchmarks/tune", "tune")
    content, dropped = tables.content, tables.dropped_from()
    space, targets = content.get("space", {}), content.get("target_scores", {})
    problems = [*tables.problems, *(f"{key} is unknown. A search has {', '.join(SEARCH_KEYS)}."
                                    for key in content if key not in SEARCH_KEYS)]
    seeds = read_seeds(content.get("seeds", 3), problems)
    wrong = task_problems(content, dropped)
    problems += wrong + space_problems(space, dropped)
    env_ids = content.get("env_ids", [])
    problems += clashes(map(file_name, env_ids), "Name each environment once.")
    problems += _target_problems(env_ids, targets, dropped)
    if content.get("trials", 1) < 1:
        problems.append(f"trials={content['trials']} must be at least 1.")
    if content.get("pruner", "median") not in PRUNERS:
        problems.append(f"pruner={content['pruner']!r} is unknown. Use one of {', '.join(PRUNERS)}.")
    if content.get("variant") in VARIANTS:
        row = Row(variant=content["variant"], env_ids=tuple(env_ids), steps=content.get("steps", 0),
                  overrides=content.get("overrides", {}))
        refused = fixed_problems("tune", row.overrides, space)
        refused += override_problems(row.variant, without_fixed(row.overrides))
        rest = replace(row, overrides={}) if refused else row
        problems += refused + twice(row.overrides, space)
        problems += [] if refused or dropped else _metric_problems(content)
        problems += value_problems(rest, without_fixed(space), not (wrong or refused or dropped))
    if problems:
        raise UsageError("\n".join(f"{path}: {problem}" for problem in problems))
    return Search(name=content.get("title") or path.stem, variant=content["variant"], env_ids=tuple(content["env_ids"]),
                  steps=content["steps"], seeds=seeds, trials=content.get("trials", 50),
                  metric=content.get("metric", "episodic_return"), pruner=content.get("pruner", "median"),
                  storage=content.get("storage", ""), sampler_seed=content.get("sampler_seed", 0),
                  overrides=content.get("overrides", {}), space=space, target_scores=targets)


def _target_problems(env_ids: Sequence[str], targets: Mapping[str, list[float]],
                     dropped: Collection[int | str]) -> list[str]:
    """Return what is wrong with [target_scores], which one environment does not need: names and scores."""
    line = '"ID" = [score that counts as 0, score that counts as 1]'
    problems = [f"target_scores: {env_id} is not one of env_ids ({', '.join(env_ids)}). Correct the name, or leave the "
                "line out." for env_id in targets if env_id not in env_ids and env_ids]
    if len(env_ids) > 1 and not targets and "target_scores" not in dropped:
        problems.append(f"several environments need [target_scores], with a line {line} for each")
    elif targets and "target_scores" not in dropped:
        problems += [f"target_scores: {env_id} is missing. Write a line {line.replace('ID', env_id)}."
                     for env_id in env_ids if env_id not in targets]
    return problems + [f"target_scores: {env_id}={pair} is not allowed. Use two different numbers: the score that "
                       "counts as 0, and the one that counts as 1"
                       for env_id, pair in targets.items() if len(pair) != 2 or pair[0] == pair[1]]


def _metric_problems(content: dict[str, Any]) -> list[str]:
    """Return what is wrong with the metric: evaluations must happen."""
    if content.get("metric") != EVALUATION:
        return []
    steps = content.get("steps", 0)
    cfg = VARIANTS[content["variant"]].config(total_timesteps=steps, **content.get("overrides", {})).resolved()
    if 0 < cfg.eval_every <= cfg.num_iterations * cfg.batch_size:
        return []
    return [f'metric = "evaluation" needs an evaluation in every run. Write eval_every = {max(1, steps // 10)} into '
            "[overrides]: the environment steps between two of them, at most the steps of a run."]


def suggest(trial: "Trial", space: Space) -> dict[str, Any]:
    """Return the value of each field in a trial."""
    drawn: dict[str, Any] = {}
    for name, given in space.items():
        if "choices" in given:
            drawn[name] = trial.suggest_categorical(name, _labels(given))
        elif is_whole(given):
            drawn[name] = trial.suggest_int(name, given["low"], given["high"], log=given.get("log", False))
        else:
            drawn[name] = trial.suggest_float(name, given["low"], given["high"], log=given.get("log", False))
    return field_values(drawn, space)


def field_values(params: Mapping[str, Any], space: Space) -> dict[str, Any]:
    """Return the values of fields that Optuna's parameters of a trial stand for: it stores lists as texts."""
    return {name: space[name]["choices"][_labels(space[name]).index(value)] if "choices" in space[name] else value
            for name, value in params.items()}


def _labels(given: dict[str, Any]) -> list[Any]:
    """Return the choices of a field as Optuna stores them, which knows numbers and texts only."""
    return [one if isinstance(one, (int, float, str)) else json.dumps(one) for one in given["choices"]]


def is_evaluated(search: Search, overrides: Mapping[str, Any]) -> bool:
    """Return whether the pruner compares the evaluations of runs with these overrides instead of training scores."""
    return search.metric != "episodic_length" and config_of(search.row, overrides).eval_every > 0


def never_evaluated(search: Search, overrides: Mapping[str, Any]) -> list[str]:
    """Return why runs with these overrides have no evaluation that could be their score."""
    cfg = config_of(search.row, overrides).resolved()
    trained = cfg.num_iterations * cfg.batch_size
    if search.metric != EVALUATION or cfg.eval_every <= trained:
        return []
    return [f"eval_every={cfg.eval_every} is more than the {trained} steps that these values train."]


def latest_score(run_dir: Path, search: Search, env_id: str, evaluated: bool) -> float | None:
    """Return the newest evaluation of a run if it is evaluated, otherwise its training score so far; None without one.

    The two are never mixed, because they are on two scales.
    """
    try:
        score = newest_evaluation(run_dir) if evaluated else newest_mean(run_dir, search.metric)
    except OSError:
        return None
    return None if score is None else scaled(score, search, env_id)


def final_score(run_dir: Path, search: Search, env_id: str) -> float | None:
    """Return the score of a finished run on the scale of the search; None if no episode has ended."""
    if search.metric == EVALUATION:
        return latest_score(run_dir, search, env_id, True)
    found = read_record(run_dir / "summary.json", Summary).get(f"{search.metric}_mean")
    return None if found is None else scaled(float(found), search, env_id)


def scaled(score: float, search: Search, env_id: str) -> float:
    """Return a score on the scale of the search, on which the scores of its environments are averaged."""
    low, high = search.target_scores.get(env_id, (0.0, 1.0))
    return (score - low) / (high - low)
