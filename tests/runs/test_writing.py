"""A file is written completely or not at all, whatever fails, and the message says what to do."""

import errno
import json
import os

import pytest
from safetensors import SafetensorError

from proximo.errors import FilesError, UsageError
from proximo.runs.writing import remedy, unwritten, whole_file, write_json
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


def test_what_a_killed_process_has_left_is_replaced(tmp_path):
    """It may be a link of a stranger, which is not followed; nor is one in the place of the file."""
    (tmp_path / "mine").write_text("mine")
    for name in (".a.tmp.json", "a.json"):
        (tmp_path / name).symlink_to(tmp_path / "mine")
    write_json(tmp_path / "a.json", {"a": 1})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": 1} and not (tmp_path / "a.json").is_symlink()
    assert (tmp_path / "mine").read_text() == "mine" and not (tmp_path / ".a.tmp.json").exists()


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


def test_the_number_of_a_fault_that_a_library_writes_as_text(tmp_path):
    error = SafetensorError(f"Error while serializing: I/O error: {os.strerror(errno.ENOSPC)} (os error {errno.ENOSPC})")
    assert str(unwritten(tmp_path, error, "")) == f"{tmp_path} could not be written ({os.strerror(errno.ENOSPC)}). Free disk space."
