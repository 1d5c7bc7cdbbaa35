"""Sharing the folder of a model: which files belong to it, copying them, and the places to push to and pull from.

A pulled model is untrusted. Only regular files of known names and limited sizes are taken, nothing in them
is run, and what they name is imported only if the user allows it (envs/custom/imports.py).
"""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from proximo.errors import FilesError, UsageError, notify
from proximo.models.export.card import MOST_BYTES, PAGE, RECORD, WEIGHTS, read_card
from proximo.models.export.hub import Repository, download, list_files, upload
from proximo.models.read_folder import read_model
from proximo.runs.folder.files import read_text
from proximo.runs.folder.writing import unwritten
from proximo.runs.logs.output import return_text

MB = 2**20
SIZES = {"manifest.json": MB, "tree.json": 10 * MB, WEIGHTS: 4096 * MB, PAGE: MB, RECORD: MOST_BYTES,
         "curve.png": 20 * MB, "replay.mp4": 200 * MB, "replay.gif": 200 * MB}  # most bytes of each file of a model
NEEDED = ("manifest.json", "tree.json", WEIGHTS)
HUB = "hub:"


def place(text: str) -> Repository | Path:
    """Return where `hub:USER/NAME` or a folder is.

    Raises:
        UsageError: The text is neither of them.
    """
    if not text.startswith(HUB):
        return Path(text)
    name = text.removeprefix(HUB)
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", name):
        raise UsageError(f"{text} is not a repository of the Hugging Face Hub. Write hub:USER/NAME.")
    return Repository(name)


def push(folder: Path, to: Repository | Path, private: bool = False) -> str:
    """Copy a model and its card to a folder or to the Hub.

    Args:
        folder: The folder of the model.
        to: What `place` returned.
        private: Create the repository as a private one.

    Returns:
        The path or the address.

    Raises:
        UsageError: The model has no card, or the place cannot be written to.
        FilesError: A file is damaged, or cannot be read or written.
    """
    if not (folder / RECORD).is_file() or not (folder / PAGE).is_file():
        raise UsageError(f"{folder} has no card, which says what the model is and how good. Write it first: proximo "
                         "card RUN")
    read_model(folder)
    found = regular_files(folder)
    check_card(folder)
    if isinstance(to, Repository):
        return upload(to, {name: folder / name for name in found}, private)
    with new_folder(to, replaces=True) as beside:
        copy_files(folder, found, beside)
    return str(to)


def check_card(folder: Path) -> None:
    """Raise FilesError if the card of a model is damaged: its eval.json, or a page without text."""
    try:
        read_card(folder)
        if not read_text(folder / PAGE).strip():
            raise FilesError(f"{folder / PAGE} is empty.")
    except FilesError as error:
        raise FilesError(f"The card is damaged, so nothing was shared. Write it again: proximo card RUN\n{error}") \
            from error


def pull(source: Repository | Path, run: Path) -> list[str]:
    """Copy a shared model to RUN/model.

    Args:
        source: What `place` returned.
        run: The folder, which must not exist or be empty.

    Returns:
        The names of the files.

    Raises:
        UsageError: There is no model, a file is too large or not a regular one, or the folder is not empty.
        FilesError: A file is damaged, or cannot be read or written.
    """
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise UsageError(f"{run} exists already and is not an empty folder. Name another one.")
    with new_folder(run / "model") as beside:
        folder: Repository | Path = source
        if isinstance(source, Repository):
            listing = list_files(source)  # all files come from its commit, also if another one is pushed meanwhile
            found = checked_sizes(str(source), listing.sizes)
            for name in found:
                download(source, listing.commit, name, beside)
            checked_sizes(str(source), {name: (beside / name).stat().st_size for name in found})
        else:
            folder = source / "model" if (source / "model" / "manifest.json").is_file() else source
            found = regular_files(folder)
            copy_files(folder, found, beside)
        try:
            read_model(beside)
            if RECORD in found:
                read_card(beside)
        except FilesError as error:
            raise FilesError(str(error).replace(str(beside), str(folder))) from error
    return found


def regular_files(folder: Path) -> list[str]:
    """Return the names of the files in a folder that belong to a shared model.

    Raises:
        UsageError: There is no such folder, files are missing, or one is a link, a device or too large.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not the folder of a model: there is no such folder.")
    sizes, others = {}, []
    for name in SIZES:
        path = folder / name
        if path.is_symlink() or path.exists():
            entry = path.lstat()
            sizes[name] = entry.st_size
            others += [] if stat.S_ISREG(entry.st_mode) else [name]
    if others:
        raise UsageError(f"{folder} has {', '.join(others)}, which is no regular file. Only regular files are taken.")
    return checked_sizes(str(folder), sizes)


def checked_sizes(where: str, sizes: Mapping[str, int]) -> list[str]:
    """Return the names that belong to a shared model, of files and their sizes; a message names those left out.

    Raises:
        UsageError: Files are missing, or one is too large.
    """
    wrong = [f"{where} has no {name}: it is not a model of Proximo." for name in NEEDED if name not in sizes]
    wrong += [f"{name} of {where} has {sizes[name]:,} bytes, and {most:,} are allowed." for name, most in SIZES.items()
              if sizes.get(name, 0) > most]
    if wrong:
        raise UsageError("\n".join(wrong))
    if left := sorted(sizes.keys() - SIZES.keys() - {".gitattributes"}):
        notify(f"Files that do not belong to a model were left out: {', '.join(left)}.")
    return [name for name in SIZES if name in sizes]


def copy_files(folder: Path, names: list[str], to: Path) -> None:
    """Copy files, none of which may have become a link since it was looked at."""
    for name in names:
        with open(os.open(folder / name, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as source, \
                open(to / name, "wb") as copy:
            shutil.copyfileobj(source, copy)


@contextmanager
def new_folder(folder: Path, replaces: bool = False) -> Iterator[Path]:
    """Yield a folder of another name to fill. It is renamed at the end: the folder appears completely or not at all.

    Args:
        folder: The folder.
        replaces: It may take the place of an earlier shared model. Without, a folder that is not empty is refused.

    Raises:
        UsageError: The folder holds something else.
        FilesError: It cannot be written.
    """
    held = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if (folder.exists() and not folder.is_dir()) or (held and not (replaces and held <= SIZES.keys())):
        raise UsageError(f"{folder} exists and is not a shared model. Name another folder.")
    created = [parent for parent in folder.parents if not parent.exists()]  # the innermost first
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as place:
            beside = Path(place) / "new"
            beside.mkdir()
            yield beside
            if folder.exists():
                folder.rename(Path(place) / "old")
            beside.rename(folder)
    except OSError as error:
        if isinstance(error, FilesError):
            raise
        raise unwritten(folder, error, ", or name another folder") from error
    finally:
        if not folder.exists():
            with suppress(OSError):
                for parent in created:
                    parent.rmdir()


def claimed_score(run: Path) -> str:
    """Return what the card of a pulled model says of itself, "" without a card; FilesError if it is damaged."""
    if not (run / "model" / RECORD).is_file():
        return ""
    record, how = read_card(run / "model")
    mean, low, high = map(return_text, (record["episodic_return_mean"], *record["interval"]))
    return (f"{mean} ({low} to {high}) over {how.episodes} episodes of "
            f"{record['env_id'][:80]!r}")
