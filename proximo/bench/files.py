"""The JSON records that a benchmark keeps in its folder: they are complete or absent."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from proximo.errors import FilesError, warn
from proximo.runs.files import read_json


def read_record(path: Path, kind: Any) -> dict[str, Any]:
    """Return the object in a JSON file; {} if the file is missing, and with a warning if it is damaged.

    Args:
        path: The file.
        kind: The TypedDict that its content must have.
    """
    try:
        return cast(dict[str, Any], read_json(path, kind))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except FilesError as error:
        warn(f"{' '.join(str(error).splitlines())} The file is ignored.")
        return {}


def write_record(path: Path, content: Mapping[str, object]) -> None:
    """Write a JSON file beside `path`, then rename it, so that a kill leaves no damaged file."""
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)  # a link would lead somewhere else
    beside.write_text(json.dumps(content, indent=1), encoding="utf-8")
    beside.replace(path)
