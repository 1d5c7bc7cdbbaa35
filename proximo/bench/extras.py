"""Which packages of an extra of pip are not installed."""

import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires, version


def missing_of_extras(extras: Iterable[str]) -> list[str]:
    """Return the packages of some extras of Proximo that are not installed, by the metadata of its installation."""
    wanted = {f'extra == "{re.sub("[-_.]+", "-", extra).lower()}"' for extra in extras}
    try:
        lines = requires("proximo") or []
    except PackageNotFoundError:  # a source tree without an installation
        return []
    needed = [re.split(r"[^\w.-]", line)[0] for line in lines
              if line.partition(";")[2].replace("'", '"').strip() in wanted]
    return sorted({name for name in needed if not _is_installed(name)})


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
