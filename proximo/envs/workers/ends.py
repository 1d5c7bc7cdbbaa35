"""How worker processes end: closed, killed, by themselves, or with their parent."""

import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from gymnasium.vector import AsyncVectorEnv

from proximo.errors import warn

PR_SET_PDEATHSIG = 1  # linux/prctl.h
END_SECONDS = 10.0  # for idle workers to close their environments
FAULT_SECONDS = 1.0  # for workers in a step that may never end, after a fault of another one or Ctrl-C


def end_all(vector: "AsyncVectorEnv[Any, Any]", seconds: float) -> None:
    """Let all workers close their environments and end. Those that have not ended after some seconds are killed.

    Nothing else may end them: Gymnasium's close(), and multiprocessing at the end of the program, wait for processes
    that leave SIGTERM to their parent.
    """
    for pipe in vector.parent_pipes:
        if pipe is not None:
            with suppress(OSError):  # it has ended
                pipe.send(("close", None))
    end = time.monotonic() + seconds
    for process in vector.processes:
        process.join(max(end - time.monotonic(), 0))
    late = [str(k) for k, process in enumerate(vector.processes) if process.exitcode is None]
    if late and seconds > FAULT_SECONDS:
        warn(f"worker process {', '.join(late)}: close() of its environments did not return within {seconds:g} s. The "
             "process is killed, and on Linux what it has started too.")
    kill_all(vector.processes)
    for pipe in filter(None, vector.parent_pipes):
        pipe.close()
    vector.error_queue.close()
    vector.closed = True


def find_dead(vector: "AsyncVectorEnv[Any, Any]", first: int = 0) -> tuple[int, str] | None:
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
    """Kill processes and wait for their ends. On Linux, also kill what they have started, such as engines of games."""
    started = descendants([process.pid for process in processes if process.exitcode is None])
    for process in processes:
        process.kill()
    for pid in started:  # an environment that is killed cannot end them in its close()
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    for process in processes:
        process.join(5)


def descendants(pids: Collection[int]) -> list[int]:
    """Return the processes that some processes have started, and so on; none where the system does not say (no /proc).

    A process whose parent has ended is not found.
    """
    found, children = [*pids], defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat") if found else ():
        with suppress(OSError):  # it has ended
            parent = stat.read_text(errors="replace").rpartition(")")[2].split()[1]
            children[int(parent)].append(int(stat.parent.name))
    for pid in found:
        found += children[pid]
    return found[len(pids):]


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
