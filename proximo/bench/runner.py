"""proximo bench: train every run of a benchmark file in its own process; the same command continues after a stop."""

import os
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from proximo.bench.files import lock_folder, write_record
from proximo.bench.jobs import jobs_of
from proximo.bench.process import COMMAND, Outcome, RunningJob, close_job, is_finished, log_path, start_job, stop_jobs
from proximo.bench.progress import BenchState, BenchView
from proximo.bench.sets import load_set, read_seeds
from proximo.bench.statistics import missing_packages
from proximo.bench.text import count_text
from proximo.errors import UsageError, notify, warn
from proximo.runs.command_line import command_line
from proximo.runs.interrupt import interrupt_on_sigterm


def bench(file: str | Path, seeds: int | Sequence[int] | None = None, workers: int = 1, out: str | Path = "",
          ablate: Sequence[str] = (), overrides: Mapping[str, object] | None = None,
          command: Sequence[str] = COMMAND) -> int:
    """Train every run of a benchmark file that is not yet finished.

    Runs are in OUT/ENV/LABEL/SEED; SEED.log and SEED.job.json are beside them.

    Args:
        file: The benchmark file.
        seeds: How many seeds, or which; None: those of the file.
        workers: How many runs are trained at the same time.
        out: The folder of the runs; empty: runs/bench/NAME.
        ablate: Implementation details to change, one set of runs each.
        overrides: Settings of every run.
        command: The words that start Proximo.

    Returns:
        The exit code. 0: all runs have finished; 1: some have failed; 130: interrupted.

    Raises:
        UsageError: If the file or an argument is wrong, or if another benchmark is running in the folder.
    """
    problems: list[str] = []
    bench_set = load_set(file)
    chosen = read_seeds(seeds, problems) if seeds is not None else None
    if workers < 1:
        problems.append(f"workers={workers} is not at least 1")
    if problems:
        raise UsageError("\n".join(problems))
    jobs, notes = jobs_of(bench_set, chosen, ablate, overrides)
    if missing := missing_packages():
        warn(f"`proximo report` and `proximo compare` will need {' and '.join(missing)} for these runs: "
             'pip install "proximo[bench]"')
    for note in notes:
        notify(note)
    folder = Path(out or Path("runs") / "bench" / bench_set.name)
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder), interrupt_on_sigterm():
        write_record(folder / "bench.json", {"title": bench_set.title, "file": str(file), "command": command_line(),
                                             "machine": describe_machine(), "workers": workers})
        state = BenchState()
        for job in jobs:
            (state.done if is_finished(folder, job) else state.waiting).append(job)
        return _run_all(folder, state, workers, tuple(command))


def describe_machine() -> dict[str, str]:
    """Return the processor, the number of cores, the system and the version of Python."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {"cpu": model, "cores": str(os.cpu_count()), "system": platform.platform(),
            "python": platform.python_version()}


def _run_all(folder: Path, state: BenchState, workers: int, command: tuple[str, ...]) -> int:
    try:
        with BenchView(folder, state) as view:
            while state.waiting or state.running:
                while state.waiting and len(state.running) < workers:
                    state.running.append(start_job(folder, state.waiting.pop(0), workers, command))
                for running in [one for one in state.running if one.process.poll() is not None]:
                    state.running.remove(running)
                    if _close(folder, state, running, view) == "trained":
                        state.running.append(start_job(folder, running.job, workers, command))  # its evaluation
                view.refresh()
                time.sleep(0.2)
    except KeyboardInterrupt:
        stop_jobs(state.running)
        notify(f"stopped after {count_text(len(state.done), 'finished run')}. The same command continues.")
        return 130
    for job, lines in state.failed:
        notify(f"failed: {job.folder} ({log_path(folder, job)})\n{lines}")
    notify(f"{len(state.done)} runs finished, {len(state.failed)} failed. For tables and figures: "
           f"proximo report {folder}")
    return 1 if state.failed else 0


def _close(folder: Path, state: BenchState, running: RunningJob, view: BenchView) -> Outcome:
    outcome, lines = close_job(folder, running)
    if outcome == "finished":
        state.done.append(running.job)
        view.report(f"finished {running.job.folder}")
    elif outcome == "failed":
        state.failed.append((running.job, lines))
        view.report(f"failed {running.job.folder} (exit code {running.process.returncode})")
    return outcome
