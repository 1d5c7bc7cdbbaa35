"""Presets: their values against the fields and limits of their variants, and which one a command uses."""

import importlib
import importlib.util
from dataclasses import replace

import gymnasium as gym
import pytest

import proximo
from proximo.cli.commands import choose_preset
from proximo.cli.main import main
from proximo.errors import UsageError
from proximo.facts import facts
from proximo.problems import config_problems
from proximo.runs.logs.announce import announce_preset
from proximo.runs.presets import named_preset, presets
from proximo.runs.settings.resolve import with_changes

MODULES = {"": "gymnasium", "box2d": "Box2D", "mujoco": "mujoco", "minigrid": "minigrid"}
SMALL = ["--total-timesteps", "256", "--logger", "none"]


@pytest.mark.parametrize("env_id", presets())
def test_a_preset_is_a_valid_configuration(env_id):
    """Every value is that of a field, has its type, and the run would start."""
    one = presets()[env_id]
    default = type(one.config)()
    assert set(one.values) <= set(facts(one.config)) and one.source
    assert with_changes(default, one.values | {"env_id": env_id}) == one.config.resolved()
    assert config_problems(one.config.resolved()) == []


def test_version_5_of_a_robot_is_trained_with_the_values_of_version_4():
    """All that were measured; config.json would differ in the id alone."""
    robots = [env_id for env_id, one in presets().items() if one.extra == "mujoco" and env_id.endswith("-v5")]
    assert len(robots) == 8
    for newer in robots:
        env_id = newer.replace("-v5", "-v4")
        assert presets()[newer].config == replace(presets()[env_id].config, env_id=newer)


@pytest.mark.parametrize("env_id", presets())
def test_the_environment_of_a_preset_exists(env_id):
    """Gymnasium has the id."""
    one = presets()[env_id]
    if importlib.util.find_spec(MODULES[one.extra]) is None:
        pytest.skip(f"{MODULES[one.extra]} is not installed")
    module, _, name = env_id.rpartition(":")
    if module:
        importlib.import_module(module)
    assert name in gym.registry


@pytest.mark.parametrize(("variant", "name", "flags", "chosen"), [
    ("", None, ["--env-id", "CartPole-v1"], "CartPole-v1"), ("", None, ["--env-id=CartPole-v1"], "CartPole-v1"),
    ("", "none", ["--env-id", "CartPole-v1"], None), ("ppo", None, ["--env-id", "CartPole-v1"], None),
    ("", None, ["--env-id", "mine:Env-v0"], None), ("", None, [], None),
    ("", "Acrobot-v1", ["--env-id", "mine:Env-v0"], "Acrobot-v1"), ("ppo", "Acrobot-v1", [], "Acrobot-v1")])
def test_which_preset_a_command_uses(variant, name, flags, chosen):
    """That of the environment if neither a variant nor a preset was named, otherwise the named one."""
    found = choose_preset(variant, name, flags)
    assert (found and found.env_id) == chosen


def test_a_preset_of_another_variant_or_of_no_environment_is_refused():
    with pytest.raises(UsageError, match="belongs to ppo, and ppo_atari was given"):
        choose_preset("ppo_atari", "CartPole-v1", [])
    with pytest.raises(UsageError, match="no preset CartPole-v0. Did you mean CartPole-v1"):
        named_preset("CartPole-v0")
    with pytest.raises(UsageError, match="gama is not a field of this variant. Did you mean gamma"):
        proximo.preset("CartPole-v1", gama=1)


def test_the_command_line_trains_with_a_preset_and_flags_win(tmp_path, capsys):
    """config.json against the preset; the message names it and its source."""
    run = tmp_path / "run"
    assert main(["train", "--env-id", "CartPole-v1", "--gamma", "0.5", *SMALL, "--run-dir", str(run)]) == 0
    said = capsys.readouterr().err
    assert "Using the preset CartPole-v1 of ppo: " in said and "gae_lambda=0.8, " in said
    assert "gamma=" not in said and "total_timesteps=100000" not in said  # what the command sets is left out
    assert presets()["CartPole-v1"].source in said
    from proximo.catalog import config_class
    from proximo.runs.folder.run import read_config

    cfg = read_config(run, config_class).cfg
    expected = replace(presets()["CartPole-v1"].config, gamma=0.5, total_timesteps=256)
    assert all(getattr(cfg, name) == getattr(expected, name) for name in (*presets()["CartPole-v1"].values, "gamma"))


def test_python_trains_with_a_preset(tmp_path):
    """proximo.train(env=ID), and proximo.preset with other values, make the run of the command line."""
    for name, arguments in (("a", {"env": "CartPole-v1"}), ("b", {"config": proximo.preset("CartPole-v1")})):
        proximo.train(**arguments, total_timesteps=256, logger="none", run_dir=tmp_path / name)
    from proximo.catalog import config_class
    from proximo.runs.folder.run import read_config

    a, b = (replace(read_config(tmp_path / name, config_class).cfg, run_dir="") for name in ("a", "b"))
    assert a == b and a.num_steps == 32


def test_list_presets_names_each_with_its_source(capsys):
    assert main(["list", "presets"]) == 0
    said = capsys.readouterr().out
    assert all(f"\n{one.env_id}  ({one.variant})" in f"\n{said}" and one.source in said for one in presets().values())


def test_the_message_names_a_preset_whose_values_were_all_given(capsys):
    """Such as the number of steps of Hopper, the only value of its preset."""
    announce_preset(presets()["Hopper-v5"], presets()["Hopper-v5"].values.keys())
    assert "Using the preset Hopper-v5 of ppo_continuous_action. Source: " in capsys.readouterr().err
