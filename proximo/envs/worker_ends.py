"""How worker processes end: closed, killed, by themselves, or with their parent."""

import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any

from gymnasium.vector import AsyncVectorEnv

PR_SET_PDEATHSIG = 1  # linux/prctl.h
END_SECONDS = 5.0  # for idle workers to close their environments
FAULT_SECONDS = 1.0  # after a fault or Ctrl-C in a step, which may never end


def end_all(vector: AsyncVectorEnv[Any, Any], seconds: float) -> None:
    """Let all workers close their environments and end. Those that have not ended after some seconds are killed."""
    for pipe in vector.parent_pipes:
        if pipe is not None:
            with suppress(OSError):  # it has ended
                pipe.send(("close", None))
    end = time.monotonic() + seconds
    for process in vector.processes:
        process.join(max(end - time.monotonic(), 0))
    kill_all(vector.processes)


def find_dead(vector: AsyncVectorEnv[Any, Any], first: int = 0) -> tuple[int, str] | None:
    """Return the first worker from number `first` on that ended by itself, and how."""
    ended = wait([process.sentinel for process in vector.processes[first:]], 0.5)
    for k, process in enumerate(vector.processes[first:], first):
        if process.sentinel in ended:
            process.join(1)  # the exit status comes a moment after the end
        code = process.exitcode
        if code is not None:
            return k, f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    return None


def kill_all(processes: Iterable[Any]) -> None:
    """Kill processes, and wait for their ends."""
    for process in processes:
        process.kill()
    for process in processes:
        process.join(5)


def is_stopped(pid: int | None) -> bool:
    """Return whether a process is stopped by a signal; False where the system does not say (no /proc)."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def end_with_parent(kill: bool = True) -> None:
    """On Linux, let this process end with its parent, also if an environment hangs by then.

    Args:
        kill: By SIGKILL; False: by SIGTERM, which the process can handle.
    """
    parent = multiprocessing.parent_process()
    if sys.platform == "linux" and parent is not None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL if kill else signal.SIGTERM)
        if os.getppid() != parent.pid:  # it ended before
            os._exit(1)
