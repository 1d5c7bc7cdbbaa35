"""Tables, and how numbers, step counts, intervals and durations are written in them."""

from typing import NamedTuple

import numpy as np

from proximo.bench.statistics import Estimate

MOST_COLUMNS = 12  # of a table with one column for each setting
ROUNDING = 1e-9  # smaller differences of scores are those of rounding


class Table(NamedTuple):
    """A table as HTML, Markdown and CSV show it."""

    head: list[str]
    rows: list[list[str]]
    note: str = ""
    """explains the columns, below the table"""


def number_text(value: float | None, digits: int = 2) -> str:
    """Write 1234567.8 as 1,234,567.80, what is smaller than 0.1 with three digits; None, NaN and infinity as a dash."""
    if value is None or not np.isfinite(value):
        return "-"
    small = digits > 1 and ROUNDING < abs(value) < 0.1
    return f"{value:.3g}" if small else f"{value:,.{digits}f}"


def short_number(text: str) -> str:
    """Return the text of a number with four digits, and of a whole number and of anything else as it is."""
    try:
        value = float(text)
    except ValueError:
        return text
    return text if not np.isfinite(value) or value.is_integer() else f"{value:.4g}"


def steps_text(steps: int) -> str:
    """Write 500000 as 500k and 8000000 as 8M."""
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if steps >= unit:
            return f"{steps / unit:g}{name}"
    return str(steps)


def interval_text(found: Estimate, digits: int = 2) -> str:
    """Write an estimate as `value [low, high]`."""
    return f"{number_text(found.value, digits)} [{number_text(found.low, digits)}, {number_text(found.high, digits)}]"


def estimate_text(found: Estimate, seeds: int, digits: int = 2) -> str:
    """Write an estimate with its interval, which one seed does not have."""
    return interval_text(found, digits) if seeds > 1 else f"{number_text(found.value, digits)} (one seed)"


def duration_text(seconds: float) -> str:
    """Write 3725 as 1h02, 125 as 2m05 and 9 as 9s."""
    seconds = int(seconds)
    if seconds >= 3600:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02}"
    return f"{seconds // 60}m{seconds % 60:02}" if seconds >= 60 else f"{seconds}s"


def settings_lines(head: list[str], rows: list[list[str]]) -> list[list[str]]:
    """Return the lines of a table of settings, its head first: with a column for each, or of many with a line for each.

    Args:
        head: "field" and the labels of the settings.
        rows: The name of a field and its value in each setting.
    """
    if len(head) <= max(MOST_COLUMNS, len(rows)):
        return [head, *rows]
    (_, *fields), *lines = map(list, zip(head, *rows))
    return [["run", *fields], *lines]


def count_text(count: int, noun: str) -> str:
    """Write `1 seed` and `2 seeds`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def csv_text(text: str) -> str:
    """Return text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
