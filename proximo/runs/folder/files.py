"""The one reader of JSON and TOML files. They are untrusted: regular, of limited size, with known types.

A TypedDict (runs/folder/records.py, bench/records.py) describes a kind of file; pydantic compares the content with it.
pydantic is imported where a file is read, because that takes longer than the rest of a command.
"""

import codecs
import hashlib
import json
import os
import reprlib
import stat
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar, cast

from proximo.errors import SAVE_AS_UTF8, FilesError, UsageError
from proximo.runs.folder.writing import unread

MOST_BYTES = 64 << 20  # of a file of text
MOST_SHOWN = 5  # problems of one file that are listed
MOST_FAULTS = 10_000  # of more, only the number is reported: a record of each needs a kilobyte
POPULATION_FILE = "pbt.json"  # in the folder of a population, beside its rounds
LOGS = frozenset(("metrics.csv", "episodes.csv", "summary.json"))  # beside a config.json: it is that of a run
ALLOWED = {  # by the types of pydantic's errors
    "int_type": "a whole number", "int_from_float": "a whole number", "float_type": "a number",
    "finite_number": "a finite number", "string_type": "text in quotes", "bool_type": "true or false",
    "list_type": "a list in square brackets", "dict_type": "a table of names and values"}
Kind = TypeVar("Kind")
Place = tuple[int | str, ...]  # of a value in tables and lists


def given_path(given: Any, name: str, advice: str) -> Path:
    """Return the path that an argument names; ~ is the home folder.

    Args:
        given: The argument.
        name: Its name, for the message.
        advice: What to give, for the message.

    Raises:
        UsageError: The argument is not a path.
    """
    if not isinstance(given, (str, os.PathLike)) or not (text := os.fspath(given)) or "\0" in str(text):
        raise UsageError(f"{name}={given!r:.60} is not a path. {advice}")
    return Path(os.path.expanduser(text))


def is_folder(path: Path) -> bool:
    """Return whether there is such a folder; False for a path that no file can have."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def is_number(text: str) -> bool:
    """Return whether a text has the digits 0 to 9 only, as the names of checkpoints have."""
    return text.isascii() and text.isdecimal()


def visit_folders(directory: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield a folder and those below it, with names of files; nothing below a run, nor what a benchmark moved aside.

    Of a population only the newest round, because its runs begin with the lines of those that they continue. A
    config.json of another program is not among the names.
    """
    for folder, inner, files in os.walk(directory):
        if "config.json" in files and LOGS.isdisjoint(files) and _is_foreign(Path(folder) / "config.json"):
            files.remove("config.json")
        inner[:] = [] if "config.json" in files else [name for name in inner if not name.endswith(".old")]
        if POPULATION_FILE in files:
            rounds = (name for name in inner if name.startswith("round-"))
            inner[:] = sorted(rounds, key=lambda name: (len(name), name))[-1:]
        yield Path(folder), files


def _is_foreign(path: Path) -> bool:
    """Return whether a config.json has none of what Proximo writes; one that cannot be read may be a run's."""
    try:
        return read_json(path, dict[str, Any]).keys().isdisjoint(("config", "variant"))
    except OSError:
        return False


def open_regular(path: Path, most: int | None = MOST_BYTES) -> BufferedReader:
    """Open a regular file for reading. Links are followed.

    Args:
        path: The file.
        most: The largest size in bytes; None: any.

    Raises:
        FileNotFoundError: The file does not exist.
        FilesError: The file is a folder, a pipe or a device, which could be read without end, is too large, or cannot
            be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe without a writer would block
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise unread(path, error) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FilesError(f"{path} is not a regular file. Give the folder that Proximo wrote.")
        if most is not None and status.st_size > most:
            raise FilesError(f"{path} has {status.st_size:,} bytes. Such a file has at most {most:,}.")
        return os.fdopen(descriptor, "rb")
    except FilesError:
        os.close(descriptor)
        raise


def sha256(path: Path, most: int | None = None) -> str:
    """Return the SHA-256 of a regular file; raises what `open_regular` raises."""
    with open_regular(path, most) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """Return the text of a regular file in UTF-8, without a byte order mark.

    Raises:
        FilesError: It has other bytes, such as UTF-16, or `open_regular` raises it.
        FileNotFoundError: It does not exist.
    """
    with open_regular(path, most) as file:
        try:
            content = file.read(most)
            if not content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                return content.decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise FilesError(f"{path} cannot be read ({error}).") from error
    raise FilesError(f"{path} is UTF-16. {SAVE_AS_UTF8}")


def read_json(path: Path, kind: type[Kind], most: int = MOST_BYTES) -> Kind:
    """Return the content of a JSON file.

    Args:
        path: The file.
        kind: The TypedDict, or another type, that its content must have.
        most: Its largest size in bytes.

    Raises:
        FileNotFoundError: The file does not exist.
        FilesError: It cannot be read, is not JSON, or its content has other types; one sentence for each problem.
    """
    text = read_text(path, most)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:  # a recursion: brackets in brackets
        raise FilesError(f"{path} is not JSON ({error}). Restore it from a copy.") from error
    return typed(content, kind, path)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file; raises what `read_json` raises."""
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise FilesError(f"{path} is not TOML: {error}") from error


def typed(content: Any, kind: type[Kind], path: Path) -> Kind:
    """Return content that has the types of `kind`; FilesError, with one sentence for each problem, if it has not."""
    if problems := type_errors(content, kind):
        more = [f"{path} has {len(problems) - MOST_SHOWN} more problems."] * (len(problems) > MOST_SHOWN)
        raise FilesError("\n".join([*(f"{path}: {problem}" for problem in problems[:MOST_SHOWN]), *more]))
    return cast(Kind, content)


def type_errors(content: Any, kind: Any) -> list[str]:
    """Return one sentence for each part of `content` that is missing or has another type than `kind` says.

    Keys that `kind` does not name are allowed.
    """
    return list(dict.fromkeys(sentence for _, sentence in type_faults(content, kind)))


def type_faults(content: Any, kind: Any) -> list[tuple[Place, str]]:
    """Return the place and the sentence of each fault that `type_errors` finds; keys and numbers lead to the place."""
    from pydantic import ValidationError

    try:
        _adapter(kind).validate_python(content, strict=True)
    except ValidationError as error:
        if error.error_count() > MOST_FAULTS:
            return [((), f"{error.error_count():,} values are missing or have another type.")]
        found: dict[Place, list[Any]] = {}  # of a value that may have several types, one fault for each
        for one in error.errors(include_url=False, include_context=False):
            found.setdefault(_place(content, one["loc"]), []).append(one)
        above = {place[:count] for place in found for count in range(len(place))}  # a list that might be a number
        return [(place, _sentence(place, faults)) for place, faults in found.items() if place not in above]
    return []


def refuse_links(paths: Iterable[Path]) -> None:
    """Refuse to write through links in an untrusted folder: they lead to files somewhere else.

    Args:
        paths: What is to be written.

    Raises:
        FilesError: One of them is a symbolic link.
    """
    for path in paths:
        if path.is_symlink():
            raise FilesError(f"{path} is a symbolic link to {os.readlink(path)!r}: writing to it would change files "
                             "somewhere else. Copy the folder without links first: cp -rL FOLDER COPY")


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _place(content: Any, location: Place) -> Place:
    """Return the keys and numbers of a location, without the names of types that pydantic adds."""
    node, place = content, []
    for part in location:
        if isinstance(node, dict):
            place.append(part)
            node = node.get(part)
        elif isinstance(node, list) and isinstance(part, int):
            place.append(part)
            node = node[part]
    return tuple(place)


def _sentence(place: Place, faults: Sequence[Any]) -> str:
    name = ""
    for part, before in zip(place, ("", *place)):  # run 2: env_ids 1, counted from 1
        between = ": " if isinstance(before, int) else "." if before else ""
        name += f" {part + 1}" if isinstance(part, int) else f"{between}{part}"
    name, first = name.lstrip() or "the whole", faults[0]
    if first["type"] == "missing":
        return f"{name} is missing."
    allowed = [ALLOWED[one["type"]] for one in faults if one["type"] in ALLOWED]
    why = (f". Use {' or '.join(dict.fromkeys(allowed))}" if allowed else
           f": {first['msg'][:1].lower()}{first['msg'][1:200]}")
    return f"{name}={reprlib.repr(first['input']):.60} is not allowed{why}."
