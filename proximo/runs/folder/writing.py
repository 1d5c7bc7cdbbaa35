"""Files and folders that appear completely or not at all, and what to do where one cannot be written or opened."""

import ctypes
import errno
import json
import os
import re
import socket
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from proximo.errors import FilesError, ProximoError

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of the system call renameat2 of Linux
FULL = (errno.ENOSPC, errno.EDQUOT)
READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
OF_THE_PROCESS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # are no faults of a file
OF_THE_DISK = (*FULL, *READ_ONLY, errno.EIO, errno.EFBIG)
REMEDIES = {**dict.fromkeys(FULL, "Free disk space"), **dict.fromkeys(READ_ONLY, "Make the folder writable"),
            errno.EFBIG: "Raise the limit of the size of files (ulimit -f)", errno.ENAMETOOLONG: "Use a shorter name",
            errno.EMFILE: "Raise the limit of open files (ulimit -n)",
            errno.EISDIR: "Remove the folder that is in the place of the file"}
ELSEWHERE = ", or choose another place"
OPEN_SECONDS, PAUSE = 2.0, 0.1  # of trying to replace a file that another program has open under Windows


def remedy(error: Exception) -> str:
    """Return what to do about a file or folder that cannot be written, as the beginning of a sentence."""
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return "Remove the file that is in the place of the folder"
    return REMEDIES.get(number_of(error), "Check the disk and the path")


def reason(error: BaseException) -> str:
    """Return what the operating system says about a fault."""
    if number := 0 if isinstance(error, OSError) else number_of(error):
        return os.strerror(number)
    return getattr(error, "strerror", None) or str(error)


def number_of(error: BaseException | None) -> int:
    """Return the errno of a fault, 0 if it has none. Libraries in Rust, such as safetensors, write it as text."""
    found = re.search(r"\(os error (\d+)\)", str(error))
    return getattr(error, "errno", None) or (int(found[1]) if found else 0)


def unwritten(path: Path, error: Exception, otherwise: str = ELSEWHERE) -> FilesError:
    """Return the error for a file or folder that cannot be written.

    Args:
        path: The file or folder.
        error: What the operating system has raised.
        otherwise: What follows the remedy in its sentence: what else to do, or what to do after it.
    """
    return FilesError(f"{path} could not be written ({reason(error)}). {remedy(error)}{otherwise}.")


def unread(path: Path, error: Exception) -> FilesError:
    """Return the error for a file that cannot be opened for reading."""
    advice = f" {remedy(error)}." if number_of(error) == errno.EMFILE else ""
    return FilesError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).{advice}")


@contextmanager
def named_faults(path: Path | None = None) -> Iterator[None]:
    """Turn an OSError into a FilesError that names its file, or `path` if it names none; also a decorator."""
    try:
        yield
    except ProximoError:
        raise
    except OSError as error:
        place = error.filename or path or "A file cannot be opened"
        advice = "" if error.errno in READ_ONLY else f" {remedy(error)}."  # it may have been read, not written
        raise FilesError(f"{place}: {reason(error)}.{advice}") from error


def exchange(one: Path, other: Path) -> bool:
    """Swap the names of two folders in one step, so that a reader finds one of them at any time.

    Return False where the operating system or the file system cannot do so: only Linux can.
    """
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    names = os.fsencode(one), os.fsencode(other)
    return rename is not None and rename(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0


@contextmanager
def whole_file(path: Path, otherwise: str = ELSEWHERE) -> Iterator[Path]:
    """Give another name to write a file under, which is changed at the end; the folder is made.

    A failure leaves an earlier file as it was, and nothing under the other name. Each process uses a name of its own:
    if two write one file at once, that of the later one stays. Nothing is synced with the disk.

    Args:
        path: The file. A link is replaced, not followed.
        otherwise: See `unwritten`.

    Raises:
        FilesError: The file cannot be written, or a folder, a pipe or a device has its name.
    """
    _check_replaceable(path)
    beside = name_beside(path, os.getpid())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_left(path)
        beside.unlink(missing_ok=True)  # a link would lead somewhere else
        yield beside
        _replace(beside, path)
    except BaseException as error:
        with suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError) and not isinstance(error, ProximoError):
            raise unwritten(path, error, otherwise) from error
        raise


def write_json(path: Path, content: Mapping[str, object], otherwise: str = ELSEWHERE) -> None:
    """Write a JSON file completely or not at all, also if the power fails; raises what `whole_file` raises."""
    with whole_file(path, otherwise) as beside, beside.open("w", encoding="utf-8") as file:
        file.write(json.dumps(content, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())


def name_beside(path: Path, process: int) -> Path:
    """Return the name under which a process of this machine writes a file; its ending gives the format of a picture."""
    return path.with_name(f".{path.stem}.{socket.gethostname()}-{process}.tmp{path.suffix}")


def _remove_left(path: Path) -> None:
    """Remove what processes of this machine have left that were killed while they wrote a file."""
    start, end = f".{path.stem}.{socket.gethostname()}-", f".tmp{path.suffix}"
    for left in path.parent.iterdir():
        found = re.fullmatch(rf"{re.escape(start)}(\d{{1,9}}){re.escape(end)}", left.name)
        if found and _has_ended(int(found[1])):
            left.unlink(missing_ok=True)


def _has_ended(process: int) -> bool:
    """Return whether no process of this machine has a number; False where that is unknown."""
    if sys.platform == "win32":  # there, os.kill would end the process
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:  # of another user
        return False
    return False


def _replace(beside: Path, path: Path) -> None:
    """Give a file the name of another one. Windows refuses that while a program reads the other one: try again."""
    end = time.monotonic() + (OPEN_SECONDS if sys.platform == "win32" else 0.0)
    while True:
        try:
            beside.replace(path)
            return
        except PermissionError:
            if time.monotonic() >= end:
                raise
            time.sleep(PAUSE)


def _check_replaceable(path: Path) -> None:
    """Refuse what a file must not take the place of: a folder, a pipe, or a device such as /dev/null."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # there is none, or it cannot be written either
        return
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise FilesError(f"{path} is {kind}. Give the name of a file.")
