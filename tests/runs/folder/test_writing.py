"""A file is written completely or not at all, whatever fails, and the message says what to do."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import SafetensorError

from proximo.errors import FilesError, PeerError, UsageError
from proximo.runs.folder.writing import name_beside, named_faults, remedy, unwritten, whole_file, write_json
from tests.support.full_disk import REASON, bytes_below, full_disk


def test_a_file_appears_at_the_end_with_its_folder(tmp_path):
    with whole_file(tmp_path / "new" / "a.json") as beside:
        beside.write_text("1")
        assert not (tmp_path / "new" / "a.json").exists() and beside.suffix == ".json"
    assert bytes_below(tmp_path) == {"new/a.json": b"1"}


@pytest.mark.parametrize("error", [UsageError("no"), KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_what_fails_leaves_the_older_file_and_no_other(error, tmp_path):
    write_json(tmp_path / "a.json", {"a": 1})
    before = bytes_below(tmp_path)
    with pytest.raises(FilesError if isinstance(error, OSError) else type(error)), whole_file(tmp_path / "a.json") as beside:
        beside.write_text("half")
        raise error
    assert bytes_below(tmp_path) == before


def test_a_full_disk(tmp_path):
    write_json(tmp_path / "a.json", {"a": 1})
    before = bytes_below(tmp_path)
    with full_disk(), pytest.raises(FilesError, match=rf"a.json could not be written \({REASON}\). .*, then do it again\.$"):
        write_json(tmp_path / "a.json", {"a": 2}, ", then do it again")
    assert bytes_below(tmp_path) == before


def ended_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_killed_process_has_left_is_removed(tmp_path):
    """It may be a link of a stranger, which is not followed; nor is one in the place of the file."""
    (tmp_path / "mine").write_text("mine")
    path = tmp_path / "a.json"
    for name in (name_beside(path, ended_process()), name_beside(path, os.getpid()), path):
        name.symlink_to(tmp_path / "mine")
    write_json(path, {"a": 1})
    assert bytes_below(tmp_path) == {"a.json": path.read_bytes(), "mine": b"mine"} and not path.is_symlink()
    assert json.loads(path.read_text()) == {"a": 1}


@pytest.mark.parametrize("first", [1, 2])
def test_two_processes_that_write_one_file_do_not_disturb_each_other(first, tmp_path, monkeypatch):
    """Each ends without an error, and the last one wins; what the other is writing is not removed."""
    path, processes = tmp_path / "a.json", {1: os.getpid(), 2: os.getppid()}
    writers = {}
    for number, process in processes.items():
        monkeypatch.setattr(os, "getpid", lambda process=process: process)
        writers[number] = whole_file(path)
        writers[number].__enter__().write_text(str(number))
    for number in (first, 3 - first):
        writers[number].__exit__(None, None, None)
        assert path.read_text() == str(number)
    assert list(tmp_path.iterdir()) == [path]


def test_json_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Otherwise a power failure could leave an empty config.json beside whole checkpoints."""
    fsync, synced = os.fsync, []

    def note(descriptor):
        fsync(descriptor)
        synced.append((os.fstat(descriptor).st_size, (tmp_path / "a.json").exists()))

    monkeypatch.setattr(os, "fsync", note)
    write_json(tmp_path / "a.json", {"a": 1})
    assert synced == [((tmp_path / "a.json").stat().st_size, False)]


@pytest.mark.parametrize("platform,refused,written", [("win32", 1, True), ("win32", 99, False), ("linux", 1, False)])
def test_a_file_that_another_program_has_open_is_replaced_later(platform, refused, written, tmp_path, monkeypatch):
    """Windows refuses to replace a file while it is open."""
    replace, calls = Path.replace, []

    def refuse(path, target):
        calls.append(path)
        if len(calls) <= refused:
            raise PermissionError(errno.EACCES, "Access is denied")
        return replace(path, target)

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "replace", refuse)
    monkeypatch.setattr("proximo.runs.folder.writing.OPEN_SECONDS", 0.3)
    if written:
        write_json(tmp_path / "a.json", {"a": 1})
    else:
        with pytest.raises(FilesError, match="Make the folder writable"):
            write_json(tmp_path / "a.json", {"a": 1})
    assert (tmp_path / "a.json").exists() == written and len(list(tmp_path.iterdir())) == written


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to a device"])
def test_what_is_no_file_is_not_replaced(kind, tmp_path):
    """Root could replace /dev/null."""
    path = tmp_path / "x"
    path.mkdir() if kind == "folder" else os.mkfifo(path) if kind == "pipe" else path.symlink_to(os.devnull)
    before = path.lstat()
    with pytest.raises(FilesError, match="Give the name of a file"):
        write_json(path, {})
    assert path.lstat() == before and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number,advice", [
    (errno.ENOSPC, "Free disk space"), (errno.EDQUOT, "Free disk space"), (errno.EACCES, "Make the folder writable"),
    (errno.EROFS, "Make the folder writable"), (errno.EIO, "Check the disk and the path"), (errno.ENAMETOOLONG, "Use a shorter name"),
    (errno.ENOTDIR, "Remove the file that is in the place of the folder"),
    (errno.EISDIR, "Remove the folder that is in the place of the file")])
def test_the_remedy_is_that_of_the_fault(number, advice, tmp_path):
    """More space on the disk does not help where a file is in the way."""
    error = OSError(number, os.strerror(number))
    assert remedy(error) == advice
    assert str(unwritten(tmp_path, error)) == (
        f"{tmp_path} could not be written ({os.strerror(number)}). {advice}, or choose another place.")


@pytest.mark.parametrize(("number", "name", "said"), [
    (errno.EMFILE, "a", "a: Too many open files. Raise the limit of open files (ulimit -n)."),
    (errno.EMFILE, None, "run: Too many open files. Raise the limit of open files (ulimit -n)."),
    (errno.EACCES, "a", "a: Permission denied.")])
def test_a_fault_of_reading_or_writing_names_its_file(number, name, said):
    with pytest.raises(FilesError) as caught, named_faults(Path("run")):
        raise OSError(number, os.strerror(number), name)
    assert str(caught.value) == said


def test_errors_that_have_a_sentence_keep_it():
    with pytest.raises(PeerError, match="^rank 1$"), named_faults():
        raise PeerError("rank 1")  # is an OSError


def test_the_number_of_a_fault_that_a_library_writes_as_text(tmp_path):
    error = SafetensorError(f"Error while serializing: I/O error: {os.strerror(errno.ENOSPC)} (os error {errno.ENOSPC})")
    assert str(unwritten(tmp_path, error, "")) == f"{tmp_path} could not be written ({os.strerror(errno.ENOSPC)}). Free disk space."
