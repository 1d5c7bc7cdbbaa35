"""The runs on a terminal without a browser: a table with curves in characters, or lines where nothing is drawn."""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from proximo.bench.live.runs import Followed, LiveRuns
from proximo.bench.text import duration_text, number_text
from proximo.runs.logs.output import printable, write_line

if TYPE_CHECKING:
    from rich.console import Group

CURVE_WIDTH = 16
LEVELS = "▁▂▃▄▅▆▇█"
STYLES = {"running": "green", "silent": "yellow", "failed": "red"}
MOST_NAMED = 4  # runs of a warning
SCREEN_SECONDS = 2.0  # between two updates on a terminal
LINE_SECONDS = 10.0  # between lines where the output is no terminal


def show_text(live: LiveRuns) -> None:
    """Show the runs until Ctrl-C; without a terminal as lines, until no run is running."""
    if not sys.stdout.isatty():
        write_lines(live)
        return
    from rich.live import Live

    with Live(text_view(live.refresh(), live.left_out), auto_refresh=False) as screen:
        while True:
            time.sleep(SCREEN_SECONDS)
            screen.update(text_view(live.refresh(), live.left_out), refresh=True)


def write_lines(live: LiveRuns) -> None:
    """Write a line for each run that has news, until no run is running or the reader of the output has left."""
    said: dict[str, tuple[str, int]] = {}
    left_out = 0
    while True:
        found = live.refresh()
        if any(one.curves.more for one in found):
            continue
        for one in found:
            news = one.state.word, one.state.step
            if said.get(one.name) != news:
                said[one.name] = news
                if not write_line(sys.stdout, line_of(one)):
                    return
        if live.left_out > left_out:
            write_line(sys.stdout, left_out_line(live.left_out))
        left_out = live.left_out
        if not found:
            write_line(sys.stdout, f"There is no run in {', '.join(map(str, live.paths))}.")
        if not any(one.state.word == "running" for one in found):
            return
        time.sleep(LINE_SECONDS)


def left_out_line(left_out: int) -> str:
    """Say how many runs are not followed."""
    return f"{left_out:,} older runs are not shown."


LEAST_NAME = 16  # characters of the column of names, also where the terminal is narrow


def line_of(one: Followed) -> str:
    """Write what is known of a run in one line of printable characters."""
    state = one.state
    left = f", {duration_text(state.left)} left" if state.left is not None else ""
    warned = "".join(f"; {warning.metric} {warning.value:.3g} is {warning.side} {warning.bound:.3g}"
                     for warning in one.warnings)
    return one_line(f"{one.name}: {state.word}, {state.step:,} of {state.of:,} steps, return "
                     f"{number_text(one.curves.mean_return)}, {number_text(state.sps, 0)} steps/s{left}{warned}")


def text_view(found: Sequence[Followed], left_out: int = 0) -> "Group":
    """Return the table of the runs and their warnings, for rich; `left_out` more runs are only counted."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("state", "run", "done", "return", "its curve", "steps/s", "left", "last line"):
        table.add_column(name, justify="left" if name in ("state", "run", "its curve") else "right",
                         no_wrap=name not in ("run", "its curve"), overflow="crop" if name == "its curve" else "fold",
                         min_width=LEAST_NAME if name == "run" else None)
    for one in found:
        state = one.state
        cells = [state.word, one.name, f"{state.share:.0%}", number_text(one.curves.mean_return, 1),
                 sparkline(one.curves.episodes.points[:, 2]), number_text(state.sps, 0),
                 "" if state.left is None else duration_text(state.left),
                 "" if state.age is None else duration_text(state.age)]
        table.add_row(*(Text(one_line(cell)) for cell in cells), style=STYLES.get(state.word, ""))
    end = "Ctrl-C ends this view; the runs continue." if found else "No run yet. Ctrl-C ends this view."
    notes = [left_out_line(left_out)] * bool(left_out) + [end]
    return Group(table, *(Text(line, style="yellow") for line in warning_lines(found)),
                 *(Text(note, style="dim") for note in notes))


def warning_lines(found: Sequence[Followed]) -> list[str]:
    """Return a line for each metric that some runs have above or below its usual range."""
    runs: dict[tuple[str, str, str], list[str]] = {}
    for one in found:
        for warning in one.warnings:
            runs.setdefault((warning.metric, warning.side, warning.advice), []).append(one.name)
    return [one_line(f"{metric} is {side} its usual range: {', '.join(names[:MOST_NAMED])}"
                      f"{f' and {len(names) - MOST_NAMED} more' * (len(names) > MOST_NAMED)}. {advice}")
            for (metric, side, advice), names in runs.items()]


def sparkline(values: np.ndarray) -> str:
    """Draw a curve in CURVE_WIDTH characters: the mean of each part of it, from its lowest to its highest."""
    values = values[np.isfinite(values)]
    if not len(values):
        return ""
    parts = np.array([part.mean() for part in np.array_split(values, min(CURVE_WIDTH, len(values)))])
    spread = parts.max() - parts.min()
    levels = (parts - parts.min()) / spread * (len(LEVELS) - 1) if spread else np.zeros(len(parts))
    return "".join(LEVELS[round(level)] for level in levels.tolist())


def one_line(text: str) -> str:
    """Return untrusted text as one line without control characters."""
    return printable(text).replace("\n", " ")
