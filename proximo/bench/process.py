"""One run of a benchmark as a process: started, gone on with, evaluated, stopped, and what is written beside it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from proximo.bench.jobs import Job
from proximo.errors import notify

COMMAND = (sys.executable, "-m", "proximo")
EVALUATION_EPISODES = 100
LAST_LINES = 12
PATIENCE = 30
"""seconds that a stopped run has to keep its last checkpoint"""


@dataclass
class RunningJob:
    """A job under way."""

    job: Job
    process: subprocess.Popen
    stage: str
    """train or eval"""
    began: float


def is_finished(place: Path, job: Job) -> bool:
    """Whether the run of this very job is over: its summary, and its evaluation where one is wanted."""
    run_dir = place / job.folder
    return _record(place, job).get("key") == job.key and "steps" in read_json(run_dir / "summary.json") and (
        not job.evaluate or "episodes" in read_json(run_dir / "eval.json"))


def read_json(path: Path) -> dict:
    """A file's object; {} where there is none or it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def log_path(place: Path, job: Job) -> Path:
    """What the run's process printed."""
    return place / job.folder.with_name(f"{job.seed}.log")


def record_path(place: Path, job: Job) -> Path:
    """What the benchmark knows of the run."""
    return place / job.folder.with_name(f"{job.seed}.job.json")


def last_lines(path: Path, count: int = LAST_LINES) -> str:
    """The end of a log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 8192))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-count:])
    except OSError:
        return ""


def start_job(place: Path, job: Job, workers: int, command: tuple[str, ...]) -> RunningJob:
    """Trains, resumes or evaluates, whichever the run directory asks for."""
    run_dir = place / job.folder
    record = _record(place, job)
    _stop_orphan(record, run_dir)
    if record.get("key") != job.key and run_dir.exists():
        aside = run_dir.with_name(f"{run_dir.name}.{record.get('key', 'unknown')}.old")
        shutil.rmtree(aside, ignore_errors=True)
        run_dir.rename(aside)
        notify(f"{job.folder} was played with other settings; those are kept in {aside.name}")
    words, stage = _words(run_dir, job, command)
    log_path(place, job).parent.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ)
    environment.setdefault("WANDB_RUN_GROUP", f"{job.env_id} {job.label}")
    if workers > 1:
        environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with log_path(place, job).open("ab") as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                   env=environment, start_new_session=True)
    write_record(record_path(place, job), asdict(job) | {
        "key": job.key, "status": "running", "pid": process.pid, "command": words,
        "began": datetime.now(UTC).isoformat(timespec="seconds")})
    return RunningJob(job, process, stage, time.monotonic())


def _words(run_dir: Path, job: Job, command: tuple[str, ...]) -> tuple[list[str], str]:
    if "steps" in read_json(run_dir / "summary.json"):
        return [*command, "eval", str(run_dir), "--episodes", str(EVALUATION_EPISODES), "--deterministic",
                "--json", str(run_dir / "eval.json")], "eval"
    starter = list(command)
    if job.processes > 1:
        starter = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                   f"--nproc-per-node={job.processes}", *command[1:]]
    checkpoints = run_dir / "checkpoints"
    if checkpoints.is_dir() and any(checkpoints.iterdir()):
        return [*starter, "resume", str(run_dir)], "train"
    shutil.rmtree(run_dir, ignore_errors=True)  # a run that broke off before its first checkpoint
    quiet = [] if job.overrides.get("track") or job.overrides.get("logger") else ["--logger", "none"]
    return [*starter, "train", job.variant, "--env-id", job.env_id, "--seed", str(job.seed), "--total-timesteps",
            str(job.steps), "--run-dir", str(run_dir), *quiet, *job.flags()], "train"


def _stop_orphan(record: dict, run_dir: Path) -> None:
    """A run whose benchmark was killed may still be playing: two must never write one directory."""
    pid = record.get("pid")
    if record.get("status") != "running" or not isinstance(pid, int):
        return
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return
    if str(run_dir).encode() not in words:
        return
    notify(f"{run_dir} is still being played by process {pid}, left by a benchmark that was killed; it is stopped first")
    os.killpg(pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    if Path(f"/proc/{pid}").exists():
        os.killpg(pid, signal.SIGKILL)


def stop_jobs(running: Sequence[RunningJob]) -> None:
    """Asks every process to end, so that it keeps its last checkpoint, and makes it after half a minute."""
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


def close_job(place: Path, running: RunningJob) -> tuple[str, str]:
    """What became of a process that ended: finished, trained (its evaluation is to come) or failed, and why."""
    job, code = running.job, running.process.returncode
    if code == 0 and is_finished(place, job):
        _note(place, job, status="finished")
        return "finished", ""
    if code == 0 and running.stage == "train" and "steps" in read_json(place / job.folder / "summary.json"):
        return "trained", ""
    lines = last_lines(log_path(place, job)) or "it printed nothing"
    if code == 0:
        lines += "\nit ended without an error, and without a summary.json or eval.json"
    _note(place, job, status="failed", exit_code=code, lines=lines)
    return "failed", lines


def write_record(path: Path, content: Mapping[str, object]) -> None:
    """Whole or not at all."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps(content, indent=1), encoding="utf-8")
    beside.replace(path)


def _record(place: Path, job: Job) -> dict:
    return read_json(record_path(place, job))


def _note(place: Path, job: Job, **news: object) -> None:
    write_record(record_path(place, job), _record(place, job) | news)
