"""One writer per run folder: an advisory lock on RUN/.lock, which the kernel frees however its process ends."""

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import IO

from proximo.errors import UsageError, warn
from proximo.processes import world_from_environment
from proximo.runs.folder.files import is_folder, open_regular
from proximo.runs.folder.writing import unwritten

NAME = ".lock"


@contextmanager
def locked(*folders: Path, new: bool = False) -> Iterator[None]:
    """Hold the locks of run folders. In a distributed run, only rank 0 takes them. On Windows there are no locks.

    At the end the lock files are removed. After SIGKILL the files remain, but the kernel has released the locks.

    Args:
        folders: The folders. Those that do not exist have no lock.
        new: Create the folders first, and remove those that are still empty at the end.

    Raises:
        UsageError: Another process holds a lock.
        FilesError: A folder or its lock file cannot be written.
    """
    with ExitStack() as held:
        for folder in folders if world_from_environment().rank == 0 else ():
            folder = folder.absolute()
            if new:
                held.enter_context(_made(folder))
            if os.name != "nt" and is_folder(folder):
                held.enter_context(_lock(folder))
        yield


def wait_until_free(folder: Path, seconds: float) -> None:
    """Wait until no process holds the lock of a folder.

    Raises:
        UsageError: A process still holds it after this time.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            with locked(folder):
                return
        except UsageError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def holder(folder: Path) -> str:
    """Return `process PID on HOST` for the process that locked a folder last, "" if it has ended in order.

    After SIGKILL the text remains. The lock itself is not touched.
    """
    try:
        return _holder(TextIOWrapper(open_regular(folder / NAME), errors="replace"))
    except OSError:
        return ""


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    try:
        existed = folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise unwritten(folder, error, ", or choose another folder") from error
    try:
        yield
    finally:
        if not existed:
            with suppress(OSError):  # not empty: a run has started in it
                folder.rmdir()


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    path = folder / NAME
    try:
        file = _open_locked(path)
    except OSError as error:
        raise unwritten(path, error, "") from error
    with file:
        try:
            yield
        finally:
            with suppress(OSError):  # the disk has become read-only: the error of the run must be seen, not this one
                if _is_file_at(path, file):
                    path.unlink()


def _open_locked(path: Path) -> IO[str]:
    """Return the lock file, locked, with the number of this process in it."""
    import fcntl

    while True:
        file = open(path, "a+", opener=_open_no_link)  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{path.parent} is in use: {_who(_holder(file))}") from None
        except OSError as error:
            warn(f"{path.parent} cannot be locked, because its file system has no locks ({error.strerror}). Make sure "
                 "that no other process writes to it.")
            return file
        if _is_file_at(path, file):
            _write_holder(path, file)
            return file
        file.close()  # the process that held it has just ended and removed it


def _who(name: str) -> str:
    """Say who holds a lock, and what to do."""
    if name == _own_name():
        return ("another thread of this program, or an unfinished call, is writing to it. Wait until that has ended, "
                "or choose another folder.")
    return f"{name} is writing to it. Wait until that process has ended, or stop it."


def _write_holder(path: Path, file: IO[str]) -> None:
    """Write the number of this process to a lock file, or remove it where the disk is full."""
    try:
        file.truncate(0)
        file.write(f"{_own_name()}\n")
        file.flush()
    except OSError:
        path.unlink()
        with suppress(OSError):  # closing tries to write again
            file.close()
        raise


def _own_name() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)  # a link would lead to a file that is then emptied


def _holder(file: IO[str]) -> str:
    """Return the text of a lock file that another process holds."""
    with file:
        file.seek(0)
        text = file.read(200).strip()
    return text if re.fullmatch(r"process \d+ on [\w.-]+", text) else "another process"


def _is_file_at(path: Path, file: IO[str]) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
