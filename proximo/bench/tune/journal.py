"""The file that holds the study of a search: a journal of Optuna, of which every line is whole."""

import os
import reprlib
from collections.abc import Generator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proximo.bench.files import AGAIN
from proximo.errors import FilesError
from proximo.runs.folder.writing import unwritten

if TYPE_CHECKING:
    from optuna.storages import BaseStorage


def journal(folder: Path) -> "BaseStorage":
    """Return the storage in FOLDER/study.journal. It works on network file systems, where SQLite does not.

    Where the disk is full, it raises FilesError. The part of a line that a full disk or a crash leaves is removed
    before another line is written: with one after it, Optuna could not read the study any more.
    """
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalFileSymlinkLock

    path = folder.absolute() / "study.journal"
    lock = (JournalFileOpenLock if os.name == "nt" else JournalFileSymlinkLock)(str(path))

    class WholeLines(JournalFileBackend):
        def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
            try:
                for log in super().read_logs(log_number_from):
                    if not isinstance(log, dict) or not {"op_code", "worker_id"} <= log.keys():
                        raise ValueError(f"{reprlib.repr(log)} is no entry of a study")
                    yield log
            except ValueError as error:
                raise FilesError(f"{path} is damaged ({error}). Move it to another place, then start the same command "
                                 "again. It begins a new study, in which finished runs with equal values are not "
                                 "trained again.") from error

        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            try:
                if not _ends_with_a_line(path):
                    self._remove_part_of_a_line()
                super().append_logs(logs)
            except OSError as error:
                with suppress(OSError):
                    self._remove_part_of_a_line()
                raise unwritten(path, error, AGAIN) from error

        def _remove_part_of_a_line(self) -> None:
            with ExitStack() as held:
                lock.acquire()  # another process may be writing the rest of it
                held.callback(lock.release)
                os.truncate(path, path.read_bytes().rfind(b"\n") + 1)

    return JournalStorage(WholeLines(str(path), lock))


def _ends_with_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        return file.read() in (b"", b"\n")
