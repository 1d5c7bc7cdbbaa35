"""The parts of tools/same_weights.py that need no training: digests, the comparison of two results, the exit code."""

import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from same_weights import agreement, compare, exit_code, table
from same_weights_cases import CASES, FAST
from same_weights_digests import digest_tables, digest_tensors

WEIGHTS = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.ones(2)}


def digest(folder, tensors, metadata=None):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "tensors.safetensors", metadata)
    return digest_tensors({".": folder})


def one_bit_off(x):
    changed = x.copy()
    changed.view(np.uint8).reshape(-1)[0] ^= 1
    return changed


def test_order_and_metadata_do_not_count(tmp_path):
    assert digest(tmp_path, WEIGHTS) == digest(tmp_path, dict(reversed(WEIGHTS.items())), {"made": "later"})


@pytest.mark.parametrize("change", [one_bit_off, lambda x: x.reshape(3, 2), lambda x: x.view(np.int32)])
def test_bits_shapes_and_dtypes_count(change, tmp_path):
    changed = digest(tmp_path, WEIGHTS | {"b": change(WEIGHTS["b"])})
    assert agreement(digest(tmp_path, WEIGHTS), changed) == "DIFFERS"


def test_another_name_is_said_to_be_one(tmp_path):
    renamed = digest(tmp_path, {"c": WEIGHTS["b"], "a": WEIGHTS["a"]})
    assert agreement(digest(tmp_path, WEIGHTS), renamed) == "renamed"


def test_only_names_with_the_beginning_count(tmp_path):
    found = []
    for tensors in ({"/a/x": WEIGHTS["a"]}, {"/a/x": WEIGHTS["a"], "/b/x": WEIGHTS["b"]}):
        digest(tmp_path, tensors)
        found.append((digest_tensors({".": tmp_path}, "/a/"), digest_tensors({".": tmp_path})))
    assert found[0][0] == found[1][0] == found[0][1] != found[1][1]


def test_times_do_not_count_in_tables(tmp_path):
    lines = ("seconds,charts/SPS,loss\n1,10,0.5\n", "charts/SPS,time/acting,loss,seconds\n20,0.3,0.5,2\n",
             "seconds,charts/SPS,loss\n1,10,0.6\n")
    found = []
    for text in lines:
        (tmp_path / "metrics.csv").write_text(text)
        found.append(digest_tables({".": tmp_path}))
    assert found[0] == found[1] != found[2]


def result(code=0, said="", **other):
    run = {"weights": ["w", "v"], "checkpoint": ["c", "d"], "metrics": ["m"]}
    return {"code": code, "said": said, "fresh": run | other, "resumed": run, "seconds": 1.0}


@pytest.mark.parametrize("old,new,word,code", [
    (result(), result(), "same", 0), (result(), result(weights=["x", "y"]), "DIFFERS", 1),
    (result(), result(weights=["x", "v"]), "renamed", 1), (result(), result(metrics=["n"]), "DIFFERS", 1),
    (result(), result() | {"resumed": result(metrics=["n"])["fresh"]}, "DIFFERS", 1),
    (result(2, "no"), result(2, "no"), "both refuse", 0), (result(2, "no"), result(2, "never"), "FAILS", 1),
    (result(), result(2, "no"), "FAILS", 1), (result(None, "crash"), result(None, "crash"), "FAILS", 1)])
def test_the_exit_code_is_of_the_worst_row(old, new, word, code):
    row = compare("torch/ppo/case", old, new)
    assert word in row.cells and exit_code([compare("fine", result(), result()), row]) == code
    assert "torch/ppo/case" in table([row], 1.0)


def test_nothing_compared_proves_nothing():
    assert exit_code([]) == 1


def test_cases_have_names_of_their_own():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) and set(names) >= FAST
