"""What a benchmark hands to a place, and what a place is: this machine, a Ray cluster or SLURM."""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from proximo.envs.machine.cores import SHARE, usable_cores

STOPPED = (130, 137, 143)  # exit codes of a process that was interrupted, killed or asked to end
PATIENCE = 30  # seconds in which a process that is asked to end can save its last checkpoint


@dataclass(frozen=True)
class Where:
    """Where runs are trained, how many at a time, and what each of them may use."""

    on: Literal["local", "ray", "slurm"] = "local"
    """place of the runs: this machine, Ray, or SLURM"""
    workers: int | None = None
    """runs at the same time; unset: 1 (bench on Ray and SLURM: as many as there is room for)"""
    address: str = ""
    """HOST:PORT of a Ray cluster; empty: RAY_ADDRESS, otherwise a new cluster on this machine"""
    job_threads: int | None = None
    """threads of each run, also passed as --threads; unset: 1 on Ray and SLURM"""
    job_gpus: float = 0.0
    """GPUs of each run on Ray and SLURM; Ray takes fractions"""
    job_memory: str = ""
    """memory of each run on Ray and SLURM, such as 4GB or 500MB"""
    slurm_partition: str = ""
    """partition of SLURM; empty: the default of the cluster"""
    slurm_constraint: str = ""
    """features that a node must have, such as one type of CPU"""
    slurm_time: int = 240
    """minutes until SLURM stops a run, which then continues in a new job"""
    slurm_cluster: Literal["slurm", "local"] = "slurm"
    """local: processes on this machine instead of SLURM, to try the command out"""

    @property
    def threads(self) -> int | None:
        """Threads of each run; None: what the machine suggests, which must not decide where machines differ."""
        return self.job_threads or (None if self.on == "local" else 1)

    @property
    def slots(self) -> float:
        """How many runs may be handed over at the same time."""
        return self.workers or (1 if self.on == "local" else float("inf"))

    def variables(self, processes: int) -> dict[str, str]:
        """Return the environment variables that keep a run of so many processes from taking the cores of others."""
        cores = int(usable_cores() // self.slots) if self.on == "local" else (self.threads or 1) * processes
        limited = ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if self.threads or self.slots > 1 else ()
        return {SHARE: str(max(1, cores))} | dict.fromkeys(limited, str(self.threads or 1))

    @property
    def memory_bytes(self) -> int:
        """Memory of each run in bytes; 0: not declared."""
        return bytes_of(self.job_memory) or 0


HERE = Where()


class Task(NamedTuple):
    """One process of a job: text only, because it may start on another machine."""

    words: tuple[str, ...]
    env: dict[str, str]
    """environment variables in addition to those of the machine"""
    cwd: str
    """folder to start in, if the machine has it"""
    run_dir: str
    log: str
    """file that gets what the process prints"""
    processes: int
    """number of processes that train together"""


class Ended(NamedTuple):
    """How a task has ended."""

    code: int | None
    """the exit code; -N: killed by signal N; None: the place lost the task"""
    why: str = ""
    """what the place says about it"""


def end_text(ended: Ended) -> str:
    """Say how a task has ended."""
    why = f" ({ended.why})" if ended.why else ""
    if ended.code is None:
        return f"lost{why}"
    number = -ended.code if ended.code < 0 else ended.code - 128 if ended.code in STOPPED else 0
    return f"stopped by {signal.Signals(number).name}{why}" if number else f"exit code {ended.code}{why}"


class Handle(Protocol):
    """A task that was handed over."""

    name: str
    """what the place calls it"""

    def poll(self) -> Ended | None:
        """Return how the task has ended, None while it waits or runs."""

    def stop(self) -> None:
        """Ask the task to save its last checkpoint and to end."""

    def kill(self) -> None:
        """End the task at once."""


class Place(Protocol):
    """What starts tasks. It keeps nothing that matters: the folder of the benchmark has everything."""

    def submit(self, tasks: Sequence[Task]) -> Sequence[Handle]:
        """Hand over tasks and return one handle for each. If one cannot be handed over, those before it are stopped."""

    def recover(self, name: str) -> Handle | None:
        """Return the handle of a task that a benchmark which was killed has left, None if it cannot be running."""

    def close(self) -> None:
        """Leave the place; tasks that still run are ended where the place cannot run them without this process."""


def bytes_of(text: str) -> int | None:
    """Convert 4GB, 500MB or 1.5GB to bytes (powers of 1000); None if the text is something else."""
    units = {"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
    number, unit = text[:-2], units.get(text[-2:].upper())
    try:
        value = float(number) * unit if unit else 0.0
    except ValueError:
        return None
    return int(value) if 1 <= value < 1e18 else None


def stop_all(handles: Sequence[Handle], patience: float) -> None:
    """Ask tasks to end, and end those at once that have not ended after `patience` seconds."""
    pending = [handle for handle in handles if handle.poll() is None]
    for handle in pending:
        handle.stop()
    deadline = time.monotonic() + patience
    while pending and time.monotonic() < deadline:
        time.sleep(0.05)
        pending = [handle for handle in pending if handle.poll() is None]
    for handle in pending:
        handle.kill()
    while any(handle.poll() is None for handle in pending) and time.monotonic() < deadline + 10:
        time.sleep(0.05)


@contextmanager
def stopped_on_fault(handles: Sequence[Handle]) -> Iterator[None]:
    """Stop tasks, also those that are added later, if what follows raises: nobody would wait for them."""
    try:
        yield
    except BaseException:
        stop_all(handles, PATIENCE)
        raise
