"""The TOML files of benchmarks, searches and populations: their tables, and everything that has a wrong type."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from proximo.errors import FilesError, UsageError
from proximo.runs.command_line import pasted
from proximo.runs.folder.files import Place, is_folder, read_toml, type_faults

OWN_KEYS = {"tune": (("env_ids", "space"), {"trials", "seeds", "pruner", "storage", "sampler_seed", "target_scores"}),
            "pbt": (("env_id", "space"), {"population", "rounds", "seed"})}  # (keys of all files, keys of no other)


class Tables(NamedTuple):
    """The content of a file, as far as it has the right types."""

    content: Any
    problems: list[str]
    """one sentence for each value of a wrong type"""
    dropped: Collection[Place]
    """the places of these values, which are not in `content`"""

    def dropped_from(self, *place: int | str) -> set[int | str]:
        """Return the keys that were dropped from the table at a place, or from one of its values."""
        count = len(place)
        return {one[count] for one in self.dropped if one[:count] == place and len(one) > count}


def _command(content: Collection[str]) -> str:
    """Return the command that the keys of a file belong to; "" where they do not tell."""
    if "run" in content:
        return "bench"
    found = [name for name, (needed, own) in OWN_KEYS.items() if {*needed} <= {*content} and own & {*content}]
    return found[0] if len(found) == 1 else ""


def read_tables(path: Path, kind: Any, examples: str, command: str) -> Tables:
    """Return the tables of a TOML file.

    Args:
        path: The file.
        kind: The TypedDict that they should have.
        examples: The folder of the repository that has such files.
        command: The command that was given the file.

    Raises:
        UsageError: The file cannot be read, is not TOML, or belongs to another command.
    """
    advice = f"Files to copy are in the folder {examples} of the repository."
    if is_folder(path):
        raise UsageError(f"{path} is a folder. Name a TOML file. {advice}")
    try:
        content = read_toml(path)
    except FileNotFoundError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}). {advice}") from error
    except FilesError as error:
        raise UsageError(str(error)) from error
    if (right := _command(content)) not in ("", command):
        raise UsageError(f"{path} is a file of another command. Use `proximo {right} {pasted(path)}`.")
    faults = type_faults(content, kind)
    if faults and not faults[0][0]:  # too many to have places
        raise UsageError(f"{path}: {faults[0][1]}")
    dropped = {_drop(content, place) for place, _ in faults} - {()}
    return Tables(content, list(dict.fromkeys(sentence for _, sentence in faults)), dropped)


def _drop(content: dict[str, Any], place: Place) -> Place:
    """Remove the value at a place, or the list that it is in; return the place of what was removed, () for nothing."""
    node: Any = content
    owner: dict[Any, Any] = {}
    found: Place = ()
    for number, part in enumerate(place):
        if isinstance(node, dict) and part in node:
            owner, found = node, place[:number + 1]
        elif not (isinstance(node, list) and isinstance(part, int) and part < len(node)):
            break
        node = node[part]
    if found:
        del owner[found[-1]]
    return found
