"""Population-based training (Jaderberg et al. 2017, arXiv 1711.09846) without the runs: the file, and who copies whom.

Every random choice has a generator of its own, keyed by the seed of the file, the round and the member.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from proximo.bench.records import PopulationFile
from proximo.bench.sets import Row, override_problems, task_problems
from proximo.bench.space import Space, draw_value, example_of, is_whole, space_problems, twice, within
from proximo.bench.space_values import fixed_problems, fraction_problems, trial_problems, without_fixed
from proximo.bench.tables import read_tables
from proximo.catalog import VARIANTS
from proximo.errors import UsageError
from proximo.facts import facts
from proximo.runs.logs.trackers import STARTERS
from proximo.streams import stream_generator

KEYS = tuple(PopulationFile.__annotations__)
LIMITS = {"population": (4, 1000), "rounds": (1, 1000), "seed": (0, 2**62)}
SCHEDULES = ("anneal_lr", "anneal_clip", "anneal_ent")  # they need the end of training, and every round ends
FACTORS = (0.8, 1.2)  # of a value that is perturbed
MOST_NAMED = 10  # values in a message
MOST_WHOLE = 1000  # whole numbers of a range, because each is checked
RESAMPLED = 0.25  # probability that a value is drawn again instead


class Population(NamedTuple):
    """A file of population-based training."""

    name: str
    variant: str
    env_id: str
    steps: int
    """of each member, over all rounds"""
    population: int
    rounds: int
    seed: int
    """of all choices; member m begins with the seed `seed` + m"""
    metric: str
    overrides: dict[str, Any]
    space: Space


class Member(NamedTuple):
    """A member in one round."""

    values: dict[str, Any]
    seed: int
    """of its run, that of the parent if it continues one"""
    parent: int | None
    """the member of the round before whose run it continues; None: a new run"""
    score: float | None = None
    """at the end of the round; None: no episode has ended"""
    failed: bool = False


def load_population(path: str | Path, rounds: int | None = None) -> Population:
    """Read and check a file of population-based training.

    Args:
        path: The file.
        rounds: Rounds in place of those of the file.

    Raises:
        UsageError: The file cannot be read or has problems; the message has one line for each.
    """
    path = Path(path)
    tables = read_tables(path, PopulationFile, "benchmarks/pbt", "pbt")
    content: dict[str, Any] = tables.content | ({} if rounds is None else {"rounds": rounds})
    dropped = {"env_ids" if key == "env_id" else key for key in tables.dropped_from()}
    problems = [*tables.problems, *(f"{key} is unknown. A population has {', '.join(KEYS)}."
                                    for key in content if key not in KEYS)]
    found = Population(
        name=content.get("title") or path.stem, variant=content.get("variant", ""), env_id=content.get("env_id", ""),
        steps=content.get("steps", 0), population=content.get("population", 8), rounds=content.get("rounds", 10),
        seed=content.get("seed", 1), metric=content.get("metric", "episodic_return"),
        overrides=content.get("overrides", {}), space=content.get("space", {}))
    problems += [f"{name}={getattr(found, name)} is not allowed. Use {low} to {high}."
                 for name, (low, high) in LIMITS.items() if not low <= getattr(found, name) <= high]
    problems += task_problems({"variant": found.variant, "env_ids": [found.env_id] * ("env_id" in content),
                               "steps": found.steps}, dropped)
    problems += space_problems(found.space, dropped)
    if found.variant in VARIANTS:
        problems += _value_problems(found)
    if not problems:
        problems += _setting_problems(found)
    if problems:
        raise UsageError("\n".join(f"{path}: {problem}" for problem in problems))
    return found


def settings_of(population: Population, values: dict[str, Any]) -> dict[str, Any]:
    """Return the overrides of a member's run."""
    return dict.fromkeys(SCHEDULES, "none") | population.overrides | values


def first_members(population: Population) -> list[Member]:
    """Draw the members of the first round."""
    members = []
    for number in range(population.population):
        rng = stream_generator(population.seed, "population", 1, number)
        values = {name: draw_value(rng, given) for name, given in population.space.items()}
        members.append(Member(values=values, seed=population.seed + number, parent=None))
    return members


def next_members(population: Population, before: Sequence[Member], number: int) -> list[Member]:
    """Return the members of a round: the worst quarter, and who failed, copy one of the best quarter and change values.

    Args:
        population: The file.
        before: The members of the round before, with their scores; at least one has not failed.
        number: The number of the new round.
    """
    def score(member: int) -> float:
        found = before[member].score
        return -np.inf if found is None else found

    ranked = sorted((m for m, one in enumerate(before) if not one.failed), key=score, reverse=True)
    quarter = max(1, len(ranked) // 4)
    best = ranked[:quarter]
    worst = {m for m in ranked[quarter:][-quarter:] if score(m) < min(score(one) for one in best)}
    members = []
    for m, one in enumerate(before):
        if m not in worst and not one.failed:
            members.append(one._replace(parent=m, score=None))
            continue
        rng = stream_generator(population.seed, "population", number, m)
        parent = best[rng.integers(len(best))]
        values = {name: change_value(rng, given, before[parent].values[name])
                  for name, given in population.space.items()}
        members.append(Member(values=values, seed=before[parent].seed, parent=parent))
    return members


def change_value(rng: np.random.Generator, given: dict[str, Any], value: Any) -> Any:
    """Multiply a number by 0.8 or 1.2, within its range; with probability 1/4, and for choices, draw it again.

    A whole number that rounding would leave as it is becomes the next one.
    """
    again, factor = rng.random() < RESAMPLED, FACTORS[rng.integers(2)]
    if again or "choices" in given:
        return draw_value(rng, given)
    changed = within(value * factor, given)
    return within(value + np.sign(factor - 1), given) if changed == value and is_whole(given) else changed


def _setting_problems(population: Population) -> list[str]:
    """Return what is wrong with the values that a member may get, each with the first values of the other fields."""
    row = Row(variant=population.variant, env_ids=(population.env_id,), steps=population.steps // population.rounds,
              overrides=settings_of(population, {}))

    def problems_of(values: dict[str, Any]) -> list[str]:
        return trial_problems(row, example_of(population.space) | values)

    if wrong := problems_of({}):
        share = f"steps={population.steps} in {population.rounds} rounds are {row.steps} for each: "
        return [share * ("total_timesteps" in problem) + problem for problem in wrong]
    for name, given in population.space.items():
        if "choices" not in given and is_whole(given) and given["high"] - given["low"] >= MOST_WHOLE:
            wrong.append(f"space: {name} has {given['high'] - given['low'] + 1:,} values. Use a range of at most "
                         f"{MOST_WHOLE:,} whole numbers, or list the values that work: {{choices = [...]}}.")
            continue
        failed = [(value, problems) for value in _values_of(given) if (problems := problems_of({name: value}))]
        if failed:
            named = ", ".join(str(value) for value, _ in failed[:MOST_NAMED]) + ", ..." * (len(failed) > MOST_NAMED)
            why = failed[0][1][0].rstrip(".")
            wrong.append(f"space: {name} cannot become {named}: {why}. Narrow the range, or list the values that work: "
                         "{choices = [...]}.")
    return wrong


def _values_of(given: dict[str, Any]) -> Sequence[Any]:
    """Return all choices, every whole number of a range, or both ends of a range of other numbers."""
    if "choices" in given:
        return list(given["choices"])
    low, high = given["low"], given["high"]
    return range(low, high + 1) if is_whole(given) else (low, high)


def _value_problems(population: Population) -> list[str]:
    space = without_fixed(population.space)
    problems = fixed_problems("pbt", population.overrides, population.space)
    problems += override_problems(population.variant, without_fixed(population.overrides) | example_of(space))
    problems += fraction_problems(population.variant, population.space)
    known = facts(VARIANTS[population.variant].config)
    free = [name for name, fact in known.items() if fact.resume == "free" and fact.group == "training"
            and name not in (*SCHEDULES, "total_timesteps", "checkpoint_every")]
    problems += twice(population.overrides, population.space)
    problems += [f"space: {name} cannot change while a run trains. Use some of {', '.join(free)}."
                 for name in space if name in known and name not in free]
    problems += [f"overrides: {name}={population.overrides[name]} needs the end of training, and a round trains to its "
                 "own end. Leave it out: a population adapts such values by itself." for name in SCHEDULES
                 if population.overrides.get(name, "none") not in ("none", False)]
    if population.metric == "evaluation" and population.overrides.get("eval_env_kwargs"):
        problems.append('overrides: eval_env_kwargs is for evaluations during training, but metric = "evaluation" '
                        "plays with env_kwargs after each round. Leave it out, or choose another metric.")
    tracker = "wandb" if population.overrides.get("track") else population.overrides.get("logger")
    if tracker in STARTERS:
        problems.append(f"overrides: {tracker} cannot log a population, because copies of a run would share one of "
                        "its runs. Leave it out.")
    return problems
