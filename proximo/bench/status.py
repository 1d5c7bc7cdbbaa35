"""proximo bench --status: the status of the runs in a folder, read from its files on any machine that sees it."""

import re
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from proximo.bench.files import read_record
from proximo.bench.progress import last_step, progress, run_config
from proximo.bench.records import BenchRecord, JobRecord
from proximo.bench.text import duration_text
from proximo.errors import UsageError
from proximo.runs.folder.lock import holder
from proximo.runs.logs.output import printable

ORDER = ("running", "queued", "not running", "failed", "waiting", "done")
SILENT = 600  # seconds without a new line of its log after which a run on another machine is said to be silent
SUFFIX = ".job.json"
LOGS = ("metrics.csv", "episodes.csv")  # with --log-every, metrics.csv may wait for long


class RunStatus(NamedTuple):
    """One run of a benchmark."""

    name: str
    """ENV/LABEL/SEED"""
    state: str
    """one of ORDER"""
    step: int
    of: int
    age: float | None
    """seconds since the last line of its log; None: there is none"""
    where: str
    """process and machine, or the task of the place"""


def status(directory: str | Path) -> str:
    """Return the counts of a benchmark and a table of the runs that are not done.

    Raises:
        UsageError: The folder has no benchmark.
    """
    directory = Path(directory)
    runs = run_statuses(directory)
    if not runs:
        raise UsageError(f"{directory} contains no benchmark. Give the folder that --out of `proximo bench` named.")
    counts = Counter(run.state for run in runs)
    lines = [f"{directory}: " + ", ".join(f"{counts[state]} {state}" for state in reversed(ORDER) if counts[state])]
    driver = holder(directory)
    lines += [f"started by {driver}{', which has ended' * process_ended(driver)}"] if driver else []
    shown = sorted((run for run in runs if run.state not in ("done", "waiting")),
                   key=lambda run: ORDER.index(run.state))
    width = max((len(run.name) for run in shown), default=0)
    for run in shown:
        age = f"{duration_text(run.age)} ago" if run.age is not None else "no iteration"
        silent = ", silent" if run.state == "running" and (run.age or 0) > SILENT else ""
        lines.append(f"  {run.name:{width}}  {run.state:11}  {run.step:>11,} of {run.of:,}  {age}{silent}  {run.where}")
    return "\n".join(printable(line.replace("\n", " ")) for line in lines)


def run_statuses(directory: Path) -> list[RunStatus]:
    """Return the status of every run that bench.json lists or that has a record."""
    names: list[str] = read_record(directory / "bench.json", BenchRecord).get("jobs", [])
    found = [str(path.relative_to(directory))[:-len(SUFFIX)] for path in sorted(directory.rglob(f"*{SUFFIX}"))]
    return [_run_status(directory, name) for name in dict.fromkeys([*names, *found])]


def _run_status(directory: Path, name: str) -> RunStatus:
    run_dir = directory / name
    record = read_record(Path(f"{run_dir}{SUFFIX}"), JobRecord)
    text = holder(run_dir)
    age = silent_seconds(run_dir)
    return RunStatus(name=name, state=_state(record, text, age), step=progress(run_dir)[0],
                     of=last_step(run_config(run_dir), record.get("steps", 0)), age=age,
                     where=", ".join(filter(None, dict.fromkeys((text, record.get("task", ""))))))


def silent_seconds(run: Path) -> float | None:
    """Return the seconds since a run has written to its log; None: it has none."""
    return min((found for name in LOGS if (found := seconds_since(run / name)) is not None), default=None)


def seconds_since(path: Path) -> float | None:
    """Return the seconds since a file was written, at least 0: clocks of machines differ. None: there is no file."""
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except (OSError, ValueError):  # a record may name a path that no file can have
        return None


def _state(record: dict[str, Any], text: str, age: float | None) -> str:
    given = record.get("status")
    if given in ("finished", "failed"):
        return "done" if given == "finished" else "failed"
    if given != "running":
        return "waiting"
    task = record.get("task", "")
    if not text and (not task or record.get("stage") == "train"):  # without a task it was stopped
        return "queued" if task and (age is None or not task.startswith("process ")) else "not running"
    return "not running" if process_ended(text or task) else "running"


def process_ended(text: str) -> bool:
    """Return whether a text `process PID on HOST` names a process of this machine that has ended."""
    found = re.fullmatch(r"process (\d+) on (\S+)", text)
    if found is None or found[2] != socket.gethostname() or not Path("/proc/self").exists():
        return False
    return not Path(f"/proc/{found[1]}").exists()
