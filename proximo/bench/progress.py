"""The state of a benchmark, shown while it runs: a live table on a terminal, one line per event elsewhere."""

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from proximo.bench.files import read_record
from proximo.bench.jobs import Job
from proximo.bench.process import RunningJob
from proximo.bench.records import PartialRunFile
from proximo.bench.text import duration_text
from proximo.errors import notify
from proximo.models.curves import MOST
from proximo.runs.folder.files import open_regular
from proximo.runs.folder.lock import holder

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table


@dataclass
class BenchState:
    """The jobs of a benchmark by status."""

    waiting: list[Job] = field(default_factory=list)
    running: list[RunningJob] = field(default_factory=list)
    done: list[Job] = field(default_factory=list)
    failed: list[tuple[Job, str]] = field(default_factory=list)
    """with the end of the log"""


class BenchView:
    """Shows a benchmark while it is entered: call `refresh` often, and `report` at events.

    Args:
        folder: That of the benchmark.
        state: The jobs, which others update.
        slots: How many runs are trained at the same time, if there are so many.
    """

    def __init__(self, folder: Path, state: BenchState, slots: float = 1) -> None:
        self.folder, self.state, self.workers = folder, state, int(min(slots, max(1, len(state.waiting))))
        self._drawn, self._began, self._done_before = 0.0, time.monotonic(), len(state.done)
        self._before = {job.folder: progress(folder / job.folder)[0] for job in state.waiting}  # steps so far
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live
            self._live = Live(self._table(), console=Console(stderr=True), refresh_per_second=2)
            self._live.__enter__()
        self._notify(self._counts())
        return self

    def __exit__(self, *fault: Any) -> None:
        if self._live:
            self._live.update(self._counts())
            self._live.__exit__(*fault)

    def refresh(self) -> None:
        """Draw the table again, at most twice per second."""
        now = time.monotonic()
        self.workers = max(self.workers, len(self.state.running))
        if self._live and now - self._drawn > 0.5:
            self._drawn = now
            self._live.update(self._table())

    def report(self, sentence: str) -> None:
        """Print an event, such as a run that has finished or failed."""
        self._notify(f"{sentence}; {self._counts()}")

    def seconds_left(self) -> float | None:
        """Estimate the remaining time from the speed of the same environment and label, otherwise from the mean speed.

        Runs also start, end and are evaluated: the estimate is larger by the factor by which the steps so far took
        longer than at these speeds.

        Returns:
            Seconds, or None while no speed is known.
        """
        speeds: dict[tuple[str, str], float] = {}
        left: list[tuple[Job, float]] = []
        played: list[tuple[Job, float]] = []  # by this command
        for job in [*self.state.waiting, *(running.job for running in self.state.running)]:
            step, sps = progress(self.folder / job.folder)  # also of a waiting run that has begun
            of = last_step(run_config(self.folder / job.folder), job.steps) if step else job.steps
            left.append((job, max(0, of - step)))
            played.append((job, self._played_now(job, step)))
            if sps:
                speeds[job.env_id, job.label] = sps
        for number, job in enumerate(self.state.done):
            key = job.env_id, job.label
            if key not in speeds and (sps := progress(self.folder / job.folder)[1]):
                speeds[key] = sps
            if number >= self._done_before:
                played.append((job, self._played_now(job, job.steps)))
        if not speeds or not left:
            return None
        mean = sum(speeds.values()) / len(speeds)
        ahead, behind = (sum(steps / speeds.get((job.env_id, job.label), mean) for job, steps in some) /
                         max(1, self.workers) for some in (left, played))
        return ahead * max(1.0, (time.monotonic() - self._began) / behind if behind else 1.0)

    def _played_now(self, job: Job, step: int) -> int:
        """Return the steps that this command has trained of a run, which is now at `step`."""
        return max(0, step - self._before.get(job.folder, 0))  # less at its newest checkpoint

    def _notify(self, text: str) -> None:
        if not self._live:
            notify(text)

    def _counts(self) -> str:
        state, left = self.state, self.seconds_left()
        return (f"{len(state.done)} done, {len(state.running)} running, {len(state.waiting)} waiting, "
                f"{len(state.failed)} failed{f', about {duration_text(left)} left' if left is not None else ''}")

    def _table(self) -> "Table":
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=self._counts(), title_justify="left", expand=False)
        for name in ("environment", "run", "seed", "step", "of", "steps/s", "left", "where"):
            table.add_column(name, justify="left" if name in ("environment", "run", "where") else "right")
        for running in self.state.running:
            table.add_row(*map(escape, self._cells(running)))
        for job, _ in self.state.failed[-5:]:
            table.add_row(escape(job.env_id), escape(job.label), str(job.seed), "failed", "", "", "", "", style="red")
        return table

    def _cells(self, running: RunningJob) -> list[str]:
        job, where = running.job, holder(self.folder / running.job.folder) or running.handle.name
        if running.stage == "eval":
            return [job.env_id, job.label, str(job.seed), "evaluation", "", "", "", running.handle.name]
        step, sps = progress(self.folder / job.folder)
        of = last_step(run_config(self.folder / job.folder), job.steps)
        left = duration_text((of - step) / sps) if sps else ""
        return [job.env_id, job.label, str(job.seed), f"{step:,}", f"{of:,}", f"{sps:,.0f}" if sps else "", left, where]


def run_config(run_dir: Path) -> Mapping[str, Any]:
    """Read the configuration of a run; {} before it has started."""
    return read_record(run_dir / "config.json", PartialRunFile).get("config", {})


def last_step(config: Mapping[str, Any], total_timesteps: int) -> int:
    """Return the environment step after which training ends: that of the last whole iteration."""
    batch = config.get("num_envs", 0) * config.get("num_steps", 0)
    whole = batch and not config.get("iteration_shift")  # otherwise earlier iterations had another size
    return total_timesteps - total_timesteps % batch if whole else total_timesteps


def progress(run_dir: Path) -> tuple[int, float]:
    """Read the last line of metrics.csv.

    Returns:
        Environment steps so far, and steps per second; zeros before the first line.
    """
    try:
        with open_regular(run_dir / "metrics.csv", most=None) as file:
            names = file.readline(1 << 16).decode(errors="replace").strip().split(",")
            file.seek(max(file.tell(), os.fstat(file.fileno()).st_size - (1 << 14)))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return 0, 0.0
    for line in reversed(lines):
        values = dict(zip(names, line.split(","), strict=False))
        try:
            step, seconds = float(values["global_step"]), float(values["seconds"])
        except (KeyError, ValueError):
            continue
        if 0 <= step < MOST and 0 <= seconds < MOST:
            return int(step), step / seconds if seconds else 0.0
    return 0, 0.0
