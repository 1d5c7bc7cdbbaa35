"""Runs on this machine: one process each."""

import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from proximo.bench.places.child import KILL, signal_child, start_child
from proximo.bench.task import Ended, Handle, Task, stopped_on_fault
from proximo.runs.folder.lock import wait_until_free

MOMENT = 5  # seconds that a process which is being killed may still take


class LocalHandle:
    """A process of this machine."""

    def __init__(self, task: Task) -> None:
        self._process: subprocess.Popen[bytes] = start_child(task)
        self.name = f"process {self._process.pid} on {socket.gethostname()}"

    def poll(self) -> Ended | None:
        """Return how the process has ended, None while it runs."""
        code = self._process.poll()
        return None if code is None else Ended(code)

    def stop(self) -> None:
        """Send SIGTERM."""
        signal_child(self._process, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        signal_child(self._process, KILL)


class LocalPlace:
    """This machine. Processes end with the benchmark."""

    def submit(self, tasks: Sequence[Task]) -> list[Handle]:
        """Start one process for each task. If one cannot start, those before it are stopped.

        Raises:
            UsageError: Another process writes to the folder of a run.
            OSError: A log cannot be written.
        """
        for task in tasks:
            wait_until_free(Path(task.run_dir), MOMENT)
        handles: list[Handle] = []
        with stopped_on_fault(handles):
            for task in tasks:
                handles.append(LocalHandle(task))  # noqa: PERF401 (those that have started must be known)
        return handles

    def recover(self, name: str) -> None:
        """Processes end with the benchmark that has started them."""

    def close(self) -> None:
        """Do nothing."""
