"""The folders of compiled functions in the user's cache."""

import os
from pathlib import Path

from proximo.errors import FilesError


def user_cache(name: str) -> Path:
    """Return the folder `name` of Proximo in the user's cache, created if it does not exist.

    Raises:
        FilesError: It cannot be created, or the user has no home folder.
    """
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "proximo" / name
    except RuntimeError as fault:
        raise FilesError("This user has no home folder for the cache of compiled functions. Set HOME or "
                         "XDG_CACHE_HOME to a folder that can be written.") from fault
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as fault:
        raise FilesError(f"The cache {folder} cannot be created ({fault.strerror}). Set XDG_CACHE_HOME to a folder "
                         "that can be written.") from fault
    return folder
