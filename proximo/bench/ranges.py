"""The [space] of a search or a population: the range of values of each field."""

import math
import reprlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

Space = Mapping[str, dict[str, Any]]  # field -> {low, high}, {low, high, log = true} or {choices = [...]}


CODE = ("env_file", "env_wrappers")  # name scripts and modules, which --allow-import allows for [overrides]


def space_problems(space: Space, dropped: Collection[int | str] = ()) -> list[str]:
    """Return what is wrong with a [space], one sentence each; it may be empty if parts of it were dropped."""
    if not space and "space" not in dropped:
        return ["there is no [space]. Each of its lines is a field with {low, high}, {low, high, log = true} or "
                "{choices = [...]}."]
    return [problem for name, given in space.items() if (problem := range_problem(name, given))]


def twice(overrides: Mapping[str, Any], space: Space) -> list[str]:
    """Return one sentence for each field that has both one value and several."""
    return [f"{name} is in [overrides] and in [space]. Leave it out of one of them." for name in overrides
            if name in space]


def example_of(space: Space) -> dict[str, Any]:
    """Return one value of each field whose range is right."""
    return {name: given["choices"][0] if "choices" in given else given["low"] for name, given in space.items()
            if not range_problem(name, given)}


def range_problem(name: str, given: Any) -> str:
    """Return what is wrong with the range of a field; an empty text if nothing is."""
    if name in CODE:
        return (f"space: {name} names environments, which are those of the whole file. Put it into [overrides], or "
                "write one file for each.")
    keys = given.keys() if isinstance(given, dict) else set()
    if keys == {"choices"} and isinstance(given["choices"], list) and given["choices"]:
        return ""
    if {"low", "high"} <= keys <= {"low", "high", "log"} and _is_range(**given):
        return ""
    return (f"space: {name}={reprlib.repr(given)} is not allowed. Use {{low, high}} with low below high (and above 0 "
            "with log), or {choices = [...]}.")


def _is_range(low: Any, high: Any, log: Any = False) -> bool:
    numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x) for x in (low, high))
    return numbers and isinstance(log, bool) and low < high and not (log and low <= 0)


def is_whole(given: dict[str, Any]) -> bool:
    """Return whether a range is one of whole numbers: both ends are."""
    return isinstance(given["low"], int) and isinstance(given["high"], int)


def ends_of(given: dict[str, Any]) -> list[Any]:
    """Return all choices, or both ends of a range."""
    return given["choices"] if "choices" in given else [given["low"], given["high"]]


def draw_value(rng: np.random.Generator, given: dict[str, Any]) -> Any:
    """Draw a value of a field from its {low, high}, {low, high, log = true} or {choices = [...]}."""
    if "choices" in given:
        return given["choices"][rng.integers(len(given["choices"]))]
    low, high = given["low"], given["high"]
    drawn = np.exp(rng.uniform(np.log(low), np.log(high))) if given.get("log") else rng.uniform(low, high)
    return within(float(drawn), given)


def within(value: float, given: dict[str, Any]) -> Any:
    """Return a value of few digits in its range, a whole number if the ends are."""
    low, high = given["low"], given["high"]
    return min(max(round(value) if is_whole(given) else float(f"{value:.4g}"), low), high)
