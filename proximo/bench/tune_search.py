"""A search file: which fields may take which values, over which environments and seeds."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from proximo.bench.sets import override_problems, read_toml, seeds_of
from proximo.catalog import VARIANTS
from proximo.errors import UsageError

if TYPE_CHECKING:
    from optuna import Trial

SEARCH_KEYS = {"title", "variant", "env_ids", "steps", "seeds", "trials", "metric", "pruner", "storage", "sampler_seed",
        "overrides", "space", "target_scores"}


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
    sampler_seed: int
    overrides: dict[str, object]
    space: dict[str, dict]
    target_scores: dict[str, list[float]]
    """environment -> scores that count as 0 and 1; needed for several environments"""


def load_search(path: str | Path) -> Search:
    """Reads and checks a search file. Raises UsageError with every problem in it."""
    path = Path(path)
    content = read_toml(path)
    wrong = [f"{key} is unknown; a search has {', '.join(sorted(SEARCH_KEYS))}" for key in content.keys() - SEARCH_KEYS]
    seeds = seeds_of(content.get("seeds", 3), wrong)
    variant, env_ids, steps = content.get("variant"), content.get("env_ids"), content.get("steps")
    if variant not in VARIANTS:
        wrong.append(f"variant={variant!r} is unknown; there are {', '.join(VARIANTS)}")
    if not (isinstance(env_ids, list) and env_ids):
        wrong.append(f"env_ids={env_ids!r} must be a list of ids")
    if type(steps) is not int or steps < 1:
        wrong.append(f"steps={steps!r} must be a number of at least 1")
    space, targets = content.get("space", {}), content.get("target_scores", {})
    if not space:
        wrong.append("there is no [space]; each line is a field with {low, high}, {low, high, log = true} or {choices}")
    wrong += [problem for name, given in space.items() if (problem := _space_problem(name, given))]
    if isinstance(env_ids, list) and len(env_ids) > 1 and set(targets) != set(env_ids):
        wrong.append("several environments need [target_scores]: \"ID\" = [score that counts as 0, as 1] for each")
    if content.get("pruner", "median") not in ("median", "hyperband", "none"):
        wrong.append(f"pruner={content['pruner']!r} must be median, hyperband or none")
    if variant in VARIANTS:
        example = {name: given["choices"][0] if "choices" in given else given["low"] for name, given in space.items()
                   if not _space_problem(name, given)}
        wrong += override_problems(variant, content.get("overrides", {}) | example)
    if wrong:
        raise UsageError("\n".join(f"{path}: {problem}" for problem in wrong))
    return Search(content.get("title", path.stem), variant, tuple(env_ids), steps, seeds, content.get("trials", 50),
                  content.get("metric", "episodic_return"), content.get("pruner", "median"),
                  content.get("storage", ""), content.get("sampler_seed", 0), content.get("overrides", {}), space,
                  targets)


def suggest(trial: "Trial", space: Mapping[str, dict]) -> dict[str, object]:
    """The trial's value of each field."""
    values: dict[str, object] = {}
    for name, given in space.items():
        if "choices" in given:
            values[name] = trial.suggest_categorical(name, given["choices"])
        elif isinstance(given["low"], int) and isinstance(given["high"], int):
            values[name] = trial.suggest_int(name, given["low"], given["high"], log=given.get("log", False))
        else:
            values[name] = trial.suggest_float(name, given["low"], given["high"], log=given.get("log", False))
    return values


def _space_problem(name: str, given: object) -> str:
    if isinstance(given, dict) and isinstance(given.get("choices"), list) and given["choices"]:
        return ""
    if isinstance(given, dict) and all(isinstance(given.get(end), (int, float)) for end in ("low", "high")) \
            and given["low"] < given["high"] and not (given.get("log") and given["low"] <= 0):
        return ""
    return (f"space: {name}={given!r} must be {{low, high}} with low below high (above 0 with log), or "
            "{choices = [...]}")
