"""The progress of a run: a bar on a terminal, otherwise a line from time to time."""

import time
from contextlib import suppress
from typing import NamedTuple

from rich import progress as rich_progress
from rich.console import Console

from proximo.runs.logs.output import printable, return_text, write_line

REFRESH_SECONDS = 0.25
LINE_SECONDS = 10.0


class Progress(NamedTuple):
    """The progress of a run, or of runs that train together."""

    iteration: int
    step: int  # environment steps
    ret: float | None  # mean return of the last episodes; None: none has finished
    evaluated: float | None  # mean return of the last evaluation; None: there was none
    sps: float | None  # steps per second, see Clock
    compile_seconds: float | None  # set-up and compilation, see Clock
    left: float  # seconds
    members: int = 1  # runs that train together: the returns are means over them, and sps is that of all


def duration(seconds: float) -> str:
    """Write a time as `45 s`, `3 min 20 s` or `2 h 05 min`."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole // 60 % 60:02d} min"


class Meter:
    """The progress of one run on a console.

    Args:
        title: What is trained.
        num_iterations: Iterations of the whole run.
        console: Where to write; None: standard output.
    """

    def __init__(self, title: str, num_iterations: int, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._title, self._num_iterations, self._reason = title, num_iterations, ""
        self._shown = time.perf_counter()
        self._waiting: Progress | None = None
        self._bar: rich_progress.Progress | None = None
        if self._console.is_terminal:
            columns = (rich_progress.TextColumn("{task.description}", markup=False), rich_progress.BarColumn(),
                       rich_progress.TextColumn("{task.fields[numbers]}", markup=False))
            self._bar = rich_progress.Progress(*columns, console=self._console, auto_refresh=False)
            self._task = self._bar.add_task(printable(title), total=num_iterations, numbers="starting")
            self._bar.start()
        self._every = REFRESH_SECONDS if self._bar else LINE_SECONDS

    def update(self, progress: Progress) -> None:
        """Show the progress if the last one was shown long enough ago; otherwise this costs nothing."""
        now = time.perf_counter()
        self._waiting = progress
        if now - self._shown >= self._every:
            self._shown = now
            self._show(progress)

    def end_early(self, reason: str) -> None:
        """Let the next line be the last one: it has the reason instead of the time left."""
        self._reason = printable(" ".join(reason.split()))

    def close(self) -> None:
        """Show the last state and restore the terminal."""
        if self._waiting:
            self._show(self._waiting)
        if self._bar:
            with suppress(OSError):
                self._bar.stop()
            self._bar = None

    def _show(self, progress: Progress) -> None:
        self._waiting = None
        numbers = self._numbers(progress)
        if self._bar:
            self._bar.update(self._task, completed=progress.iteration, numbers=numbers)
            with suppress(OSError):  # the terminal is gone: training continues without output
                self._bar.refresh()
            return
        share = 100 * progress.iteration / self._num_iterations
        if not write_line(self._console.file, f"{self._title}  {share:.0f} %  {numbers}"):
            self._every = float("inf")

    def _numbers(self, progress: Progress) -> str:
        done = progress.iteration == self._num_iterations
        several = progress.members > 1
        runs, mean, all_runs = (f"{progress.members} runs at ", "mean ", " of all") if several else ("", "", "")
        ret = "none yet" if progress.ret is None else return_text(progress.ret)
        parts = [f"{runs}step {progress.step:,}", f"{mean}return {ret}"]
        if progress.evaluated is not None:
            parts.append(f"{mean}eval {return_text(progress.evaluated)}")
        if progress.sps is not None:
            parts.append(f"SPS{all_runs} {progress.sps:,.0f}")
        if done and progress.compile_seconds is not None:
            parts.append(f"set-up {duration(progress.compile_seconds)}")
        end = f"ended: {self._reason}" if self._reason else f"{duration(progress.left)} left"
        return "  ".join([*parts, "done" if done else end])
