"""Covering arrays: few rows of values in which every possible combination of some dimensions occurs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

Values = dict[str, str]
Combination = tuple[tuple[str, str], ...]  # (dimension, value), in order of the dimensions


def combinations(dimensions: Mapping[str, Sequence[str]], names: Sequence[str]) -> Iterator[Combination]:
    """Yield every combination of the values of these dimensions."""
    for values in product(*(dimensions[name] for name in names)):
        yield tuple(zip(names, values))


def covering_rows(dimensions: Mapping[str, Sequence[str]], groups: Sequence[Sequence[str]],
                  allowed: Callable[[Values], bool], cost: Callable[[Values], int] = lambda row: 0) -> list[Values]:
    """Return rows in which every allowed combination of each group of dimensions occurs (greedy, as in IPOG and AETG).

    Args:
        dimensions: The values of each dimension; of equally good values the first is taken.
        groups: Names of dimensions whose combinations must occur; the last group comes first.
        allowed: Whether some values, of all dimensions or of a part of them, go together.
        cost: How many new combinations a row must have to be worth such values.

    Raises:
        ValueError: A combination is allowed, but no whole row with it is.
    """
    missing = {one: None for names in groups for one in combinations(dimensions, names) if allowed(dict(one))}
    rows: list[Values] = []
    while missing:
        row = dict(next(reversed(missing)))
        for name in dimensions:
            if name not in row:
                choices = whole(dimensions, row, name, allowed)
                row = max(choices, key=lambda one: len(covered(one, groups) & missing.keys()) - cost(one))
        for one in covered(row, groups):
            missing.pop(one, None)
        rows.append({name: row[name] for name in dimensions})
    return rows


def covered(row: Values, groups: Sequence[Sequence[str]]) -> set[Combination]:
    """Return the combinations that a row, or a part of one, contains."""
    return {tuple((name, row[name]) for name in names) for names in groups if all(name in row for name in names)}


def whole(dimensions: Mapping[str, Sequence[str]], row: Values, name: str,
          allowed: Callable[[Values], bool]) -> list[Values]:
    """Return the row with each value of one more dimension that a whole row can have."""
    found = [one for value in dimensions[name] if completable(dimensions, one := row | {name: value}, allowed)]
    if not found:
        raise ValueError(f"{row} is allowed, but no row that has it")
    return found


def completable(dimensions: Mapping[str, Sequence[str]], row: Values, allowed: Callable[[Values], bool]) -> bool:
    """Return whether the other dimensions have values that go together with the row's."""
    if not allowed(row):
        return False
    name = next((name for name in dimensions if name not in row), None)
    return name is None or any(completable(dimensions, row | {name: value}, allowed) for value in dimensions[name])
