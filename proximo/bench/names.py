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


OTHER_LABEL = "Give one of them a label that differs in ASCII letters or digits, and not only in upper and lower case."


def clashes(folders: Iterable[str], remedy: str = OTHER_LABEL) -> list[str]:
    """Return one sentence for each folder that several runs of a file have; it ends with what to do.

    Names that differ in upper and lower case only are one folder on some systems.
    """
    folders = list(folders)
    times = Counter(map(str.casefold, folders))
    twice = dict.fromkeys(folder for folder in folders if times[folder.casefold()] > 1)
    return [f"two runs would both write to {folder}. {remedy}"
            for folder in {folder.casefold(): folder for folder in twice}.values()]


def setting_text(value: object) -> str:
    """Return the value of a setting for a label, True and None in lower case. The case of a text may matter."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
