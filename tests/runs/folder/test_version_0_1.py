"""Runs of version 0.1.0: models act as they did, reports read them, and a resume is refused in one sentence.

tests/fixtures/0.1.0/runs.zip has two runs that version 0.1.0 trained, and the most likely actions of its models.
"""

import json
import zipfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import proximo
from proximo.bench.results import read_runs
from proximo.errors import FilesError, UsageError
from proximo.models.plot import read_curve
from proximo.models.task import check_task
from proximo.protocols import Spec
from proximo.runs.folder.version_0_1 import present_fields
from tests.support.runs import main

ARCHIVE = Path(__file__).parents[2] / "fixtures" / "0.1.0" / "runs.zip"


@pytest.fixture
def old(tmp_path):
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["continuous", "jax"])
def test_models_act_as_they_did(old, name):
    expected = json.loads((old / name / "expected.json").read_text())
    model = proximo.load(old / name)
    found = [model.act(np.array(obs, np.float32), deterministic=True) for obs in expected["observations"]]
    np.testing.assert_allclose(found, expected["action"], rtol=1e-3, atol=1e-5)
    assert model.cfg.hidden_sizes == (8, 8) and model.spec.observation_space is None
    assert model.cfg.anneal_lr == "linear"


def test_a_resume_and_a_checkpoint_are_refused_with_what_to_do(old, capsys):
    run = old / "continuous"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for command in (["resume", run], ["resume", run, "--total-timesteps", "192"], ["eval", run / "checkpoints/00000003"]):
        assert main([str(word) for word in command]) == FilesError.exit_code
        assert "was written by Proximo 0.1.0" in (told := capsys.readouterr().err)
        assert f"--init-from {run}" in told and "damaged" not in told
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_new_run_begins_with_its_weights(old, tmp_path):
    """No step of Adam is large enough to hide which weights the run began with."""
    words = ["train", "ppo_continuous_action", "--env-id", "Pendulum-v1", "--hidden-sizes", "8", "8", "--num-steps", "16",
             "--num-minibatches", "2", "--total-timesteps", "16", "--learning-rate", "1e-9", "--logger", "none"]
    assert main([*words, "--run-dir", str(tmp_path / "new"), "--init-from", str(old / "continuous")]) == 0
    before, after = (proximo.load(run).actor.weights() for run in (old / "continuous", tmp_path / "new"))
    for name, weight in before.items():
        np.testing.assert_allclose(after[name], weight, atol=1e-6)


def test_reports_and_plots_read_settings_as_those_of_this_version(old):
    """A run of 0.1.0 and one of this version with equal settings have one label."""
    labels = {run.path.name: run.label for run in read_runs(old)}
    assert "anneal_lr" not in labels["jax"] and "hidden_sizes" in labels["jax"]
    assert read_curve(old / "jax").config["anneal_lr"] == "linear"


@pytest.mark.parametrize(("given", "wanted"), [
    ({"hidden_size": 32}, {"hidden_sizes": [32, 32]}), ({"anneal_lr": False}, {"anneal_lr": "none"}),
    ({"anneal_clip": True, "seed": 1}, {"anneal_clip": "linear", "seed": 1}),
    ({"anneal_lr": "cosine", "hidden_sizes": [8]}, {"anneal_lr": "cosine", "hidden_sizes": [8]}),
    ({"anneal_lr": []}, {"anneal_lr": []})])
def test_fields_of_a_configuration(given, wanted):
    assert present_fields(given) == wanted


def test_a_model_of_a_dict_observation_has_to_be_trained_again():
    space = gym.spaces.Dict({"x": gym.spaces.Box(-1, 1, (3,), np.float32), "y": gym.spaces.Discrete(4)})
    was = Spec((7,), np.dtype("float32"), gym.spaces.Discrete(2))
    now = Spec((16,), np.dtype("uint8"), gym.spaces.Discrete(2), space)
    with pytest.raises(UsageError, match="has to be trained again"):
        check_task(was, now, False)
