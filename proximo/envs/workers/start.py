"""How worker processes start."""

import errno
import multiprocessing
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from gymnasium.vector import AsyncVectorEnv

from proximo.envs.time_limit import POLL_SECONDS, TimeLeft
from proximo.envs.workers.ends import kill_all
from proximo.envs.workers.process import Bundle, run_worker
from proximo.envs.workers.search_path import trusted_modules
from proximo.errors import EnvError

LIMITS = {errno.EMFILE: "open files (ulimit -n)", errno.EAGAIN: "processes (ulimit -u)"}


@trusted_modules()
def start_workers(bundles: Sequence[Callable[[], Bundle]], timeout: float, name: str) -> "AsyncVectorEnv[Any, Any]":
    """Start one process per bundle: spawned and not forked, because the parent has threads.

    A thread ends workers that do not start in time, because nothing watches them yet.

    Args:
        bundles: Make what the workers run.
        timeout: Seconds after which workers that have not started are an error.
        name: The id of the environment, for error messages.

    Raises:
        EnvError: A worker did not start. None is left.
    """
    vector: AsyncVectorEnv[Any, Any] = AsyncVectorEnv.__new__(AsyncVectorEnv)  # lists its processes as it starts them
    late, done = threading.Event(), threading.Event()

    def kill_started() -> None:
        kill_all([process for process in getattr(vector, "processes", ()) if process.pid is not None])

    def give_up() -> None:
        left = TimeLeft(timeout)
        while not done.wait(0.1 if late.is_set() else min(POLL_SECONDS, left.seconds())):
            if left.seconds() == 0:
                late.set()
                kill_started()  # again and again, because others may be started meanwhile

    threading.Thread(target=give_up, daemon=True).start()
    try:
        AsyncVectorEnv.__init__(vector, bundles, context="spawn", copy=False, worker=run_worker)
        if late.is_set():
            raise TimeoutError
        return vector
    except BaseException as error:
        kill_started()
        if not isinstance(error, Exception):
            raise
        if late.is_set():
            raise EnvError(f"{name}: {len(bundles)} worker processes did not start within {timeout:g} s. The machine "
                           "is busy, an environment is slow to make, or each worker runs the whole script first: it "
                           "must train under `if __name__ == \"__main__\":`. Allow more with --env-timeout.") from error
        raise EnvError(f"{name}: a worker process did not start ({type(error).__name__}: {error}). "
                       f"{_advice(error)}") from error
    finally:
        done.set()


def _advice(error: Exception) -> str:
    """Return what to do about a worker that did not start."""
    if limit := LIMITS.get(getattr(error, "errno", None) or 0):
        return f"Raise the limit of {limit}, or use fewer --env-workers."
    if multiprocessing.current_process().daemon:
        return "Leave env_workers out, or use concurrent.futures.ProcessPoolExecutor instead of a Pool."
    if getattr(sys.modules["__main__"], "__file__", "") == "<stdin>":
        return "Workers read the program again, and it came from standard input: write it into a file."
    return ("What the worker printed above says why. "
            "A script that trains must do so under `if __name__ == \"__main__\":`.")
