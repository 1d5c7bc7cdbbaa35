"""proximo bench: plays every run of a benchmark file, each in a process of its own, and goes on where it stopped."""

import os
import platform
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from proximo.bench.jobs import Job, jobs_of
from proximo.bench.process import (
    COMMAND,
    RunningJob,
    close_job,
    is_finished,
    log_path,
    start_job,
    stop_jobs,
    write_record,
)
from proximo.bench.progress import BenchView
from proximo.bench.sets import load_set, seeds_of
from proximo.errors import UsageError, notify


@dataclass
class BenchState:
    """What is left, under way and over."""

    waiting: list[Job]
    running: list[RunningJob]
    done: list[Job]
    failed: list[tuple[Job, str]]


def bench(file: str | Path, seeds: int | Sequence[int] | None = None, workers: int = 1, out: str | Path = "",
          ablate: Sequence[str] = (), overrides: Mapping[str, object] | None = None,
          command: Sequence[str] = COMMAND) -> int:
    """Plays what is not yet finished of a file; 0: all finished, 1: some failed, 130: stopped and to be gone on with.

    out defaults to runs/bench/NAME; runs lie in OUT/ENV/VARIANT-OVERRIDES/SEED, with SEED.log and SEED.job.json
    beside each. overrides hold for every run. Raises UsageError for a file or flag that cannot work.
    """
    wrong: list[str] = []
    bench_set = load_set(file)
    chosen = seeds_of(seeds, wrong) if seeds is not None else bench_set.seeds
    if workers < 1:
        wrong.append(f"workers={workers} must be at least 1")
    if wrong:
        raise UsageError("\n".join(wrong))
    jobs, notes = jobs_of(bench_set, chosen, ablate, overrides)
    for note in notes:
        notify(note)
    place = Path(out or Path("runs") / "bench" / bench_set.name)
    place.mkdir(parents=True, exist_ok=True)
    with bench_lock(place), _terminable():
        write_record(place / "bench.json", {"title": bench_set.title, "file": str(file), "command": _command_line(),
                                          "machine": machine(), "workers": workers})
        state = BenchState([], [], [], [])
        for job in jobs:
            (state.done if is_finished(place, job) else state.waiting).append(job)
        return _play(place, state, workers, tuple(command))


def machine() -> dict[str, str]:
    """What the runs are played on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {"cpu": model, "cores": str(os.cpu_count()), "system": platform.platform(),
            "python": platform.python_version()}


def _play(place: Path, state: BenchState, workers: int, command: tuple[str, ...]) -> int:
    try:
        with BenchView(place, state) as view:
            while state.waiting or state.running:
                while state.waiting and len(state.running) < workers:
                    state.running.append(start_job(place, state.waiting.pop(0), workers, command))
                for running in list(state.running):
                    _look_after(place, state, running, workers, command, view)
                view.refresh()
                time.sleep(0.2)
    except KeyboardInterrupt:
        stop_jobs(state.running)
        notify(f"stopped with {len(state.done)} runs finished; the same command goes on from here")
        return 130
    for job, lines in state.failed:
        notify(f"failed: {job.folder} ({log_path(place, job)})\n{lines}")
    notify(f"{len(state.done)} runs finished, {len(state.failed)} failed; look at them with: proximo report {place}")
    return 1 if state.failed else 0


def _look_after(place: Path, state: BenchState, running: RunningJob, workers: int, command: tuple[str, ...],
                view: BenchView) -> None:
    if running.process.poll() is None:
        return
    state.running.remove(running)
    job = running.job
    outcome, lines = close_job(place, running)
    if outcome == "finished":
        state.done.append(job)
        view.tell(f"finished {job.folder}")
    elif outcome == "trained":
        state.running.append(start_job(place, job, workers, command))
    else:
        state.failed.append((job, lines))
        view.tell(f"failed {job.folder} (exit code {running.process.returncode})")


@contextmanager
def bench_lock(place: Path) -> Iterator[None]:
    """Two benchmarks in one folder would play every run twice."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with (place / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            raise UsageError(f"another benchmark is playing in {place}; wait for it or name another --out") from fault
        yield


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM stops a benchmark as Ctrl-C does."""
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt
    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread: whoever runs us there looks after signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _command_line() -> str:
    return " ".join(["proximo", *sys.argv[1:]])
