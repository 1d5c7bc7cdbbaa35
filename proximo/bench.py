"""proximo bench: plays every run of a benchmark file, each in a process of its own, and goes on where it stopped."""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from proximo.bench_set import Job, jobs_of, load_set, seeds_of
from proximo.bench_table import BenchView
from proximo.errors import UsageError, say

COMMAND = (sys.executable, "-m", "proximo")
EVALUATION_EPISODES = 100
LAST_LINES = 12


@dataclass
class Running:
    """A job under way."""

    job: Job
    process: subprocess.Popen
    stage: str
    """train or eval"""
    began: float


@dataclass
class BenchState:
    """What is left, under way and over."""

    waiting: list[Job]
    running: list[Running]
    done: list[Job]
    failed: list[tuple[Job, str]]


def bench(file: str | Path, seeds: int | Sequence[int] | None = None, workers: int = 1, out: str | Path = "",
          ablate: Sequence[str] = (), overrides: Mapping[str, object] | None = None,
          command: Sequence[str] = COMMAND) -> int:
    """Plays what is not yet finished of a file; 0: all finished, 1: some failed, 130: stopped and to be gone on with.

    out defaults to runs/bench/NAME; runs lie in OUT/ENV/VARIANT-OVERRIDES/SEED, with SEED.log and SEED.job.json
    beside each. overrides hold for every run. Raises UsageError for a file or flag that cannot work.
    """
    bench_set, wrong = load_set(file), []
    chosen = seeds_of(seeds, wrong) if seeds is not None else bench_set.seeds
    if workers < 1:
        wrong.append(f"workers={workers} must be at least 1")
    if wrong:
        raise UsageError("\n".join(wrong))
    jobs, notes = jobs_of(bench_set, chosen, ablate, overrides)
    for note in notes:
        say(note)
    place = Path(out or Path("runs") / "bench" / bench_set.name)
    place.mkdir(parents=True, exist_ok=True)
    with _alone(place), _terminable():
        _write(place / "bench.json", {"title": bench_set.title, "file": str(file), "command": _command_line(),
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


def _play(place: Path, state: BenchState, workers: int, command: tuple[str, ...]) -> int:
    try:
        with BenchView(place, state) as view:
            while state.waiting or state.running:
                while state.waiting and len(state.running) < workers:
                    state.running.append(_start(place, state.waiting.pop(0), workers, command))
                for running in list(state.running):
                    _look_after(place, state, running, workers, command, view)
                view.refresh()
                time.sleep(0.2)
    except KeyboardInterrupt:
        _stop(state.running)
        say(f"stopped with {len(state.done)} runs finished; the same command goes on from here")
        return 130
    for job, lines in state.failed:
        say(f"failed: {job.folder} ({log_path(place, job)})\n{lines}")
    say(f"{len(state.done)} runs finished, {len(state.failed)} failed; look at them with: proximo report {place}")
    return 1 if state.failed else 0


def _look_after(place: Path, state: BenchState, running: Running, workers: int, command: tuple[str, ...],
                view: BenchView) -> None:
    code = running.process.poll()
    if code is None:
        return
    state.running.remove(running)
    job = running.job
    trained = "steps" in read_json(place / job.folder / "summary.json")
    if code == 0 and is_finished(place, job):
        state.done.append(job)
        _note(place, job, status="finished")
        view.tell(f"finished {job.folder}")
    elif code == 0 and trained and running.stage == "train":
        state.running.append(_start(place, job, workers, command))
    else:
        lines = last_lines(log_path(place, job)) or "it printed nothing"
        if code == 0:
            lines += "\nit ended without an error, and without a summary.json or eval.json"
        state.failed.append((job, lines))
        _note(place, job, status="failed", exit_code=code, lines=lines)
        view.tell(f"failed {job.folder} (exit code {code})")


def _start(place: Path, job: Job, workers: int, command: tuple[str, ...]) -> Running:
    """Trains, resumes or evaluates, whichever the run directory asks for."""
    run_dir = place / job.folder
    record = _record(place, job)
    _stop_orphan(record, run_dir)
    if record.get("key") != job.key and run_dir.exists():
        aside = run_dir.with_name(f"{run_dir.name}.{record.get('key', 'unknown')}.old")
        shutil.rmtree(aside, ignore_errors=True)
        run_dir.rename(aside)
        say(f"{job.folder} was played with other settings; those are kept in {aside.name}")
    words, stage = _words(run_dir, job, command)
    log_path(place, job).parent.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ)
    environment.setdefault("WANDB_RUN_GROUP", f"{job.env_id} {job.label}")
    if workers > 1:
        environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with log_path(place, job).open("ab") as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                   env=environment, start_new_session=True)
    _write(record_path(place, job), asdict(job) | {
        "key": job.key, "status": "running", "pid": process.pid, "command": words,
        "began": datetime.now(UTC).isoformat(timespec="seconds")})
    return Running(job, process, stage, time.monotonic())


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
    say(f"{run_dir} is still being played by process {pid}, left by a benchmark that was killed; it is stopped first")
    os.killpg(pid, signal.SIGTERM)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    if Path(f"/proc/{pid}").exists():
        os.killpg(pid, signal.SIGKILL)


def _stop(running: Sequence[Running]) -> None:
    """Asks every process to end, so that it keeps its last checkpoint, and makes it after half a minute."""
    for one in running:
        if one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGTERM)
    deadline = time.monotonic() + 30
    for one in running:
        try:
            one.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()


@contextmanager
def _alone(place: Path) -> Iterator[None]:
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


def _record(place: Path, job: Job) -> dict:
    return read_json(record_path(place, job))


def _note(place: Path, job: Job, **news: object) -> None:
    _write(record_path(place, job), _record(place, job) | news)


def _write(path: Path, content: Mapping[str, object]) -> None:
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps(content, indent=1), encoding="utf-8")
    beside.replace(path)
