"""Which variant an environment's id asks for where none is named."""

import subprocess
import sys

import pytest

from proximo.envs.procgen import GAMES
from proximo.runs.settings.choice import Choice, choose_variant, config_of_env, variant_by_name


@pytest.mark.parametrize(("env_id", "variant"), [
    ("BreakoutNoFrameskip-v4", "ppo_atari"), ("ALE/Pong-v5", "ppo_atari"), ("PongDeterministic-v4", "ppo_atari"),
    ("pong_v3", "ppo_pettingzoo_ma_atari"), ("warlords_v3", "ppo_pettingzoo_ma_atari"),
    ("atari/surround_v2", "ppo_pettingzoo_ma_atari"), ("starpilot", "ppo_procgen"),
    ("StarpilotEasy-v0", "ppo_procgen"), ("procgen:procgen-coinrun-v0", "ppo_procgen"),
    ("dm_control/walker-walk-v0", "ppo_continuous_action"), ("CartPole-v1", "ppo"),
    ("Pendulum-v1", "ppo_continuous_action"), ("tests.support.probes:Masked-v0", "ppo")])
def test_every_suite_is_found_by_the_ids_that_it_takes(env_id, variant):
    """Ids from the suites' own pages; none of the first nine is Gymnasium's."""
    assert choose_variant(config_of_env({"env_id": env_id}))[0] == variant


@pytest.mark.parametrize(("words", "expected"), [
    ({}, ("ppo_continuous_action", {"model": "cnn", "norm_obs": False})),
    ({"env_kwargs": ["continuous=False"]}, ("ppo", {"model": "cnn"})), ({"resize": 24}, ("ppo_continuous_action", {
        "model": "impala", "norm_obs": False})), ({"env_id": "Pendulum-v1"}, ("ppo_continuous_action", {})),
    ({"resize": 7}, ("ppo_continuous_action", {}))])
def test_images_get_a_convolutional_network(words, expected):
    """CarRacing-v3: 96x96 pixels, with which an MLP over 27,648 numbers learns nothing."""
    pytest.importorskip("Box2D")
    choice = choose_variant(config_of_env({"env_id": "CarRacing-v3"} | words))
    assert (choice.variant, choice.settings) == expected


@pytest.mark.parametrize(("given", "expected"), [
    ({}, {"model": "cnn", "norm_obs": False}), ({"model": "cnn"}, {"norm_obs": False}),
    ({"model": "impala", "norm_obs": True}, {}), ({"model": "mlp"}, {})])
def test_settings_of_images_are_those_that_were_not_given(given, expected):
    """A convolutional network that was named would refuse normalised images otherwise."""
    choice = Choice(variant="ppo_continuous_action", why="", settings={"model": "cnn", "norm_obs": False})
    assert choice.settings_beside(given) == expected


def test_pusher_is_not_called_retired(capsys):
    """EnvPool makes Pusher-v4; a message said that Pusher-v5 takes its place, and another one that it does not."""
    assert choose_variant(config_of_env({"env_id": "Pusher-v4"})).variant == "ppo_continuous_action"
    assert capsys.readouterr().err == ""


def test_atari_and_mujoco_share_a_form():
    """`-v5` alone does not tell: ale-py's list of games does."""
    pytest.importorskip("ale_py")
    assert variant_by_name("Breakout-v5") == ("ppo_atari", "an Atari game")
    assert variant_by_name("Ant-v5") is None and variant_by_name("HalfCheetah-v5") is None


def test_the_suites_own_lists_are_chosen():
    """Every game of PettingZoo and Procgen, as they list them, and no id of Gymnasium."""
    gymnasium = pytest.importorskip("gymnasium")
    modules = pytest.importorskip("pettingzoo.atari.all_modules")
    assert {variant_by_name(game)[0] for game in modules.atari_environments} == {"ppo_pettingzoo_ma_atari"}
    assert {variant_by_name(game)[0] for game in GAMES} == {"ppo_procgen"}
    ours = [name for name, spec in gymnasium.registry.items() if "gymnasium.envs" in str(spec.entry_point)]
    assert len(ours) > 20 and not any(map(variant_by_name, ours))


def test_a_name_is_read_without_the_engines():
    """In a fresh interpreter: neither EnvPool (which wants Qt first), nor PettingZoo, nor a framework is imported."""
    script = ("import sys; from proximo.runs.settings.choice import variant_by_name as f; f('pong_v3'), f('starpilot'), f('Pong-v5');"
              "print([name for name in ('envpool', 'pettingzoo', 'jax', 'torch') if name in sys.modules])")
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"
