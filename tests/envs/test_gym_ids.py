"""Ids of Gymnasium: unknown and retired ones, and packages that are not installed."""

import gymnasium
import pytest

from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.envs.gym_ids import current_gym_id, gym_id
from proximo.errors import UsageError


@pytest.mark.parametrize(("env_id", "words"), [
    ("CartPol-v1", "CartPole-v1"), ("LunarLander-v9", "LunarLander-v3"), ("no_such_module:Env-v0", "no_such_module"),
    ("tests.support.probes:Spoken-v0", "Text"),
])
def test_ids_and_spaces_that_cannot_run(env_id, words):
    with pytest.raises(UsageError, match=words):
        make_gym(Config(env_id=env_id), [1])


@pytest.mark.parametrize(("old", "new"), [
    ("LunarLander-v2", "LunarLander-v3"), ("BipedalWalker-v2", "BipedalWalker-v3"),
    ("HalfCheetah-v2", "HalfCheetah-v4"), ("CarRacing-v2", "CarRacing-v3"),
])
def test_retired_ids_run_as_their_successors(old, new, capsys):
    """gym_id logs a message, current_gym_id does not."""
    assert gym_id(old) == new
    assert f"{old} is retired. Its successor {new} is used instead." in capsys.readouterr().err
    assert current_gym_id(old) == new and current_gym_id(new) == new and capsys.readouterr().err == ""


def test_an_id_without_a_version_is_the_newest(capsys):
    assert gym_id("CartPole") == "CartPole-v1"
    assert "CartPole has no version. The newest one is used: CartPole-v1." in capsys.readouterr().err


def test_the_error_of_a_missing_package_has_the_command_that_installs_it(monkeypatch):
    def absent(*_, **__):
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed")

    monkeypatch.setattr(gymnasium, "make", absent)
    with pytest.raises(UsageError, match=r'pip install "proximo\[box2d\]"'):
        make_gym(Config(env_id="LunarLander-v3"), [1])
