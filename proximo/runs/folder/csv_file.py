"""CSV files that grow by whole lines and survive a kill, and the error for files that cannot be written."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proximo.errors import FilesError, warn
from proximo.runs.command_line import pasted
from proximo.runs.folder.files import open_regular
from proximo.runs.folder.writing import reason, remedy

MOST_OF_A_LINE = 1 << 20  # characters


@contextmanager
def files_of(folder: Path) -> Iterator[None]:
    """Turn a full disk, a missing permission or a vanished folder into a FilesError that names the folder."""
    try:
        yield
    except FilesError:
        raise
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not os.path.isdir(folder):
            raise removed(folder) from error
        restore = "" if error.errno == errno.EMFILE else " or restore the folder"
        raise FilesError(f"The log in {folder} cannot be written ({reason(error)}). "
                         f"{remedy(error)}{restore}.") from error


def removed(folder: Path) -> FilesError:
    """Return the error for a run whose folder is gone; nothing more is to be written there."""
    return FilesError(f"The folder {folder} has been removed or moved while the run was writing to it. Restore it and "
                      f"continue with `proximo resume {pasted(folder)}`, or start the run again.")


class CsvFile:
    """A CSV file that grows by whole lines.

    Args:
        path: The file.
        keep: Bytes of an existing file that stay; the rest is cut off.
    """

    def __init__(self, path: Path, keep: int = 0) -> None:
        self.path = path
        self._file = open(path, "ab", buffering=1 << 17)  # noqa: SIM115
        self.size = keep
        try:
            if keep and path.stat().st_size < keep:
                warn(f"{path} is shorter than when the checkpoint was written: lines are missing from it.")
                self.size = path.read_bytes().rfind(b"\n") + 1
            if path.is_file():
                self._file.truncate(self.size)
        except BaseException:
            self.close()
            raise

    def header(self) -> list[str]:
        """Return the names in the first line; none for a new file."""
        return read_header(self.path) if self.size else []

    def write(self, lines: str) -> None:
        """Append whole lines; they reach the file at the next flush."""
        data = lines.encode()
        self.size += len(data)
        self._file.write(data)

    def flush(self) -> None:
        """Flush all lines to the operating system.

        Raises:
            OSError: The disk is full, or the file has vanished.
            FilesError: Another file is in its place, such as that of a run that was started in the same folder.
        """
        self._file.flush()
        there, own = self.path.stat(), os.fstat(self._file.fileno())
        if not os.path.samestat(there, own) and there.st_size != own.st_size:  # on some file systems numbers change
            raise FilesError(f"{self.path} was replaced by another file while the run was writing to it. If the folder "
                             f"still belongs to this run, continue with `proximo resume {pasted(self.path.parent)}`; "
                             "otherwise train in another folder.")

    def close(self) -> None:
        """Flush and close the file."""
        self._file.close()


def read_header(path: Path) -> list[str]:
    """Return the names in the first line of a file in UTF-8."""
    with open_regular(path, most=None) as file:
        return file.readline(MOST_OF_A_LINE).decode(errors="replace").strip().split(",")
