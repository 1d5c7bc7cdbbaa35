"""Runs, models and exported files of earlier versions: they load, act as they did, and their runs continue.

tests/fixtures/VERSION.zip was written by tools/make_fixtures.py of that version. Numbers are compared with tolerances,
because the last bits depend on the processor and on the libraries.
"""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import proximo
from tests.support.old_files import behaviour, rows_of_steps
from tests.support.runs import main, rows

FIXTURES = Path(__file__).parent / "fixtures"
ARCHIVES = sorted(FIXTURES.glob("*.zip"))


@pytest.fixture(scope="module", params=ARCHIVES, ids=[path.stem for path in ARCHIVES])
def old(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("old")
    with zipfile.ZipFile(request.param) as archive:
        archive.extractall(folder)
    return folder


def test_models_act_as_they_did(old):
    """Against the actions, log-probabilities and values that were stored."""
    folders = sorted(path.parent for path in old.glob("*/expected.json"))
    assert {"torch", "jax", "cnn", "lstm", "dict"} <= {folder.name for folder in folders}
    for folder in folders:
        expected = json.loads((folder / "expected.json").read_text())
        found = behaviour(proximo.load(folder), expected.pop("observations"))
        for name, wanted in expected.items():
            np.testing.assert_allclose(found[name], wanted, rtol=1e-3, atol=1e-4, err_msg=f"{folder.name}: {name}")
        assert np.ptp(expected["value"]) > 1e-3, f"{folder.name} says nothing about its observations"


def test_exported_files_act_as_they_did(old):
    """With memory: two steps of two rows, as stored."""
    runtime = pytest.importorskip("onnxruntime")
    (path,) = old.glob("*/agent.onnx")
    expected = json.loads((path.parent / "expected.json").read_text())
    model = proximo.load(path.parent)
    session = runtime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    rest = {value.name: np.zeros((2, *value.shape[1:]), np.float32) for value in session.get_inputs() if value.name == "state"}
    for number, obs in enumerate(rows_of_steps(model, expected["observations"])):
        given = {"obs": obs, "mask": np.ones((2, 2), bool), "first": np.full(2, number == 0)} | rest
        found = dict(zip(names, session.run(None, given)))
        rest = {"state": found["next_state"]}
        assert found["action"].tolist() == expected["action"][number]


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_runs_continue_from_their_checkpoint(old, name):
    """Ten iterations are in the run, two are added; the statistics of normalisation and the log go on."""
    before = rows(old / name, "metrics.csv")
    assert main(["resume", str(old / name), "--total-timesteps", "384"]) == 0
    after = rows(old / name, "metrics.csv")
    assert len(before) == 10 and len(after) == 12 and after[:10] == before
    assert proximo.load(old / name).moments.count > 320


def test_a_release_has_its_fixture_and_all_are_small():
    assert ".dev" in proximo.__version__ or (FIXTURES / f"{proximo.__version__}.zip").exists()
    assert all(path.stat().st_size < 200_000 for path in ARCHIVES) and ARCHIVES
