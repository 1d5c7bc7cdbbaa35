"""The JSON records that a benchmark keeps in its folder: they are complete or absent."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from proximo.errors import FilesError, warn
from proximo.runs.files import read_json
from proximo.runs.writing import write_json

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
