"""Ids of Gymnasium: unknown and retired ones, and packages that are not installed."""

import sys
from types import SimpleNamespace

import gymnasium
import pytest

from proximo.config import Config
from proximo.envs import gym_ids
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


@pytest.mark.parametrize(("env_id", "guess"), [
    ("quux-v0", ""), ("FetchReach-v2", "Did you mean Reacher-v5 or Reacher-v4? "),
    ("LunarLandr-v3", "Did you mean LunarLander-v3 or LunarLanderContinuous-v3? "), ("MiniGrid-Empty-5x5-v0", "")])
def test_an_unknown_id_may_be_one_of_a_package(env_id, guess, monkeypatch):
    """Also where the id is similar to a known one. The ids that other tests register are not known here."""
    module = "tests.support.probes"
    known = {name: spec for name, spec in gymnasium.registry.items()
             if getattr(spec.entry_point, "__module__", spec.entry_point).startswith(("gymnasium.", module))}
    monkeypatch.setattr(gym_ids, "registry", known)
    with pytest.raises(UsageError) as error:
        gym_id(env_id)
    assert str(error.value) == (f"env_id={env_id} is unknown. {guess}If a package registers it, name its module: "
                                f"MODULE:{env_id}.")
    for name, advice in (("Spokn-v0", f"Did you mean {module}:Spoken-v0 or {module}:.*"), ("xyz-v0", f"The module {module} does not register it with Gymnasium. If a function of it does, call it in a file, next to a "
                                   "function that makes the environment, and name this one: --env-file FILE.py:FUNCTION.")):
        with pytest.raises(UsageError, match=f"^env_id={module}:{name} is unknown. {advice}$"):
            gym_id(f"{module}:{name}")


def test_a_run_is_no_id(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="is unknown. It is a folder of a run: give the id of its environment.$"):
        gym_id(str(tmp_path))


@pytest.mark.parametrize(("env_id", "advice"), [
    ("ALE/Pong-v5", "It is an Atari game: leave the name of the variant out, or use one of Atari, such as ppo_atari."),
    ("my_env.py", "If it is a file, give its path with --env-file my_env.py."),
    ("tests.support.probes:Constant", "The module tests.support.probes does not register it with Gymnasium. To use its class Constant, write "
                                      "--env-file PATH.py:Constant (from Python: env=Constant)."),
])
def test_files_and_classes_are_no_ids(env_id, advice, monkeypatch):
    """The sentence says how they are named. Without the ids that other tests register, of which some are similar."""
    monkeypatch.setattr(gym_ids, "registry", {})
    with pytest.raises(UsageError) as error:
        gym_id(env_id)
    assert str(error.value) == f"env_id={env_id} is unknown. {advice}"


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


@pytest.mark.parametrize("name", ["Breakout", "breakout"])
def test_the_bare_name_of_a_game_gets_its_id(name):
    pytest.importorskip("ale_py")
    with pytest.raises(UsageError, match=f"env_id={name} is unknown. Did you mean BreakoutNoFrameskip-v4"):
        gym_id(name)


@pytest.mark.parametrize("wrap", [lambda ids: ids, lambda ids: SimpleNamespace(env_specs=ids)])
def test_an_id_of_gym_is_told(wrap, monkeypatch):
    """As crafter registers its ids if gym is installed; the registry of gym 0.26 is a dict, that of 0.21 an object."""
    monkeypatch.setitem(sys.modules, "gym.envs.registration", SimpleNamespace(registry=wrap({"MarioBros-v0": None})))
    with pytest.raises(UsageError, match="registers it with gym, the predecessor of Gymnasium. .* with --env-file.$"):
        gym_id("tests.support.probes:MarioBros-v0")
