"""eval and watch in another environment than that of the run."""

import json

import pytest
from PIL import Image

import proximo
from proximo.cli.main import main
from tests.support.probes import Truncated
from tests.support.runs import train


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A run of CartPole whose episodes end after seven steps."""
    folder = tmp_path_factory.mktemp("runs") / "short"
    assert train(folder, "--env-kwargs", "max_episode_steps=7", "--total-timesteps", 64) == 0
    return folder


@pytest.mark.parametrize(("words", "length"), [
    ((), 7), (("--env-kwargs", "max_episode_steps=4"), 4), (("--env-id", "CartPole-v0"), None),
    (("--env-id", "CartPole-v0", "--env-kwargs", "max_episode_steps=3"), 3)])
def test_episodes_are_those_of_the_environment_that_is_named(short, tmp_path, words, length):
    """By their lengths. Another id does not get the arguments of the environment of the run."""
    assert main(["eval", str(short), "--episodes", "3", *words, "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["env_id"] == (words[1] if "--env-id" in words else "CartPole-v1")
    assert found["lengths"] == [length] * 3 if length else min(found["lengths"]) > 7


def test_another_id_from_python_has_its_own_arguments(short):
    assert set(proximo.evaluate(short, 3).lengths) == {7}
    assert min(proximo.evaluate(short, 3, env="CartPole-v0").lengths) > 7


def test_a_video_of_another_environment(short, tmp_path):
    """One frame for the reset and one for each step."""
    out = tmp_path / "video.gif"
    assert main(["watch", str(short), "--env-kwargs", "max_episode_steps=4", "--out", str(out)]) == 0
    with Image.open(out) as video:
        assert video.n_frames == 1 + 4


@pytest.mark.parametrize(("words", "sentence"), [
    (("--env-id", "Acrobot-v1"), "Use the environment of the run, or one with the same spaces."),
    (("--env-id", "CartPol-v1"), "env_id=CartPol-v1 is unknown. Did you mean CartPole-v1"),
    (("--env-kwargs", "length"), "env_kwargs: 'length' is not key=value"),
    (("--env-kwargs", "size=3"), "could not be made with env_kwargs {'max_episode_steps': 7, 'size': 3}")])
def test_what_cannot_be_played_is_a_usage_error(short, words, sentence, capsys):
    assert main(["eval", str(short), "--episodes", "1", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_run_in_an_environment_of_its_programs_plays_in_one_with_an_id(tmp_path, capsys):
    proximo.train(env=Truncated, run_dir=str(tmp_path / "run"), num_envs=2, num_steps=8, total_timesteps=16, hidden_sizes=(8,))
    assert main(["eval", str(tmp_path / "run"), "--episodes", "1"]) == 2
    assert main(["eval", str(tmp_path / "run"), "--episodes", "1", "--env-id", "tests.support.probes:Truncated-v0"]) == 0
    assert "tests.support.probes:Truncated-v0: " in capsys.readouterr().out
