"""Where a program may save a model: nothing but an earlier model is replaced."""

from pathlib import Path

from proximo.errors import UsageError
from proximo.runs.checkpoint import MANIFEST, TENSORS, TREE


def replaceable(folder: Path) -> Path:
    """Return the real path of a folder that a model may be written to: a new or empty one, or that of a model alone.

    Raises:
        UsageError: Something else is there, or it is the folder that the process works in.
    """
    path = folder.resolve()
    held = {one.name for one in path.iterdir()} if path.is_dir() else set()
    files = {TENSORS, TREE, MANIFEST}
    if (path.exists() and not path.is_dir()) or (held and (held - files or MANIFEST not in held)):
        raise UsageError(f"{folder} exists and is not a folder of a model alone. Nothing was changed. Name another "
                         "folder.")
    if Path.cwd().is_relative_to(path):
        raise UsageError(f"{folder} is the working directory, which a model cannot replace. Name another folder.")
    return path
