"""A task on the machine that runs it: a process in its own session, which ends when its parent ends."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from proximo.bench.task import PATIENCE, Task
from proximo.errors import ProximoError
from proximo.runs.folder.files import refuse_links
from proximo.runs.folder.lock import wait_until_free

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has no SIGKILL
TORCHRUN = "torch.distributed.run"
# The kernel sends this signal when the parent ends. Setting it in a small program of its own is safe also in a parent
# with threads (preexec_fn is not), and exec keeps it. SIGUSR2, which SLURM sends to all processes of a job before its
# time limit, is for submitit only.
UNTIL_PARENT_ENDS = """import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(sys.argv[1]))  # PR_SET_PDEATHSIG (linux/prctl.h)
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
if os.getppid() == int(sys.argv[2]):
    os.execvp(sys.argv[3], sys.argv[3:])
"""


def start_child(task: Task) -> subprocess.Popen[bytes]:
    """Start the process of a task; its output is appended to the log.

    Raises:
        OSError: The log cannot be written, or the program is not there.
        FilesError: The log is a link, which may lead out of the benchmark.
    """
    refuse_links([Path(task.log)])
    words = list(task.words)
    if sys.platform == "linux":  # torchrun ends its own processes on SIGTERM
        death = signal.SIGTERM if TORCHRUN in words else signal.SIGKILL
        words = [sys.executable, "-ISc", UNTIL_PARENT_ENDS, str(int(death)), str(os.getpid()), *words]
    with open(task.log, "ab") as log:
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                env=os.environ | task.env, cwd=task.cwd if Path(task.cwd).is_dir() else None,
                                start_new_session=True)


def signal_child(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process and to everything that it has started. On Windows, end that process alone."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number) if hasattr(os, "killpg") else process.terminate()


def end_child(process: subprocess.Popen[bytes]) -> int:
    """Ask a process to end, kill it if it has not ended after PATIENCE seconds, and return its exit code."""
    signal_child(process, signal.SIGTERM)
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        signal_child(process, KILL)
        return process.wait()


def wait_for_child(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process; whatever ends this function early ends the process too."""
    try:
        while (code := process.poll()) is None:
            time.sleep(0.1)  # not wait(), which an interrupt of Ray does not reach
        return code
    finally:
        if process.poll() is None:
            end_child(process)


def is_ready(task: Task) -> bool:
    """Return whether this machine sees the folder and no process writes to the run; the log says what is wrong.

    A process that was cut off may take a moment to end.
    """
    if not Path(task.log).parent.is_dir():
        return False
    try:
        wait_until_free(Path(task.run_dir), 2 * PATIENCE)
    except ProximoError as error:
        refuse_links([Path(task.log)])
        with open(task.log, "a", encoding="utf-8", errors="backslashreplace") as log:
            log.write(f"proximo: {error}\n")
        return False
    return True


def run_task(*fields: object) -> int:
    """Run a task from its fields and return its exit code: what Ray starts on another machine."""
    task = Task(*fields)  # type: ignore[arg-type]
    return wait_for_child(start_child(task)) if is_ready(task) else 2
