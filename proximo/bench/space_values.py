"""Which values of a [space] a variant allows: each alone, and together with the others and with the overrides."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from proximo.bench.sets import SET_BY_BENCH, Row, config_of, override_problems
from proximo.bench.space import Space, draw_value, ends_of, is_whole, named_values, range_problems_of
from proximo.catalog import VARIANTS
from proximo.facts import converted_fields, range_problems, shown
from proximo.problems import config_problems

MOST_TRIED = 200  # trials that are drawn to find one that is possible
SET_BY_FILE = {  # command -> field of the configuration -> what sets it instead of [overrides] and [space]
    "tune": {"env_id": "the key env_ids", "seed": "the key seeds", "total_timesteps": "the key steps",
             "run_dir": "the flag --out"},
    "pbt": {"env_id": "the key env_id", "seed": "the key seed", "total_timesteps": "the key steps",
            "run_dir": "the flag --out"}}


def fixed_problems(command: str, overrides: Iterable[str], space: Iterable[str]) -> list[str]:
    """Return one sentence for each field in [overrides] and [space] that something else of a file sets."""
    return [f"{table}: {name} is set by {SET_BY_FILE[command][name]}. Leave it out of [{table}]."
            for table, names in (("overrides", overrides), ("space", space))
            for name in names if name in SET_BY_FILE[command]]


def without_fixed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values without those of fixed_problems()."""
    return {name: value for name, value in values.items() if name not in SET_BY_BENCH}


def trial_problems(row: Row, values: Mapping[str, Any]) -> list[str]:
    """Return why a trial with these values is impossible, one sentence each."""
    rows = [replace(row, env_ids=(env_id,)) for env_id in row.env_ids]
    return list(dict.fromkeys(problem for one in rows
                              for problem in config_problems(config_of(one, {**row.overrides, **values}))))


def value_problems(row: Row, space: Space, tasks_are_right: bool) -> list[str]:
    """Return what is wrong with the ends and the choices of a [space], one sentence each."""
    alone = {name: list(dict.fromkeys(_problems_alone(row.variant, name, given))) for name, given in space.items()}
    problems = [f"space: {problem}" for found in alone.values() for problem in found]
    problems += fraction_problems(row.variant, space)
    base = _range_problems(row.variant, row.overrides)
    if tasks_are_right and not base:
        problems += _problems_together(row, {name: given for name, given in space.items()
                                              if not (alone[name] or range_problems_of(name, given))})
    return base + problems


def fraction_problems(variant: str, space: Space) -> list[str]:
    """Return one sentence for each field of fractions with a range of whole numbers, which would leave them out."""
    return [f"space: {name} would get whole numbers only, because both bounds are. Write low = {given['low']}.0 and "
            f"high = {given['high']}.0, or list the values: {{choices = [...]}}."
            for name, given in space.items() if not range_problems_of(name, given) and "choices" not in given
            and is_whole(given) and not override_problems(variant, {name: 0.5})]


def _problems_alone(variant: str, name: str, given: Any) -> Iterator[str]:
    """Yield what is wrong with the values of one field, whatever the others are: types and ranges.

    A range that breaks rules has values too, and all problems of a file are said at once.
    """
    for value in named_values(name, given):
        yield from override_problems(variant, {name: value}) or _range_problems(variant, {name: value})
    if range_problems_of(name, given) or "choices" in given or is_whole(given):
        return
    if override_problems(variant, {name: given["low"]}):
        return
    if override_problems(variant, {name: (given["low"] + given["high"]) / math.pi}):  # no whole number
        yield f"{name} is a whole number. Write both ends without a decimal point."


def _range_problems(variant: str, values: Mapping[str, Any]) -> list[str]:
    return range_problems(converted_fields(VARIANTS[variant].config(**values)))


def _problems_together(row: Row, space: Space) -> list[str]:
    """Return which ends and choices no trial can have, because sizes or settings do not fit; others are drawn."""
    if found := _never_possible(row, space, {}):
        return [f"no trial is possible with these steps, overrides and values: {problem}" for problem in found]
    return [f"space: no trial is possible with {name}={shown(value)}: {problem}" for name, given in space.items()
            for value in ends_of(given) for problem in _never_possible(row, space, {name: value})]


def _never_possible(row: Row, space: Space, fixed: dict[str, Any]) -> list[str]:
    """Return the problems of the first trial with the fixed values, if all that were drawn have problems."""
    rng = np.random.default_rng(0)
    first: list[str] = []
    for _ in range(MOST_TRIED):
        found = trial_problems(row, {name: draw_value(rng, given) for name, given in space.items()} | fixed)
        if not found:
            return []
        first = first or found
    return first
