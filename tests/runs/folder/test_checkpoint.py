"""Checkpoints: what is read is what was written; one wrong bit is found; older ones stay until newer are whole."""

import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proximo.cli.main import main
from proximo.errors import FilesError
from proximo.runs.folder.checkpoint import checkpoints, load_tree, newest_checkpoint, save_checkpoint, save_tree
from proximo.runs.run_group import member_folders
from tests.support.runs import train

DTYPES = ("float32", "float64", "int32", "int64", "uint8", "bool", "uint64")
ARRAYS = st.builds(lambda dtype, shape, seed: np.asarray(np.random.default_rng(seed).random(shape) * 200, dtype),
                   st.sampled_from(DTYPES), st.sampled_from([(), (0,), (3,), (2, 3), (1, 2, 2)]), st.integers(0, 99))
LEAVES = st.one_of(ARRAYS, st.none(), st.booleans(), st.integers(-2**70, 2**70), st.floats(allow_nan=False),
                   st.text(max_size=5))
TREES = st.dictionaries(st.text("abc/é", min_size=1, max_size=4), st.recursive(
    LEAVES, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("xyz", min_size=1, max_size=3),
                                                                               inner, max_size=3)), max_leaves=8))


def equal(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and one == other


@given(tree=TREES)
def test_what_is_read_is_what_was_written(tree, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tree") / "kept"
    save_tree(folder, tree)
    assert equal(load_tree(folder), tree)
    save_tree(folder, {"second": 2})
    assert load_tree(folder) == {"second": 2} and [path.name for path in folder.parent.iterdir()] == ["kept"]


def test_arrays_that_are_views_or_transposed_are_kept_as_they_look(tmp_path):
    wide = np.arange(12.0).reshape(3, 4)
    save_tree(tmp_path / "kept", {"t": wide.T, "s": wide[:, ::2], "same": wide, "number": np.float32(2.5)})
    found = load_tree(tmp_path / "kept")
    assert np.array_equal(found["t"], wide.T) and np.array_equal(found["s"], wide[:, ::2]) and found["number"] == 2.5


@pytest.mark.skipif(os.name == "nt", reason="folders cannot be opened")
@pytest.mark.parametrize("replaces", [False, True])
def test_the_name_of_what_was_written_is_on_the_disk(replaces, tmp_path, monkeypatch):
    """The folder that holds it is synced after the last renaming: a power cut takes nothing back."""
    kept, synced, fsync = tmp_path / "kept", [], os.fsync
    if replaces:
        save_tree(kept, {"a": 1})

    def note(descriptor):
        whole = kept.exists() and load_tree(kept) == {"a": 2}
        synced.append((os.path.samestat(os.fstat(descriptor), tmp_path.stat()), whole))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    save_tree(kept, {"a": 2})
    assert (True, True) in synced


def test_any_wrong_bit_is_found(tmp_path):
    """Every 7th bit of every file of a small checkpoint."""
    folder = tmp_path / "kept"
    save_tree(folder, {"weights": np.arange(3, dtype=np.float32), "note": "n"})
    for path in folder.iterdir():
        whole = path.read_bytes()
        for bit in range(0, len(whole) * 8, 7):
            data = bytearray(whole)
            data[bit // 8] ^= 1 << bit % 8
            path.write_bytes(data)
            if path.name == "manifest.json":  # it names sums and a format: a bit may fall on what nobody reads
                try:
                    assert np.array_equal(load_tree(folder)["weights"], np.arange(3))
                except FilesError:
                    continue
            else:
                with pytest.raises(FilesError):
                    load_tree(folder)
        path.write_bytes(whole)


def test_an_array_that_is_missing_is_named(tmp_path):
    """In files whose sums are right."""
    for name in ("weights", "others"):
        save_tree(tmp_path / name, {name: np.arange(3)})
    tensors, sums = [tmp_path / name / "tensors.safetensors" for name in ("weights", "others")], tmp_path / "weights" / "manifest.json"
    before, after = (hashlib.sha256(path.read_bytes()).hexdigest() for path in tensors)
    sums.write_text(sums.read_text().replace(before, after))
    tensors[0].write_bytes(tensors[1].read_bytes())
    with pytest.raises(FilesError, match=r"weights cannot be read: tensors.safetensors has no '/weights'"):
        load_tree(tmp_path / "weights")


@pytest.mark.parametrize("name", ["manifest.json", "tree.json", "tensors.safetensors"])
def test_a_missing_or_cut_file_is_found(name, tmp_path):
    save_tree(tmp_path / "kept", {"weights": np.arange(3)})
    path = tmp_path / "kept" / name
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(FilesError):
        load_tree(tmp_path / "kept")
    path.unlink()
    with pytest.raises(FilesError):
        load_tree(tmp_path / "kept")


def test_an_error_without_a_message_is_named(tmp_path, monkeypatch):
    """Such as that of a full memory."""
    save_tree(tmp_path / "kept", {"weights": np.arange(3)})
    monkeypatch.setattr("proximo.runs.folder.checkpoint.load_file", lambda path: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(FilesError, match=r"cannot be read \(MemoryError\)"):
        load_tree(tmp_path / "kept")


def checkpoint(iteration):
    """The least that a checkpoint contains."""
    return {"state": {"iteration": iteration, "steps": 1, "adam": {"weights": np.arange(3)}, "statistics": None},
            "log": {}, "versions": {}, "fixed": {}}


def iteration_of_newest(run):
    found = newest_checkpoint(run)
    return None if found is None else found["state"]["iteration"]


def test_the_newest_stay_and_half_written_ones_are_cleared(tmp_path):
    """Also that of an iteration that has no checkpoint later: 9."""
    for half in (".00000002.77.tmp", ".00000009.77.tmp"):
        (tmp_path / "checkpoints" / half).mkdir(parents=True)
    for iteration in range(1, 6):
        save_checkpoint(tmp_path, iteration, checkpoint(iteration), 2)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir() if path.name.startswith(".")] == []
    assert [path.name for path in checkpoints(tmp_path)] == ["00000004", "00000005"]
    assert iteration_of_newest(tmp_path) == 5 and iteration_of_newest(tmp_path / "none") is None
    for iteration in range(6, 9):
        save_checkpoint(tmp_path, iteration, checkpoint(iteration), 0)
    assert len(checkpoints(tmp_path)) == 5


def test_what_a_kill_left_beside_a_model_is_cleared(tmp_path):
    """And nothing else: the folder may be that of a user, whose names are no patterns."""
    left, others = [".model.77.tmp", ".model.77.old"], [".model.backup", ".model.77.tmp.old", ".modelx77.tmp", ".other.77.tmp"]
    for name in left + others:
        (tmp_path / name).mkdir()
    save_tree(tmp_path / "model", {"a": 1})
    save_tree(tmp_path / "mode[l]", {"a": 2})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, "mode[l]", "model"])


def no_rename(*_):
    raise AssertionError("the older folder has no name for a moment")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can exchange names")
def test_a_model_that_is_replaced_is_there_at_any_time(tmp_path, monkeypatch):
    """A kill between two renames would leave a run without a model."""
    save_tree(tmp_path / "model", {"a": 1})
    monkeypatch.setattr(Path, "rename", no_rename)
    save_tree(tmp_path / "model", {"a": 2})
    assert load_tree(tmp_path / "model") == {"a": 2} and [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_file_system_that_cannot_exchange_names(tmp_path, monkeypatch):
    monkeypatch.setattr("proximo.runs.folder.checkpoint.exchange", lambda one, other: False)
    for number in (1, 2):
        save_tree(tmp_path / "model", {"a": number})
        assert load_tree(tmp_path / "model") == {"a": number} and [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_damaged_newest_one_is_said_and_the_one_before_it_taken(tmp_path, capsys):
    for iteration in (1, 2):
        save_checkpoint(tmp_path, iteration, checkpoint(iteration), 2)
    tree = checkpoints(tmp_path)[-1] / "tree.json"
    tree.write_text(tree.read_text().replace("2", "3"))
    assert iteration_of_newest(tmp_path) == 1
    said = capsys.readouterr().err
    assert said.endswith("The checkpoint before it is used.\n") and "WARNING" not in said  # the logger has the level
    (checkpoints(tmp_path)[0] / "manifest.json").unlink()
    capsys.readouterr()
    with pytest.raises(FilesError, match="SHA-256 differs(?s:.*)All 2 checkpoints in .* are damaged. Nothing was changed"):
        newest_checkpoint(tmp_path)


def test_the_only_one_that_is_damaged_has_none_before_it(tmp_path, capsys):
    save_checkpoint(tmp_path, 1, checkpoint(1), 2)
    (checkpoints(tmp_path)[0] / "tree.json").write_text("{}")
    with pytest.raises(FilesError, match="SHA-256 differs(?s:.*)The only checkpoint in .* is damaged. Nothing was changed. Restore"):
        newest_checkpoint(tmp_path)
    assert "before it" not in capsys.readouterr().err


def test_what_cannot_be_json_is_not_written_in_part(tmp_path):
    with pytest.raises(TypeError):
        save_tree(tmp_path / "kept", {"thing": object()})
    assert not (tmp_path / "kept").exists()


def test_all_files_may_be_read_by_those_whom_the_umask_allows(tmp_path):
    """A colleague copies the folder: weights are no exception."""
    before = os.umask(0o022)
    try:
        save_tree(tmp_path / "model", {"weights": np.zeros(3)})
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()} == dict.fromkeys(
        ("manifest.json", "tree.json", "tensors.safetensors"), 0o644)


def test_files_are_plain(tmp_path):
    """Only safetensors and JSON, with the sums of both."""
    save_tree(tmp_path / "kept", {"weights": np.arange(3)})
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["manifest.json", "tensors.safetensors",
                                                                           "tree.json"]
    manifest = json.loads((tmp_path / "kept" / "manifest.json").read_text())
    assert sorted(manifest["sha256"]) == ["tensors.safetensors", "tree.json"] and manifest["format"] == 1


def test_another_cpu_is_told_and_refused_where_asked(tmp_path, monkeypatch, capsys):
    """The checkpoint names the CPU that wrote it; a resume on another one warns, or ends with 2 and changes nothing."""
    assert train(tmp_path / "run") == 0
    longer = ["resume", str(tmp_path / "run"), "--total-timesteps", "640"]
    monkeypatch.setattr("proximo.runs.folder.checkpoint.cpu_model", lambda: "Other CPU")
    before = sorted(path.name for path in (tmp_path / "run").rglob("*"))
    capsys.readouterr()
    assert main([*longer, "--require-same-cpu"]) == 2
    said = capsys.readouterr().err
    assert f"this is 'Other CPU'. Resume {tmp_path / 'run'} on a machine of the first type" in said
    assert sorted(path.name for path in (tmp_path / "run").rglob("*")) == before
    assert main(longer) == 0
    assert "this is 'Other CPU'. The weights may differ in the last bits" in capsys.readouterr().err
    monkeypatch.undo()
    assert main([*longer[:-1], "960", "--require-same-cpu"]) == 0
    assert "CPU" not in capsys.readouterr().err


def test_the_number_of_environments_changes_with_that_of_processes_only(tmp_path, capsys):
    """Here one process continues what one process has trained."""
    assert train(tmp_path / "run", "--total-timesteps", "32") == 0
    assert main(["resume", str(tmp_path / "run"), "--total-timesteps", "128", "--num-envs", "4"]) == 2
    assert "num_envs=4 was given, but the run has num_envs=2 and a resume cannot change it" in capsys.readouterr().err


@pytest.mark.parametrize("keep", [0, 2, 3])
def test_checkpoints_of_later_iterations_go_and_never_the_one_just_written(keep, tmp_path):
    """The run continues from iteration 100, because 150 and 200 are damaged: what follows them is another future."""
    for iteration in (50, 100, 150, 200):
        save_checkpoint(tmp_path, iteration, checkpoint(iteration), 0)
    save_checkpoint(tmp_path, 110, checkpoint(110), keep)
    names = [int(path.name) for path in checkpoints(tmp_path)]
    assert names == ([100, 110] if keep == 2 else [50, 100, 110])


def test_names_that_are_no_numbers_of_iterations_are_no_checkpoints(tmp_path):
    """Python counts some characters as digits that int() does not read, and reads digits of other alphabets."""
    for name in ("²", "\u0663", "1_0", "-1"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        (tmp_path / f"seed-{name}").mkdir()
        (tmp_path / f"seed-{name}" / "config.json").touch()
    assert checkpoints(tmp_path) == [] and member_folders(tmp_path) == []
