"""One run of a benchmark as a process: start, resume, evaluate and stop it, and record what happened."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from proximo.bench.files import read_record, write_record
from proximo.bench.jobs import Job, flags_of
from proximo.errors import notify
from proximo.runs.lock import locked

COMMAND = (sys.executable, "-m", "proximo")
EVALUATION_EPISODES = 100
LAST_LINES = 12  # of a log, shown when a run fails
PATIENCE = 30  # seconds in which a stopped run can save its last checkpoint

Stage = Literal["train", "eval"]
Outcome = Literal["finished", "trained", "failed"]


@dataclass
class RunningJob:
    """A job whose process has been started."""

    job: Job
    process: subprocess.Popen[bytes]
    stage: Stage


def is_finished(folder: Path, job: Job) -> bool:
    """Return whether this very job has its summary, and its evaluation if it should have one.

    Args:
        folder: The folder of the benchmark.
        job: The job.
    """
    run_dir = folder / job.folder
    return _read_job(folder, job).get("key") == job.key and "steps" in read_record(run_dir / "summary.json") and (
        not job.evaluate or "episodes" in read_record(run_dir / "eval.json"))


def log_path(folder: Path, job: Job) -> Path:
    """Return the file with what the processes of a run printed."""
    return folder / job.folder.with_name(f"{job.seed}.log")


def record_path(folder: Path, job: Job) -> Path:
    """Return the file with what the benchmark knows of a run."""
    return folder / job.folder.with_name(f"{job.seed}.job.json")


def start_job(folder: Path, job: Job, workers: int, command: Sequence[str]) -> RunningJob:
    """Start the next process of a job: train, resume or evaluate, whichever the run folder requires.

    A run with other settings in the same folder is moved aside.

    Args:
        folder: The folder of the benchmark.
        job: The job.
        workers: How many runs share the cores; with more than one, numerical libraries use one thread each.
        command: The words that start Proximo.

    Raises:
        UsageError: Another process writes to the folder of the run.
    """
    run_dir = folder / job.folder
    record = _read_job(folder, job)
    _stop_orphan(record, run_dir)
    with locked(run_dir):  # refused while a process that nobody knows of still writes there
        pass
    if record.get("key") != job.key and run_dir.exists():
        aside = run_dir.with_name(f"{run_dir.name}.{record.get('key', 'unknown')}.old")
        shutil.rmtree(aside, ignore_errors=True)
        run_dir.rename(aside)
        notify(f"{job.folder} has results of other settings. They are kept in {aside.name}.")
    words, stage = _words(run_dir, job, command)
    log_path(folder, job).parent.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ)
    environment.setdefault("WANDB_RUN_GROUP", f"{job.env_id} {job.label}")
    if workers > 1:
        environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with log_path(folder, job).open("ab") as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                   env=environment, start_new_session=True)
    write_record(record_path(folder, job), asdict(job) | {
        "key": job.key, "status": "running", "pid": process.pid, "command": words,
        "began": datetime.now(UTC).isoformat(timespec="seconds")})
    return RunningJob(job=job, process=process, stage=stage)


def stop_jobs(running: Sequence[RunningJob]) -> None:
    """Ask every process to end, so that it saves its last checkpoint, and kill it after half a minute."""
    for one in running:
        if one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    for one in running:
        try:
            one.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()


def close_job(folder: Path, running: RunningJob) -> tuple[Outcome, str]:
    """Record what became of a process that has ended.

    Returns:
        "finished", "trained" (its evaluation is still to come) or "failed", and for a failure the end of its log.
    """
    job, code = running.job, running.process.returncode
    if code == 0 and is_finished(folder, job):
        _update_record(folder, job, status="finished")
        return "finished", ""
    if code == 0 and running.stage == "train" and "steps" in read_record(folder / job.folder / "summary.json"):
        return "trained", ""
    lines = last_lines(log_path(folder, job)) or "it printed nothing"
    if code == 0:
        lines += "\nit ended without an error, but wrote no complete summary.json or eval.json"
    _update_record(folder, job, status="failed", exit_code=code, lines=lines)
    return "failed", lines


def last_lines(path: Path, count: int = LAST_LINES) -> str:
    """Return the last lines of a log, or an empty string if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 8192))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-count:])
    except OSError:
        return ""


def _words(run_dir: Path, job: Job, command: Sequence[str]) -> tuple[list[str], Stage]:
    if "steps" in read_record(run_dir / "summary.json"):
        return [*command, "eval", str(run_dir), "--episodes", str(EVALUATION_EPISODES), "--deterministic",
                "--json", str(run_dir / "eval.json"), *job.import_flags()], "eval"
    starter = list(command)
    if job.processes > 1:
        starter = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                   f"--nproc-per-node={job.processes}", *command[1:]]
    checkpoints = run_dir / "checkpoints"
    if checkpoints.is_dir() and any(checkpoints.iterdir()):
        entity = {name: job.overrides[name] for name in ("wandb_entity",) if name in job.overrides}
        return [*starter, "resume", str(run_dir), *flags_of(entity), *job.import_flags()], "train"
    shutil.rmtree(run_dir, ignore_errors=True)  # a run that was stopped before its first checkpoint
    quiet = [] if job.overrides.get("track") or job.overrides.get("logger") else ["--logger", "none"]
    return [*starter, "train", job.variant, "--env-id", job.env_id, "--seed", str(job.seed), "--total-timesteps",
            str(job.steps), "--run-dir", str(run_dir), *quiet, *job.flags()], "train"


def _stop_orphan(record: dict[str, Any], run_dir: Path) -> None:
    """Stop a process that a killed benchmark has left: two processes must never write to one folder."""
    pid = record.get("pid")
    if record.get("status") != "running" or not isinstance(pid, int):
        return
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return
    if str(run_dir).encode() not in words:
        return
    notify(f"process {pid} of a benchmark that was killed still writes to {run_dir}. It is stopped first.")
    os.killpg(pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    if Path(f"/proc/{pid}").exists():
        os.killpg(pid, signal.SIGKILL)


def _read_job(folder: Path, job: Job) -> dict[str, Any]:
    return read_record(record_path(folder, job))


def _update_record(folder: Path, job: Job, **news: object) -> None:
    write_record(record_path(folder, job), _read_job(folder, job) | news)
