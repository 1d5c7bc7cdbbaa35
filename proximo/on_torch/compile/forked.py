"""Run a function in a forked child process, which ends with its parent."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from proximo.envs.workers.ends import end_with_parent
from proximo.errors import FilesError, ProximoError, UsageError

LIMIT_SECONDS = 600.0  # for the work; a lock that another thread held during the fork could block it forever


def can_fork() -> bool:
    """Return whether this process may fork: not with JAX or a GPU, whose threads and state do not survive it."""
    return "jax" not in sys.modules and not torch.cuda.is_initialized() and not multiprocessing.current_process().daemon


def start_forked(work: Callable[[], None], name: str) -> Callable[[], float]:
    """Start `work` in a forked child process.

    The child has its own process group, so that Ctrl-C reaches only the parent. It ends, with the processes that it has
    started (a compiler), when the parent ends or is interrupted while it waits.

    Args:
        work: Raises UsageError or FilesError if it fails.
        name: What the message calls the process if it ends without an answer.

    Returns:
        A function, called once, that waits for the end of `work` and returns how many seconds it took. It raises what
        `work` raised.
    """
    context = multiprocessing.get_context("fork")
    inbox, outbox = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(work, outbox), daemon=True)
    process.start()
    outbox.close()  # so that the end of the process is the end of the pipe

    def wait() -> float:
        try:
            if not inbox.poll(LIMIT_SECONDS):
                process.kill()
                process.join()
                raise UsageError(f"{name} has not ended within {LIMIT_SECONDS:.0f} s. Run without --compile.")
            kind, _, text = inbox.recv_bytes().decode().partition("\n")
        except EOFError:
            process.join()
            raise UsageError(f"{name} ended with exit code {process.exitcode}. If memory is short, free some or run "
                             "without --compile; otherwise start again.") from None
        except BaseException:
            process.terminate()
            raise
        finally:
            inbox.close()
        process.join()
        if kind:
            raise (FilesError if kind == FilesError.__name__ else UsageError)(text)
        return float(text)

    return wait


def _answer(work: Callable[[], None], outbox: Connection) -> None:
    """Do the work. Send the name and the message of an error, or an empty name and the seconds."""
    os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    end_with_parent(kill=False)
    began, kind = time.monotonic(), ""
    try:
        work()
        text = str(time.monotonic() - began)
    except ProximoError as fault:
        kind, text = type(fault).__name__, str(fault)
    outbox.send_bytes(f"{kind}\n{text}".encode())


def _leave(number: int, frame: Any) -> None:
    """End the processes that this one has started, then this one, which removes its temporary files."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    sys.exit(128 + number)
