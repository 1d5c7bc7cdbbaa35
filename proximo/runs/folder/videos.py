"""The videos in a run folder."""

from pathlib import Path

TYPES = {".mp4": "video/mp4", ".gif": "image/gif"}


def videos_of(folder: Path) -> list[str]:
    """Return the names of the videos of a run, the newest first. A link that leads out of the folder does not count."""
    inside = folder.resolve()
    try:
        found = [path for path in (folder / "videos").iterdir() if path.suffix in TYPES and path.is_file()
                 and not path.name.startswith(".") and path.resolve().is_relative_to(inside)]
    except OSError:
        return []
    return [path.name for path in sorted(found, key=changed_at, reverse=True)]


def changed_at(path: Path) -> int:
    """Return when a file or folder was changed, in ns; 0 if there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
