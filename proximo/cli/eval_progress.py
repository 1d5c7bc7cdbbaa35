"""The progress of `proximo eval`: a bar on a terminal, nothing elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from proximo.models.evaluate import ShowProgress
from proximo.runs.logs.console import REFRESH_SECONDS


@contextmanager
def shown_progress(title: str, episodes: int, console: Console | None = None) -> Iterator[ShowProgress | None]:
    """Show a bar on standard error until the block ends, if that is a terminal.

    Args:
        title: What is evaluated.
        episodes: How many episodes will be played.
        console: Where to write; None: standard error.

    Yields:
        A function of the episodes and steps played so far; None if nothing is shown.
    """
    console = console or Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[numbers]}"))
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task(title, total=episodes, numbers="")
        shown = 0.0

        def show(finished: int, steps: int) -> None:
            nonlocal shown
            if time.perf_counter() - shown >= REFRESH_SECONDS:
                shown = time.perf_counter()
                bar.update(task, completed=finished, numbers=f"{finished} of {episodes} episodes  step {steps:,}")
                bar.refresh()

        yield show
