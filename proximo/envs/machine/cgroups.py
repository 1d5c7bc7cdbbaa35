"""The limits that a container, or another control group of Linux, sets for this process."""

from collections.abc import Iterator
from pathlib import Path


def cgroup_files(controller: str, second: str, first: str) -> Iterator[Path]:
    """Yield the files with a limit of this process's cgroup and of those around it. They need not exist.

    Args:
        controller: The controller that sets the limit, such as "memory".
        second: The name of the file in version 2.
        first: Its name in version 1.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        place, name = ("/sys/fs/cgroup", second) if not controllers else (f"/sys/fs/cgroup/{controller}", first)
        if not controllers or controller in controllers.split(","):
            inner = Path(path.lstrip("/"))
            yield from (Path(place) / folder / name for folder in (inner, *inner.parents))
