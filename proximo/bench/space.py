"""The [space] of a search or a population: the range of values of each field."""

import math
import reprlib
import sys
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

Space = Mapping[str, dict[str, Any]]  # field -> {low, high}, {low, high, log = true} or {choices = [...]}


CODE = ("env_file", "env_wrappers")  # name scripts and modules, which --allow-import allows for [overrides]
BOUNDS = ("low", "high", "log")
RANGE_KEYS = (*BOUNDS, "choices")


def space_problems(space: Space, dropped: Collection[int | str] = ()) -> list[str]:
    """Return what is wrong with a [space], one sentence each; it may be empty if parts of it were dropped."""
    if not space and "space" not in dropped:
        return ["there is no [space]. Each of its lines is a field with {low, high}, {low, high, log = true} or "
                "{choices = [...]}."]
    return [f"space: {name}{problem}" for name, given in space.items() for problem in range_problems_of(name, given)]


def twice(overrides: Mapping[str, Any], space: Space) -> list[str]:
    """Return one sentence for each field that has both one value and several."""
    return [f"{name} is in [overrides] and in [space]. Leave it out of one of them." for name in overrides
            if name in space]


def example_of(space: Space) -> dict[str, Any]:
    """Return one value of each field whose range is right."""
    return {name: given["choices"][0] if "choices" in given else given["low"] for name, given in space.items()
            if not range_problems_of(name, given)}


def range_problems_of(name: str, given: Any) -> list[str]:
    """Return each rule that the range of a field breaks, as what follows its name in a sentence."""
    if name in CODE:
        return [" names environments, which are those of the whole file. Put it into [overrides], or write one file "
                "for each."]
    if not isinstance(given, dict) or not given:
        return [f"={reprlib.repr(given)} is not allowed. Use {{low, high}}, {{low, high, log = true}} or "
                "{choices = [...]}."]
    problems = [f": {key} is unknown. Use low and high, also with log, or choices." for key in given
                if key not in RANGE_KEYS]
    if "choices" not in given:
        return problems + _bound_problems(given)
    if bounds := [key for key in given if key in BOUNDS]:
        problems.append(f" has choices and {', '.join(bounds)}. Use either choices, or low and high.")
        problems += _bound_problems(given) if {"low", "high"} <= given.keys() else []
    return problems + _choice_problems(given["choices"])


def _bound_problems(given: dict[str, Any]) -> list[str]:
    low, high, log = given.get("low"), given.get("high"), given.get("log", False)
    problems = [f": {key} is missing. Write both bounds, {{low = ..., high = ...}}, or {{choices = [...]}}."
                for key in ("low", "high") if key not in given]
    problems += [f": {key}={reprlib.repr(given[key])} is not a finite number. Bounds are numbers; list other values as "
                 "{choices = [...]}." for key in ("low", "high") if key in given and not is_number(given[key])]
    if not isinstance(log, bool):
        problems.append(f": log={reprlib.repr(log)} is not allowed. Use true or false.")
    if low is not None and high is not None and is_number(low) and is_number(high) and low >= high:
        advice = "Write the smaller number as low." if low > high else "Put one value into [overrides]."
        problems.append(f": low={low} must be below high={high}. {advice}")
    if log is True and low is not None and is_number(low) and low <= 0:
        problems.append(f": low={low} must be above 0 with log = true. Use a larger bound, or leave log out.")
    return problems


def _choice_problems(choices: Any) -> list[str]:
    if not isinstance(choices, list):
        return [f": choices={reprlib.repr(choices)} is not a list. Write {{choices = [...]}}."]
    if not choices:
        return [": choices is empty. List at least one value: {choices = [...]}."]
    again = [value for i, value in enumerate(choices) if value in choices[:i]]
    return [f": choices has a value twice: {reprlib.repr(again[0])}. Name each value once."] if again else []


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_whole(given: dict[str, Any]) -> bool:
    """Return whether a range is one of whole numbers: both ends are."""
    return isinstance(given["low"], int) and isinstance(given["high"], int)


def ends_of(given: dict[str, Any]) -> list[Any]:
    """Return all choices, or both ends of a range."""
    return given["choices"] if "choices" in given else [given["low"], given["high"]]


def combinations(space: Space) -> float:
    """Return how many combinations of values there are; infinity where a range has fractions."""
    return math.prod(len(given["choices"]) if "choices" in given else
                     given["high"] - given["low"] + 1 if is_whole(given) else math.inf for given in space.values())


def named_values(name: str, given: Any) -> list[Any]:
    """Return the choices and the bounds that a range has, also if it breaks rules; no bound that is not a number."""
    if name in CODE or not isinstance(given, dict):
        return []
    choices = given.get("choices", [])
    return [*(choices if isinstance(choices, list) else []),
            *(given[key] for key in ("low", "high") if is_number(given.get(key)))]


def draw_value(rng: np.random.Generator, given: dict[str, Any]) -> Any:
    """Draw a value of a field from its {low, high}, {low, high, log = true} or {choices = [...]}."""
    if "choices" in given:
        return given["choices"][rng.integers(len(given["choices"]))]
    half = 0.5 * is_whole(given)  # otherwise rounding would draw the ends half as often as what is between them
    low, high = given["low"] - half, given["high"] + half
    if given.get("log"):
        return within(float(np.exp(rng.uniform(np.log(low), np.log(high)))), given)
    return within(rng.uniform(low, high), given)


def within(value: float, given: dict[str, Any]) -> Any:
    """Return a value of few digits in its range, a whole number if the ends are."""
    low, high = given["low"], given["high"]
    return min(max(round(value) if is_whole(given) else float(f"{value:.4g}"), low), high)
