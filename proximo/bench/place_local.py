"""Runs on this machine: one process each."""

import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from proximo.bench.child import signal_child, start_child
from proximo.bench.task import Ended, Handle, Task
from proximo.runs.lock import wait_until_free

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
        signal_child(self._process, signal.SIGKILL)


class LocalPlace:
    """This machine. Processes end with the benchmark."""

    def submit(self, tasks: Sequence[Task]) -> list[Handle]:
        """Start one process for each task.

        Raises:
            UsageError: Another process writes to the folder of a run.
        """
        for task in tasks:
            wait_until_free(Path(task.run_dir), MOMENT)
        return [LocalHandle(task) for task in tasks]

    def recover(self, name: str) -> None:
        """Processes end with the benchmark that has started them."""

    def close(self) -> None:
        """Do nothing."""
