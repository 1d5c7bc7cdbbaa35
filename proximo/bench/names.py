"""The names of a benchmark's folders."""

import re
from collections import Counter
from collections.abc import Iterable

ASIDE = ".old"  # ends the names of results that a benchmark has moved aside, which reports pass over


def file_name(text: str) -> str:
    """Return text as the name of one folder, on every system."""
    return re.sub(r"[^A-Za-z0-9_.,=+-]+", "_", text)


def folder_name(title: str) -> str:
    """Return the title of a file as the name of one folder: its separators and first dots lead nowhere."""
    return re.sub(r"^\.+|[/\\\0]", "_", title)


def folder_of(env_id: str, label: str) -> str:
    """Return the folder of the runs of a label in an environment, below that of the benchmark."""
    return f"{file_name(env_id)}/{file_name(label)}"


def clashes(folders: Iterable[str], remedy: str = "Give one of them another label.") -> list[str]:
    """Return one sentence for each folder that several runs of a file have; it ends with what to do."""
    return [f"two runs would both write to {folder}. {remedy}"
            for folder, times in Counter(folders).items() if times > 1]
