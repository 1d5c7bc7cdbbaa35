"""One run of a benchmark as tasks of a place: train or evaluate it, and record the result next to its folder."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

from proximo.bench.files import last_lines, read_record, write_record
from proximo.bench.jobs import Job
from proximo.bench.names import ASIDE, file_name
from proximo.bench.places.child import TORCHRUN
from proximo.bench.records import EvaluationFile, JobRecord, Summary
from proximo.bench.task import (
    PATIENCE,
    STOPPED,
    Ended,
    Handle,
    Place,
    Task,
    Where,
    end_text,
    stop_all,
    stopped_on_fault,
)
from proximo.envs.workers.search_path import path_variables
from proximo.errors import FilesError, PeerError, UsageError, notify
from proximo.runs.folder.checkpoint import checkpoints
from proximo.runs.folder.lock import locked

COMMAND = (sys.executable, "-m", "proximo")
EVALUATION_EPISODES = 100
TRIES = 3  # attempts in a row that end without a new checkpoint

Stage = Literal["train", "eval"]
Outcome = Literal["finished", "trained", "lost", "failed"]


class Work(NamedTuple):
    """What all jobs of a benchmark share."""

    folder: Path
    place: Place
    where: Where
    command: tuple[str, ...]
    """the command line that starts Proximo"""


@dataclass
class RunningJob:
    """A job whose next task was handed to a place."""

    job: Job
    handle: Handle
    stage: Stage


def is_finished(folder: Path, job: Job) -> bool:
    """Return whether this job, with these settings, has its summary, and its evaluation if it should have one.

    Args:
        folder: The folder of the benchmark.
        job: The job.
    """
    run_dir = folder / job.folder
    trained = read_job(folder, job).get("key") == job.key and _has_summary(run_dir)
    if not trained or not job.evaluate:
        return trained
    evaluation = read_record(run_dir / "eval.json", EvaluationFile)
    return "episodes" in evaluation and evaluation.get("deterministic", True) == job.deterministic


def record_if_finished(folder: Path, job: Job) -> bool:
    """Return whether a job has finished, and record it: it may have finished while no command was waiting."""
    finished = is_finished(folder, job)
    if finished and read_job(folder, job).get("status") != "finished":
        _update_record(folder, job, status="finished", lost={})
    return finished


def log_path(folder: Path, job: Job) -> Path:
    """Return the file with what the processes of a run printed."""
    return folder / job.folder.with_name(f"{job.seed}.log")


def record_path(folder: Path, job: Job) -> Path:
    """Return the file with the benchmark's record of a run."""
    return folder / job.folder.with_name(f"{job.seed}.job.json")


def read_job(folder: Path, job: Job) -> dict[str, Any]:
    """Return the benchmark's record of a run; {} before it was started."""
    return read_record(record_path(folder, job), JobRecord)


def start_jobs(work: Work, jobs: Sequence[Job]) -> list[RunningJob]:
    """Hand over the next task of each job: train or evaluate, whichever its folder requires.

    The words that train are the same each time: with --resume auto they start or continue the run. A run with other
    settings in the same folder is moved aside. A task that a benchmark which was killed has left in a place is taken
    over, or stopped if it has other settings.

    Raises:
        UsageError: Another process writes to the folder of a run, or the place does not take the tasks.
        FilesError: A record cannot be written; the new tasks are stopped.
    """
    taken, others = list[RunningJob](), list[RunningJob]()
    for job in jobs:
        record = read_job(work.folder, job)
        handle = work.place.recover(str(record.get("task", ""))) if record.get("status") == "running" else None
        if handle is not None:
            stage: Stage = "eval" if record.get("stage") == "eval" else "train"
            (taken if record.get("key") == job.key else others).append(RunningJob(job=job, handle=handle, stage=stage))
    _stop_tasks(others)
    known = [one.job for one in taken]
    return taken + _submit(work, [job for job in jobs if job not in known])


def close_job(folder: Path, running: RunningJob, ended: Ended) -> tuple[Outcome, str]:
    """Record the result of a task that has ended.

    Returns:
        "finished"; "trained": its evaluation is still to come; "lost": it was killed or lost and is to be started
        again; or "failed". For the last two a sentence, for a failure with the end of the log.
    """
    job = running.job
    if ended.code == 0 and record_if_finished(folder, job):
        return "finished", ""
    if ended.code == 0 and running.stage == "train" and _has_summary(folder / job.folder):
        _update_record(folder, job, status="trained", lost={})
        return "trained", ""
    lines = last_lines(log_path(folder, job), folder) or "it printed nothing"
    if ended.code == 0:
        lines += "\nit ended without an error, but wrote no complete summary.json or eval.json"
    elif ended.code is None or ended.code < 0 or ended.code in (*STOPPED, PeerError.exit_code):
        times = _count_loss(folder, job)
        if times < TRIES:
            return "lost", end_text(ended)
        lines += f"\n{end_text(ended)}, {times} times without a new checkpoint"
    elif ended.code > PeerError.exit_code:  # no error that Proximo has named
        lines += f"\nthe process ended with {end_text(ended)}"
    _update_record(folder, job, status="failed", exit_code=ended.code, lines=lines, lost={})
    return "failed", lines


def note_stopped(folder: Path, running: Sequence[RunningJob]) -> None:
    """Record that the tasks of jobs have ended, so that the status of the benchmark does not wait for them."""
    for one in running:
        if one.handle.poll() is not None:
            with suppress(FilesError):  # a full disk may be why the benchmark ends
                _update_record(folder, one.job, task="")


def _stop_tasks(running: Sequence[RunningJob]) -> None:
    """Stop tasks that would write to folders in which other settings are to be trained."""
    for one in running:
        notify(f"{one.handle.name} trains {one.job.folder} with other settings. It is stopped.")
    stop_all([one.handle for one in running], PATIENCE)
    for one in running:
        if one.handle.poll() is None:
            raise UsageError(f"{one.handle.name} has not ended. It trains {one.job.folder} with other settings. Wait "
                             "until it has, or cancel it, then start the same command again.")


def _submit(work: Work, jobs: Sequence[Job]) -> list[RunningJob]:
    """Hand over the next task of each job. Its record exists before, so that no fault leaves a run without one."""
    stages, tasks = list[Stage](), list[Task]()
    for job in jobs:
        lost = _prepare(work.folder, job).get("lost", {})
        stages.append("eval" if _has_summary(work.folder / job.folder) else "train")
        tasks.append(_task(work, job, stages[-1]))
        write_record(record_path(work.folder, job), asdict(job) | {
            "key": job.key, "status": "waiting", "stage": stages[-1], "place": work.where.on, "task": "",
            "command": tasks[-1].words, "lost": lost, "began": datetime.now(UTC).isoformat(timespec="seconds")})
    handles = work.place.submit(tasks)
    with stopped_on_fault(handles):
        for job, handle in zip(jobs, handles):
            _update_record(work.folder, job, status="running", task=handle.name)
    return [RunningJob(job=job, handle=handle, stage=stage) for job, handle, stage in zip(jobs, handles, stages)]


def _prepare(folder: Path, job: Job) -> dict[str, Any]:
    """Move a run with other settings aside, and return the record of the job, {} if it is one of other settings."""
    run_dir, record = folder / job.folder, read_job(folder, job)
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    if record.get("key") == job.key:
        return record
    if not run_dir.exists():
        return {}
    with locked(run_dir):
        aside = _free_name(run_dir, file_name(record.get("key", "unknown")))
        run_dir.rename(aside)
    whose = "of other settings" if record else f"whose settings {record_path(folder, job).name} does not say"
    notify(f"{job.folder} has results {whose}. They are kept in {aside.name}.")
    return {}


def _free_name(run_dir: Path, key: str) -> Path:
    """Return a name beside a run for its earlier results, which replaces none that are kept."""
    names = (run_dir.with_name(f"{run_dir.name}.{key}{f'-{number}' * (number > 1)}{ASIDE}")
             for number in count(1))
    return next(path for path in names if not path.exists())


def _has_summary(run_dir: Path) -> bool:
    return "steps" in read_record(run_dir / "summary.json", Summary)


def _task(work: Work, job: Job, stage: Stage) -> Task:
    run_dir = (work.folder / job.folder).absolute()
    env = {} if "WANDB_RUN_GROUP" in os.environ else {"WANDB_RUN_GROUP": f"{job.env_id} {job.label}"}
    env |= work.where.variables(job.processes) | path_variables()
    words = _eval_words(run_dir, job, work.command) if stage == "eval" else _train_words(run_dir, job, work)
    return Task(words=tuple(words), env=env, cwd=str(Path.cwd()), run_dir=str(run_dir),
                log=str(log_path(work.folder.absolute(), job)), processes=job.processes)


def _eval_words(run_dir: Path, job: Job, command: Sequence[str]) -> list[str]:
    how = "--deterministic" if job.deterministic else "--no-deterministic"
    return [*command, "eval", str(run_dir), "--episodes", str(EVALUATION_EPISODES), how,
            "--json", str(run_dir / "eval.json"), *job.import_flags()]


def _train_words(run_dir: Path, job: Job, work: Work) -> list[str]:
    starter = list(work.command)
    if job.processes > 1:
        starter = [sys.executable, "-m", TORCHRUN, "--standalone", f"--nproc-per-node={job.processes}", *starter[1:]]
    quiet = [] if job.overrides.get("track") or job.overrides.get("logger") else ["--logger", "none"]
    threads = ["--threads", str(work.where.threads)] if work.where.threads and "threads" not in job.overrides else []
    return [*starter, "train", job.variant, "--env-id", job.env_id, "--seed", str(job.seed), "--total-timesteps",
            str(job.steps), "--run-dir", str(run_dir), "--resume", "auto", *quiet, *threads, *job.flags()]


def _count_loss(folder: Path, job: Job) -> int:
    """Return how many attempts in a row have ended without a new checkpoint, this one included."""
    before = read_job(folder, job).get("lost") or {}
    newest = max([path.name for path in checkpoints(folder / job.folder)], default="")
    times = before.get("times", 0) + 1 if before.get("checkpoint") == newest else 1
    _update_record(folder, job, status="lost", lost={"checkpoint": newest, "times": times})
    return times


def _update_record(folder: Path, job: Job, **news: object) -> None:
    write_record(record_path(folder, job), read_job(folder, job) | news)
