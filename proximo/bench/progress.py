"""What a person sees while a benchmark plays: a live table on a terminal, one line per event elsewhere."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from proximo.bench.jobs import Job

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from proximo.bench.process import RunningJob
    from proximo.bench.runner import BenchState


class BenchView:
    """with BenchView(place, state) as view: view.refresh() often, view.tell(sentence) at events."""

    def __init__(self, place: Path, state: "BenchState") -> None:
        self.place, self.state = place, state
        self.told, self.workers = 0.0, 1
        self.live: Live | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live
            self.live = Live(self._table(), console=Console(stderr=True), refresh_per_second=2)
            self.live.__enter__()
        self._line(self._counts())
        return self

    def __exit__(self, *fault: Any) -> None:
        if self.live:
            self.live.update(self._counts())
            self.live.__exit__(*fault)

    def refresh(self) -> None:
        """Called a few times a second; draws at most twice a second."""
        now = time.monotonic()
        self.workers = max(self.workers, len(self.state.running))
        if self.live and now - self.told > 0.5:
            self.told = now
            self.live.update(self._table())

    def tell(self, sentence: str) -> None:
        """An event: a run that finished or failed."""
        self._line(f"{sentence}; {self._counts()}")

    def _line(self, text: str) -> None:
        if not self.live:
            print(f"proximo: {text}", file=sys.stderr, flush=True)

    def _counts(self) -> str:
        state = self.state
        left = self.seconds_left()
        return (f"{len(state.done)} done, {len(state.running)} running, {len(state.waiting)} waiting, "
                f"{len(state.failed)} failed{f', about {duration_text(left)} left' if left is not None else ''}")

    def seconds_left(self) -> float | None:
        """From the speed of the same environment and variant, or of all that runs; None before anything is known."""
        speeds: dict[tuple[str, str], float] = {}
        left: list[tuple[Job, float]] = [(job, job.steps) for job in self.state.waiting]
        for running in self.state.running:
            step, sps = progress(self.place / running.job.folder)
            left.append((running.job, max(0, running.job.steps - step)))
            if sps:
                speeds[running.job.env_id, running.job.label] = sps
        for job in self.state.done:
            place = job.env_id, job.label
            if place not in speeds and (sps := progress(self.place / job.folder)[1]):
                speeds[place] = sps
        if not speeds or not left:
            return None
        usual = sum(speeds.values()) / len(speeds)
        return sum(steps / speeds.get((job.env_id, job.label), usual) for job, steps in left) / max(1, self.workers)

    def _table(self) -> "Table":
        from rich.table import Table
        table = Table(title=self._counts(), title_justify="left", expand=False)
        for name in ("environment", "run", "seed", "step", "of", "steps/s", "left"):
            table.add_column(name, justify="left" if name in ("environment", "run") else "right")
        for running in self.state.running:
            table.add_row(*self._cells(running))
        for job, _ in self.state.failed[-5:]:
            table.add_row(job.env_id, job.label, str(job.seed), "failed", "", "", "", style="red")
        return table

    def _cells(self, running: "RunningJob") -> list[str]:
        job = running.job
        if running.stage == "eval":
            return [job.env_id, job.label, str(job.seed), "evaluates", "", "", ""]
        step, sps = progress(self.place / job.folder)
        left = duration_text((job.steps - step) / sps) if sps else ""
        return [job.env_id, job.label, str(job.seed), f"{step:,}", f"{job.steps:,}", f"{sps:,.0f}" if sps else "", left]


def progress(run_dir: Path) -> tuple[int, float]:
    """(steps played, steps a second) from the last line of metrics.csv; zeros before the first."""
    path = run_dir / "metrics.csv"
    try:
        with path.open("rb") as file:
            names = file.readline().decode().strip().split(",")
            file.seek(max(file.tell(), path.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return 0, 0.0
    for line in reversed(lines):
        values = dict(zip(names, line.split(","), strict=False))
        try:
            step, seconds = int(float(values["global_step"])), float(values["seconds"])
        except (KeyError, ValueError):
            continue
        return step, step / seconds if seconds else 0.0
    return 0, 0.0


def duration_text(seconds: float) -> str:
    """3725 -> 1h02; 125 -> 2m05; 9 -> 9s."""
    seconds = int(seconds)
    if seconds >= 3600:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02}"
    return f"{seconds // 60}m{seconds % 60:02}" if seconds >= 60 else f"{seconds}s"
