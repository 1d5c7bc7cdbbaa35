"""The JSON records in the folder of a benchmark, each complete or absent, and the last lines of its logs."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from proximo.errors import FilesError, warn
from proximo.runs.folder.files import open_regular, read_json
from proximo.runs.folder.writing import write_json

LAST_LINES = 12  # of a log, shown when a run fails
AGAIN = ", then start the same command again, which continues"  # where the disk is full


def read_record(path: Path, kind: Any, remedy: str = "") -> dict[str, Any]:
    """Return the object in a JSON file; {} if the file is missing, and with a warning if it is damaged.

    Args:
        path: The file.
        kind: The TypedDict that its content must have.
        remedy: What to do about a damaged file, as a sentence.
    """
    try:
        return cast(dict[str, Any], read_json(path, kind))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except FilesError as error:
        warn(f"{' '.join(str(error).splitlines())} The file is ignored. {remedy}".rstrip())
        return {}


def write_record(path: Path, content: Mapping[str, object]) -> None:
    """Write a JSON file completely or not at all.

    Raises:
        FilesError: It cannot be written.
    """
    write_json(path, content, AGAIN)


def last_lines(path: Path, folder: Path) -> str:
    """Return the last LAST_LINES lines of a log without "proximo: ", or an empty string if there is none.

    Args:
        path: The log. If it is a link that leads out of `folder`, there is none: a report would show another file.
        folder: The folder of the benchmark.
    """
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            return ""
        with open_regular(path, most=None) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            lines = file.read().decode(errors="replace").splitlines()[-LAST_LINES:]
            return "\n".join(line.removeprefix("proximo: ") for line in lines)
    except OSError:
        return ""
