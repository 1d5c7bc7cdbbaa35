"""Runs on SLURM through submitit: one job each, in arrays; a job that reaches its time limit is queued again."""

import getpass
import subprocess
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proximo.bench.files import AGAIN
from proximo.bench.places.child import end_child, is_ready, start_child, wait_for_child
from proximo.bench.task import Ended, Handle, Task, Where, stopped_on_fault
from proximo.errors import UsageError
from proximo.runs.folder.writing import OF_THE_DISK, unwritten

if TYPE_CHECKING:
    from submitit import Job
    from submitit.helpers import DelayedSubmission

NAME = "SLURM job "
TIMEOUTS = 100  # how often a job may reach its time limit
GRACE = 15  # seconds in which the result of a job that has left the queue may appear on a slow file system


class SubmittedTask:
    """What submitit pickles and runs in a job: this class, by its name, and the fields of a task, which are text."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, *fields: Any) -> int:
        """Run a task and return its exit code."""
        task = Task(*fields)
        if not is_ready(task):
            return 2
        self._process = start_child(task)
        return wait_for_child(self._process)

    def checkpoint(self, *fields: Any) -> "DelayedSubmission":
        """At the time limit and before preemption: let the process save, and ask for the same task again."""
        from submitit.helpers import DelayedSubmission

        if self._process is not None:
            end_child(self._process)
        return DelayedSubmission(SubmittedTask(), *fields)


class Queue:
    """The jobs of this user that SLURM has queued or runs, read at most every five seconds."""

    def __init__(self) -> None:
        self._ids: set[str] | None = None
        self._read = -5.0

    def has(self, job_id: str) -> bool:
        """Return whether a job is queued or runs; True while SLURM does not answer."""
        if time.monotonic() - self._read >= 5:
            words = ["squeue", "--noheader", "--array", "--format=%i", f"--user={getpass.getuser()}"]
            found = subprocess.run(words, capture_output=True, text=True, check=False)
            self._ids = set(found.stdout.split()) if found.returncode == 0 else None
            self._read = time.monotonic()
        return self._ids is None or job_id in self._ids


class SlurmHandle:
    """A job of SLURM, or of submitit's stand-in on this machine."""

    def __init__(self, job: "Job[int]", queue: Queue | None) -> None:
        self._job, self._queue = job, queue
        self._missing_since: float | None = None
        self.name = f"{NAME}{job.job_id}"

    def poll(self) -> Ended | None:
        """Return how the job has ended, None while it waits or runs."""
        from submitit.core.utils import UncompletedJobError

        if self._job.paths.result_pickle.exists():
            try:
                return Ended(self._job.result())
            except UncompletedJobError as error:
                return Ended(1, last_line(error))
        if self.is_queued():
            self._missing_since = None
            return None
        now = time.monotonic()
        self._missing_since = now if self._missing_since is None else self._missing_since
        grace = 0 if self._queue is None else GRACE
        if now - self._missing_since < grace:
            return None
        printed = (self._job.stderr() or "").strip().splitlines()[-1:]
        return Ended(None, ": ".join([f"{self.name} has ended without a result", *printed]))

    def is_queued(self) -> bool:
        """Return whether the job waits or runs."""
        return self._queue.has(self._job.job_id) if self._queue else not self._job.done()

    def stop(self) -> None:
        """Cancel the job: SLURM sends SIGTERM first."""
        self._job.cancel(check=False)

    def kill(self) -> None:
        """Cancel the job once more; SLURM itself sends SIGKILL after its KillWait."""
        self._job.cancel(check=False)


class SlurmPlace:
    """SLURM.

    Args:
        where: Resources of each run, partition, constraint and time limit.
        folder: The folder of the benchmark, on storage that all nodes share. Files of submitit are in slurm/.
    """

    def __init__(self, where: Where, folder: Path) -> None:
        self._where, self._folder = where, folder / "slurm" / "%j"
        self._queue = Queue() if where.slurm_cluster == "slurm" else None

    def submit(self, tasks: Sequence[Task]) -> list[Handle]:
        """Hand over tasks, as one job array for each number of processes.

        Raises:
            UsageError: SLURM does not take them.
            FilesError: The folder of its files cannot be written.
        """
        ordered = sorted(tasks, key=lambda task: task.processes)
        handles: list[Handle] = []
        with stopped_on_fault(handles):
            for _, group in groupby(ordered, lambda task: task.processes):
                handles += self._submit_array(list(group))
        found = dict(zip((task.log for task in ordered), handles))
        return [found[task.log] for task in tasks]

    def _submit_array(self, tasks: Sequence[Task]) -> list[Handle]:
        """Hand over tasks of one number of processes."""
        try:
            jobs = self._executor(tasks[0].processes, len(tasks)).map_array(SubmittedTask(), *map(list, zip(*tasks)))
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            if isinstance(error, OSError) and error.errno in OF_THE_DISK:
                raise unwritten(self._folder.parent, error, AGAIN) from error
            raise UsageError(f"SLURM did not take the jobs: {last_line(error)}. Check "
                             "--slurm-partition, --slurm-constraint, --slurm-time and the resources.") from error
        return [SlurmHandle(job, self._queue) for job in jobs]

    def recover(self, name: str) -> Handle | None:
        """Return a job that is still queued or runs: jobs of SLURM do not end with the benchmark."""
        from submitit import SlurmJob

        if self._queue is None or not name.startswith(NAME):
            return None
        handle = SlurmHandle(SlurmJob(folder=self._folder, job_id=name.removeprefix(NAME)), self._queue)
        return handle if handle.is_queued() else None

    def close(self) -> None:
        """Do nothing: jobs continue."""

    def _executor(self, processes: int, count: int) -> Any:
        from submitit import AutoExecutor

        where = self._where
        executor = AutoExecutor(folder=self._folder, cluster=where.slurm_cluster, slurm_max_num_timeout=TIMEOUTS,
                                local_max_num_timeout=TIMEOUTS)
        executor.update_parameters(
            name="proximo", timeout_min=where.slurm_time, cpus_per_task=(where.threads or 1) * processes,
            gpus_per_node=int(where.job_gpus) * processes, slurm_array_parallelism=count,
            slurm_additional_parameters={"requeue": True})
        if where.memory_bytes:
            executor.update_parameters(mem_gb=where.memory_bytes / 2**30)
        if where.slurm_partition:
            executor.update_parameters(slurm_partition=where.slurm_partition)
        if where.slurm_constraint:
            executor.update_parameters(slurm_constraint=where.slurm_constraint)
        return executor


def last_line(error: BaseException) -> str:
    """Return the last line of a message of submitit, which ends with the cause, or the type of an error without one."""
    return next(reversed(str(error).strip().splitlines()), type(error).__name__)
