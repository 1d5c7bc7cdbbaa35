"""Files that a benchmark keeps in its folder: JSON records, which are complete or absent, and a lock."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proximo.errors import UsageError


def read_record(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or {} if the file is missing or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_record(path: Path, content: Mapping[str, object]) -> None:
    """Write a JSON file beside `path`, then rename it, so that a kill leaves no damaged file."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps(content, indent=1), encoding="utf-8")
    beside.replace(path)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder: two benchmarks in one folder would start every run twice.

    Raises:
        UsageError: If another process holds the lock.
    """
    try:
        import fcntl
    except ImportError:  # not on this system
        yield
        return
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"another benchmark is running in {folder}. Wait until it has finished, or choose another "
                             "folder with --out.") from error
        yield
