"""Read the new lines of a CSV file that another process writes."""

import os
from collections.abc import Sequence
from io import BufferedReader
from math import nan
from pathlib import Path

import numpy as np

from proximo.errors import FilesError
from proximo.runs.folder.files import open_regular

MOST_AT_ONCE = 4 << 20  # bytes that one call reads, so that a page opens soon; later calls read on
MOST_BYTES = 128 << 20  # of a longer file only the end is read
LONGEST_HEADER = 1 << 16
CHECKED = 256  # bytes before the end that must still be there, otherwise the file is another one


class Tail:
    """Reads a CSV file as it grows; from its beginning again when a resume has cut lines off or written others.

    Args:
        path: The file, which may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: list[str] = []
        """the columns, [] before the first line"""
        self.more = False
        """whether the last call left bytes unread"""
        self.skipped = 0
        """bytes of a very long file that are left out"""
        self._end, self._before_end = 0, b""

    def read(self) -> tuple[list[list[str]], bool]:
        """Return the cells of the new whole lines, and whether the rows of earlier calls no longer count."""
        try:
            with open_regular(self.path, most=None) as file:
                size = os.fstat(file.fileno()).st_size
                again = self._is_another(file)
                if again:
                    self._start(file, size)
                file.seek(self._end)
                data = file.read(MOST_AT_ONCE) if self.names else b""
        except (OSError, FilesError):
            return [], False
        whole = data[:data.rfind(b"\n") + 1] or (data if len(data) == MOST_AT_ONCE else b"")  # no line is so long
        self._end += len(whole)
        self._before_end = (self._before_end + whole[-CHECKED:])[-CHECKED:]
        self.more = len(data) == MOST_AT_ONCE
        rows = [line.split(",") for line in whole.decode(errors="replace").split("\n")]
        return [row for row in rows if len(row) == len(self.names) > 1], again

    def _is_another(self, file: BufferedReader) -> bool:
        file.seek(max(0, self._end - len(self._before_end)))
        return not self.names or file.read(len(self._before_end)) != self._before_end

    def _start(self, file: BufferedReader, size: int) -> None:
        file.seek(0)
        header = file.readline(LONGEST_HEADER)
        self.names = header.decode(errors="replace").strip().split(",") if header.endswith(b"\n") else []
        self._end, self._before_end, self.skipped = len(header), header[-CHECKED:], 0
        if size - self._end > MOST_BYTES:
            file.seek(size - MOST_BYTES)
            self._before_end = file.readline(MOST_AT_ONCE)[-CHECKED:]
            self.skipped, self._end = file.tell() - len(header), file.tell()


def to_numbers(rows: Sequence[Sequence[str]], columns: Sequence[int]) -> np.ndarray:
    """Return (R, C) float64 of some columns; NaN where a cell is not a number."""
    return np.array([[_number(row[k]) for k in columns] for row in rows], float).reshape(-1, len(columns))


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return nan
