"""proximo bench: train every run of a benchmark file in its own process; the same command continues after a stop."""

import platform
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from proximo.bench.extras import missing_of_extras
from proximo.bench.files import read_record, write_record
from proximo.bench.jobs import Job, jobs_of
from proximo.bench.places.choice import open_place, where_problems
from proximo.bench.process import (
    COMMAND,
    Outcome,
    RunningJob,
    Work,
    close_job,
    log_path,
    note_stopped,
    record_if_finished,
    start_jobs,
)
from proximo.bench.progress import BenchState, BenchView
from proximo.bench.records import BenchRecord, JobRecord
from proximo.bench.sets import BenchSet, load_set, read_seeds
from proximo.bench.statistics import missing_packages
from proximo.bench.task import HERE, PATIENCE, Ended, Place, Where, end_text, stop_all
from proximo.bench.text import count_text
from proximo.envs.machine.cores import cpu_model, usable_cores
from proximo.errors import UsageError, notify, warn
from proximo.runs.command_line import command_line, pasted
from proximo.runs.folder.lock import locked
from proximo.runs.interrupts.sigterm import interrupt_on_sigterm, interrupted_code


def bench(file: str | Path, seeds: int | Sequence[int] | None = None, where: Where = HERE, out: str | Path = "",
          ablate: Sequence[str] = (), overrides: Mapping[str, object] | None = None,
          command: Sequence[str] = COMMAND) -> int:
    """Train every run of a benchmark file that is not yet finished.

    Runs are in OUT/ENV/LABEL/SEED; SEED.log and SEED.job.json are next to them. A run that is killed or lost is started
    again and continues, unless it has ended three times without a new checkpoint.

    Args:
        file: The benchmark file.
        seeds: How many seeds, or which; None: those of the file.
        where: Where runs are trained, and how many at the same time.
        out: The folder of the runs; empty: runs/bench/NAME. On a cluster all machines must see it under this name.
        ablate: Implementation details to change, one set of runs each.
        overrides: Settings of every run.
        command: The words that start Proximo.

    Returns:
        The exit code. 0: all runs have finished; 1: some have failed; 130 or 143: interrupted.

    Raises:
        UsageError: The file or an argument is wrong, or another benchmark is running in the folder.
    """
    problems: list[str] = []
    bench_set = load_set(file)
    chosen = read_seeds(seeds, problems) if seeds is not None else None
    problems += where_problems(where)
    if problems:
        raise UsageError("\n".join(problems))
    jobs, notes = jobs_of(bench_set, chosen, ablate, overrides)
    if missing := missing_packages():
        warn(f"`proximo report` and `proximo compare` will need {' and '.join(missing)} for these runs: "
             'pip install "proximo[bench]"')
    if where.on == "local" and (missing := missing_of_extras(bench_set.extra.split(","))):
        warn(f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not installed: runs that need "
             f"{'them' if len(missing) > 1 else 'it'} will fail. pip install \"proximo[{bench_set.extra}]\"")
    for note in notes:
        notify(note)
    folder = Path(out or Path("runs") / "bench" / bench_set.name)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder), interrupt_on_sigterm():
        before = read_record(folder / "bench.json", BenchRecord).get("jobs", [])
        _write_bench(folder, bench_set, str(file), jobs, where)
        return _run_missing(folder, jobs, where, tuple(command), before)


def describe_machine() -> dict[str, str]:
    """Return the processor, the number of cores that may be used, the system and the version of Python."""
    return {"cpu": cpu_model(), "cores": str(usable_cores()), "system": platform.platform(),
            "python": platform.python_version()}


def _write_bench(folder: Path, bench_set: BenchSet, file: str, jobs: Sequence[Job], where: Where) -> None:
    write_record(folder / "bench.json", {
        "title": bench_set.title, "file": file, "command": command_line(), "machine": describe_machine(),
        "workers": where.workers or 1, "on": where.on, "jobs": [str(job.folder) for job in jobs]})


def _run_missing(folder: Path, jobs: Sequence[Job], where: Where, command: tuple[str, ...],
                 before: Sequence[str]) -> int:
    state = BenchState()
    for job in jobs:
        (state.done if record_if_finished(folder, job) else state.waiting).append(job)
    if not state.waiting:
        return _say_result(folder, state)
    place = open_place(where, folder)
    try:
        _name_left(folder, {*before} - {str(job.folder) for job in jobs}, place)
        code = run_jobs(Work(folder=folder, place=place, where=where, command=command), state)
        return code or _say_result(folder, state)
    finally:
        place.close()


def _name_left(folder: Path, names: Collection[str], place: Place) -> None:
    """Say which tasks of a benchmark that was killed are still there, whose runs this command does not train."""
    for name in sorted(names):
        record = read_record(folder / f"{name}.job.json", JobRecord)
        if record.get("status") == "running" and place.recover(task := record.get("task", "")) is not None:
            notify(f"{task} still trains {name}, which this command does not train. It is not stopped, and nothing "
                   "waits for it.")


def run_jobs(work: Work, state: BenchState) -> int:
    """Run the waiting jobs of `state` until each has finished or failed; return 0, or an exit code if interrupted.

    Args:
        work: What they share.
        state: The jobs by their status; it is updated.
    """
    try:
        with BenchView(work.folder, state, work.where.slots) as view:
            while state.waiting or state.running:
                free = work.where.slots - len(state.running)
                batch = state.waiting[:int(min(free, len(state.waiting)))]
                state.running += start_jobs(work, batch) if batch else []
                del state.waiting[:len(batch)]
                for running in list(state.running):
                    if (ended := running.handle.poll()) is not None:
                        state.running.remove(running)
                        if _close(work.folder, state, running, ended, view) in ("trained", "lost"):
                            state.waiting.insert(0, running.job)  # its evaluation, or the same command again
                view.refresh()
                time.sleep(0.2)
    except BaseException as error:
        stop_all([running.handle for running in state.running], PATIENCE)
        note_stopped(work.folder, state.running)
        if not isinstance(error, KeyboardInterrupt):
            raise
        finished = [running.job for running in state.running if record_if_finished(work.folder, running.job)]
        state.done += finished
        left = len(state.running) - len(finished)
        also = f" and ended {count_text(left, 'run')} in progress" * (left > 0)
        notify(f"stopped after {count_text(len(state.done), 'finished run')}{also}. The same command continues.")
        return interrupted_code(error)
    return 0


def _say_result(folder: Path, state: BenchState) -> int:
    for job, lines in state.failed:
        notify(f"failed: {job.folder} ({log_path(folder, job)})\n{lines}")
    notify(f"{count_text(len(state.done), 'run')} finished, {len(state.failed)} failed. For tables and figures: "
           f"proximo report {pasted(folder)}")
    return 1 if state.failed else 0


def _close(folder: Path, state: BenchState, running: RunningJob, ended: Ended, view: BenchView) -> Outcome:
    outcome, lines = close_job(folder, running, ended)
    if outcome == "finished":
        state.done.append(running.job)
        view.report(f"finished {running.job.folder}")
    elif outcome == "failed":
        state.failed.append((running.job, lines))
        view.report(f"failed {running.job.folder} ({end_text(ended)})")
    elif outcome == "lost":
        view.report(f"again {running.job.folder} ({lines}): it continues from its newest checkpoint, if it has one")
    return outcome
