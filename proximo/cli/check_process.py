"""Check an environment in a child process, so that the command survives whatever the environment does."""

import ctypes
import multiprocessing
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.context import SpawnProcess
from typing import Any

from proximo.cli.messages import printed_messages
from proximo.config import Config
from proximo.envs.time_limit import OBSERVER, TimeLeft, overdue
from proximo.envs.workers.ends import end_with_parent, kill_all
from proximo.envs.workers.search_path import remove_path_variable, trusted_modules
from proximo.errors import ProximoError
from proximo.runs.check.env import Finding, failure, iter_findings

GRACE_SECONDS = 5.0  # that the child has to end a call after its limit, and to end itself
POLL_SECONDS = 0.1
END = ()  # the message after the last finding


class CurrentCall(ctypes.Structure):
    """The newest call of the environment, in shared memory."""

    _fields_ = [("what", ctypes.c_char * 300), ("seconds", ctypes.c_double),  # its limit
                ("deadline", ctypes.c_double)]  # of time.monotonic(); 0: it returned


def findings_of_process(env_id: str | None, cfg: Config) -> Iterator[Finding]:
    """Check an environment in a new process, and yield what is found. See iter_findings.

    A call that ends the process, or that runs native code and does not return in time, is a finding too.

    Raises:
        UsageError: The environment cannot be made, or its id is not one of Gymnasium.
        EnvError: Making the environment fails for another reason.
    """
    context = multiprocessing.get_context("spawn")
    call = context.RawValue(CurrentCall)
    reader, writer = context.Pipe(duplex=False)
    child, clock = context.Process(target=run_check, args=(env_id, cfg, call, writer)), CallClock(call)
    with trusted_modules():
        child.start()
    writer.close()
    try:
        while True:
            while child.is_alive() and not reader.poll(POLL_SECONDS):
                if clock.is_overdue():
                    yield failure(overdue(call.what.decode(errors="ignore"), call.seconds))
                    return
            found = newest(reader)
            if found is None:
                yield failure(death(child, call, env_id or cfg.env_file))
                return
            if isinstance(found, ProximoError):
                raise found
            if found == END:
                child.join(GRACE_SECONDS)
                return
            yield found
    finally:
        kill_all([child])


class CallClock:
    """Says whether the newest call has not returned in time. While all processes are stopped, time does not pass.

    Args:
        call: The CurrentCall, whose deadline the process may set to 0 at any moment.
    """

    def __init__(self, call: Any) -> None:
        self._call, self._deadline, self._left = call, 0.0, TimeLeft(0)

    def is_overdue(self) -> bool:
        """Look at the call; do so every POLL_SECONDS."""
        deadline = self._call.deadline  # read once
        if deadline != self._deadline:
            self._deadline, self._left = deadline, TimeLeft(deadline + GRACE_SECONDS - time.monotonic())
        return bool(deadline) and self._left.seconds() == 0


def newest(reader: Any) -> Any:
    """Return the next message of the process; None if it has ended, even if one that it started holds the pipe."""
    with suppress(EOFError):
        return reader.recv() if reader.poll() else None
    return None


def death(child: SpawnProcess, call: Any, name: str) -> str:
    """Return the message for a process that ended without sending a result."""
    child.join(GRACE_SECONDS)
    code = child.exitcode or 0
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    where = call.what.decode(errors="ignore") if call.deadline else f"{name}, outside its calls,"
    return f"{where} ended the process with {how}"


def run_check(env_id: str | None, cfg: Config, call: Any, writer: Any) -> None:
    """Run in the child: send every finding, or the error that ended the check, then END."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # and this: it ends what this process has started, too
    end_with_parent()
    remove_path_variable()

    def note(what: str, seconds: float) -> None:
        if what:
            call.what, call.seconds = what.encode()[:299], seconds
        call.deadline = time.monotonic() + seconds if what else 0

    OBSERVER.set(note)
    note(f"{env_id or cfg.env_file}: importing it", cfg.env_timeout)
    with printed_messages():
        try:
            for finding in iter_findings(env_id, cfg):
                sys.stdout.flush()
                writer.send(finding)
        except ProximoError as error:
            writer.send(error)
    sys.stdout.flush()
    writer.send(END)
