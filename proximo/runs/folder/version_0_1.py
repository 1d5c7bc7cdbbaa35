"""Files of version 0.1.0: configurations and models of its runs are read, its checkpoints are refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proximo.errors import FilesError
from proximo.runs.command_line import pasted
from proximo.runs.folder.files import read_json


def present_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a configuration as this version has them: units of each layer, and names of schedules."""
    fields = dict(values)
    if "hidden_size" in fields and "hidden_sizes" not in fields:
        fields["hidden_sizes"] = [fields.pop("hidden_size")] * 2
    for name in {"anneal_lr", "anneal_clip"} & fields.keys():
        if isinstance(fields[name], bool):
            fields[name] = "linear" if fields[name] else "none"
    return fields


def refuse_checkpoint(folder: Path, most: int) -> None:
    """Raise FilesError if RUN/checkpoints/ITERATION was written by version 0.1.0.

    Args:
        folder: A checkpoint that could not be read.
        most: The largest size of its tree.json in bytes.
    """
    try:
        tree = read_json(folder / "tree.json", dict[str, Any], most)
    except OSError:
        return
    if "identity" in tree and "fixed" not in tree:
        run = folder.parent.parent
        raise FilesError(f"{folder} was written by Proximo 0.1.0, and this version does not read its checkpoints. "
                         "Resume the run with Proximo 0.1.0, or train again in another folder; `--init-from "
                         f"{pasted(run)}` begins with its weights.")
