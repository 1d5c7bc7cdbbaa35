"""The JSON records that a benchmark keeps in its folder: they are complete or absent."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


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
