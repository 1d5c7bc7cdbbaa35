"""A search file: which fields may have which values, in which environments and with which seeds; and its scores."""

import csv
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from proximo.bench.records import SearchFile
from proximo.bench.sets import override_problems, read_seeds, read_tables, task_problems
from proximo.errors import UsageError

if TYPE_CHECKING:
    from optuna import Trial

SEARCH_KEYS = ("title", "variant", "env_ids", "steps", "seeds", "trials", "metric", "pruner", "storage", "sampler_seed",
               "overrides", "space", "target_scores")
PRUNERS = ("median", "hyperband", "none")

Space = Mapping[str, dict[str, Any]]  # field -> {low, high}, {low, high, log = true} or {choices = [...]}


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
    """environment -> scores that count as 0 and as 1; required for several environments"""


def load_search(path: str | Path) -> Search:
    """Read and check a search file.

    Raises:
        UsageError: If the file cannot be read or has problems; the message has one line for each.
    """
    path = Path(path)
    content = read_tables(path, SearchFile)
    space, targets = content.get("space", {}), content.get("target_scores", {})
    problems = [f"{key} is unknown. A search has {', '.join(SEARCH_KEYS)}."
                for key in content if key not in SEARCH_KEYS]
    seeds = read_seeds(content.get("seeds", 3), problems)
    wrong = task_problems(content)
    problems += wrong + space_problems(space)
    env_ids = content.get("env_ids", [])
    if len(env_ids) > 1 and set(targets) != set(env_ids):
        problems.append('several environments need [target_scores], with a line "ID" = [score that counts as 0, score '
                        "that counts as 1] for each")
    problems += [f"target_scores: {env_id}={pair} is not allowed. Use two different numbers: the score that counts as "
                 "0, and the one that counts as 1"
                 for env_id, pair in targets.items() if len(pair) != 2 or pair[0] == pair[1]]
    if content.get("trials", 1) < 1:
        problems.append(f"trials={content['trials']} is not at least 1")
    if content.get("pruner", "median") not in PRUNERS:
        problems.append(f"pruner={content['pruner']!r} is unknown. Use one of {', '.join(PRUNERS)}.")
    if not any(problem.startswith("variant=") for problem in wrong):
        problems += override_problems(content["variant"], content.get("overrides", {}) | example_of(space))
    if problems:
        raise UsageError("\n".join(f"{path}: {problem}" for problem in problems))
    return Search(name=content.get("title", path.stem), variant=content["variant"], env_ids=tuple(content["env_ids"]),
                  steps=content["steps"], seeds=seeds, trials=content.get("trials", 50),
                  metric=content.get("metric", "episodic_return"), pruner=content.get("pruner", "median"),
                  storage=content.get("storage", ""), sampler_seed=content.get("sampler_seed", 0),
                  overrides=content.get("overrides", {}), space=space, target_scores=targets)


def suggest(trial: "Trial", space: Space) -> dict[str, object]:
    """Return the value of each field in a trial."""
    values: dict[str, object] = {}
    for name, given in space.items():
        if "choices" in given:
            values[name] = trial.suggest_categorical(name, given["choices"])
        elif isinstance(given["low"], int) and isinstance(given["high"], int):
            values[name] = trial.suggest_int(name, given["low"], given["high"], log=given.get("log", False))
        else:
            values[name] = trial.suggest_float(name, given["low"], given["high"], log=given.get("log", False))
    return values


def latest_score(run_dir: Path, search: Search, env_id: str) -> float | None:
    """Return the newest evaluation of a run (--eval-every), otherwise its newest training score; None without one."""
    try:
        with (run_dir / "metrics.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError:
        return None
    evaluations = ["eval/return_mean"] * (search.metric == "episodic_return")
    for column in (*evaluations, f"charts/{search.metric}"):
        for row in reversed(rows):
            try:
                number = float(row.get(column) or "nan")
            except ValueError:
                continue
            if np.isfinite(number):
                return scaled(number, search, env_id)
    return None


def scaled(score: float, search: Search, env_id: str) -> float:
    """Return a score on the scale of the search, on which the scores of its environments are averaged."""
    low, high = search.target_scores.get(env_id, (0.0, 1.0))
    return (score - low) / (high - low)


def space_problems(space: Space) -> list[str]:
    """Return what is wrong with a [space], one sentence each."""
    if not space:
        return ["there is no [space]. Each of its lines is a field with {low, high}, {low, high, log = true} or "
                "{choices = [...]}."]
    return [problem for name, given in space.items() if (problem := _range_problem(name, given))]


def example_of(space: Space) -> dict[str, Any]:
    """Return one value of each field whose range is right."""
    return {name: given["choices"][0] if "choices" in given else given["low"] for name, given in space.items()
            if not _range_problem(name, given)}


def _range_problem(name: str, given: dict[str, Any]) -> str:
    choices, low, high = (given.get(key) for key in ("choices", "low", "high"))
    if isinstance(choices, list) and choices:
        return ""
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low < high \
            and not (given.get("log") and low <= 0):
        return ""
    return (f"space: {name}={reprlib.repr(given)} is not allowed. Use {{low, high}} with low below high (and above 0 "
            "with log), or {choices = [...]}.")
