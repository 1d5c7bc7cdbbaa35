"""proximo.load, evaluate and watch: what may be given, and every argument that cannot work, in one sentence each."""

import json
import re
import shutil
from dataclasses import dataclass
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from imageio_ffmpeg import count_frames_and_secs

import proximo
from proximo.cli.main import main
from proximo.envs.gym_loop import GymEnvs
from proximo.errors import FilesError, UsageError
from proximo.on_torch.agent import SeparateAgent
from proximo.on_torch.assemble import assemble
from proximo.on_torch.distributions import CategoricalHead
from proximo.on_torch.mlp import MLP
from proximo.runs.folder.checkpoint import load_tree, save_tree
from tests.support.probes import Memory
from tests.support.runs import train

FIELDS = {"num_envs": 2, "num_steps": 16, "num_minibatches": 2, "hidden_sizes": (8,), "total_timesteps": 64, "logger": "none"}
SCRIPT = """
from gymnasium.envs.classic_control import CartPoleEnv


class Short(CartPoleEnv):
    def step(self, action):
        obs, reward, _, _, info = super().step(action)
        return obs, reward, True, False, info
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert train(folder) == 0
    return folder


def test_all_wrong_arguments_come_at_once(run):
    wrong = {"episodes": 0, "seed": -1, "max_steps": 2.5, "num_envs": 0, "make_agent": 3, "make_agents": print}
    with pytest.raises(UsageError) as error:
        proximo.evaluate(run, **wrong)
    sentences = str(error.value).splitlines()
    assert len(sentences) == 6 and all(any(name in one for one in sentences) for name in wrong)
    for episodes in (-1, "3", 2.5, None):
        with pytest.raises(UsageError, match="episodes=.* is not allowed. Use a whole number from 1 to 1,000,000"):
            proximo.evaluate(run, episodes=episodes)


@pytest.mark.parametrize(("values", "said"), [
    ({"episodes": 1_000_001}, "episodes=1000001 is not allowed. Use a whole number from 1 to 1,000,000."),
    ({"num_envs": 1e30}, "num_envs=1e+30 is not allowed. Use a whole number from 1 to 1,000,000."),
    ({"seed": -1}, "seed=-1 is not allowed. Use a whole number of at least 0."),
    ({"deterministic": "no"}, "deterministic='no' is not allowed. Use True or False."),
    ({"deterministic": 1}, "deterministic=1 is not allowed. Use True or False.")])
def test_values_out_of_their_bounds(run, values, said):
    """1e30 episodes were played until somebody stopped them, and "no" was true."""
    with pytest.raises(UsageError) as error:
        proximo.evaluate(run, **values)
    assert str(error.value) == said


@pytest.mark.parametrize("given", [None, 3, "", "a\0b.mp4"])
def test_what_is_no_path_for_a_result_is_said(run, given):
    model = proximo.load(run)
    for call in (lambda: proximo.watch(model, given), lambda: model.save(given), lambda: model.export(given)):
        with pytest.raises(UsageError, match="is not a path. Name "):
            call()


@pytest.mark.parametrize("given", [3, [3], None, np.array("os"), np.array(["os", 3], object)])
def test_what_is_no_list_of_modules_is_said(run, given):
    with pytest.raises(UsageError, match=r"^allow_import=.* is not a list of names. Write allow_import=\['MODULE'\]\.$"):
        proximo.load(run, allow_import=given)


def test_results_may_be_in_the_home_folder(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # where a folder with the name ~ would be
    proximo.load(run).save("~/model")
    assert not (tmp_path / "~").exists()
    assert proximo.load("~/model").act([0.0, 0, 0, 0]) == proximo.load(tmp_path / "model").act([0.0, 0, 0, 0])


@pytest.mark.parametrize("call", [proximo.load, proximo.evaluate, proximo.resume])
@pytest.mark.parametrize("given", [None, 3, ""])
def test_what_is_no_folder_is_said(call, given):
    with pytest.raises(UsageError, match="is not a path. Give the folder of a run"):
        call(given)


def test_a_file_of_the_run_is_imported_where_that_is_allowed(tmp_path):
    """As the message of the refusal says, which names the folder."""
    script, run = tmp_path / "short_env.py", tmp_path / "run"
    script.write_text(SCRIPT)
    assert train(run, "--env-file", script) == 0
    with pytest.raises(UsageError, match=f"{run} names the file {script}") as error:
        proximo.evaluate(run, episodes=2)
    assert f"allow_import=['{script}']" in str(error.value)
    for allowed in ([str(script)], str(script)):
        assert proximo.evaluate(run, 2, allow_import=allowed).lengths == [1, 1]
        assert proximo.evaluate(proximo.load(run), 2, allow_import=allowed).lengths == [1, 1]
        assert proximo.evaluate(proximo.load(run, allow_import=allowed), 2).lengths == [1, 1]
    with pytest.raises(UsageError, match="allow_import=3 is not a list of names"):
        proximo.load(run, allow_import=3)


def test_environments_that_a_program_makes_all_at_once(tmp_path):
    """The refusal names the argument that the run was started with."""
    def make_envs(cfg, seeds):
        return GymEnvs(Memory, seeds, "Memory")

    run = proximo.train("ppo", make_envs=make_envs, run_dir=str(tmp_path / "run"), **FIELDS)
    with pytest.raises(UsageError, match=r"make_envs=\.\.\."):
        proximo.evaluate(run, episodes=2)
    assert len(proximo.evaluate(run, episodes=2, make_envs=make_envs).returns) == 2


class Hundredfold(gym.RewardWrapper):
    def reward(self, reward):
        return -100.0 * reward


def test_a_model_asks_for_the_environment_that_only_its_program_has(tmp_path, capsys):
    """As the run does: the id that is recorded is that of the environment inside of the wrapper."""
    run = proximo.train(env=lambda: Hundredfold(gym.make("CartPole-v1")), run_dir=str(tmp_path / "run"), eval_every=32, **FIELDS)
    proximo.load(run).save(tmp_path / "saved")
    for folder in (run / "model", run / "model-best", tmp_path / "saved"):
        with pytest.raises(UsageError, match=rf"proximo.evaluate\('{folder}', env=...\)"):
            proximo.evaluate(folder, 2)
        for command in ("eval", "watch", "card"):
            assert main([command, str(folder)]) == 2
            assert "was trained in an environment of its own" in (said := capsys.readouterr().err)
            assert ("For a card" in said, "proximo.evaluate(" in said) == ((True, False) if command == "card" else (False, True))
        with pytest.raises(UsageError, match=r"proximo.watch\(MODEL, '.*video.mp4', env=...\)"):
            proximo.watch(proximo.load(folder), tmp_path / "video.mp4")
        assert max(proximo.evaluate(proximo.load(folder), 2, lambda: Hundredfold(gym.make("CartPole-v1"))).returns) < -500


def test_the_calls_that_commands_name_work_as_printed_from_another_folder(tmp_path, monkeypatch, capsys):
    """With a relative path that has spaces and an apostrophe: the program may run elsewhere."""
    monkeypatch.chdir(tmp_path)
    parts = {"env": lambda: gym.make("CartPole-v1", render_mode="rgb_array"), "make_agent": assemble}
    proximo.train("ppo", **parts, run_dir="my runs/it's", **FIELDS)
    with pytest.raises(UsageError, match=r"Pass it: proximo.watch\(\"my runs/it's\", 'car.mp4', env=..., make_agent=...\)"):
        proximo.watch("my runs/it's", "car.mp4")
    for command in ("eval", "watch"):
        assert main([command, "my runs/it's"]) == 2
        evaluating, watching = re.findall(r"proximo\.\w+\(.*?\.\.\.\)", capsys.readouterr().err)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    for call in (evaluating.replace("env=", "episodes=1, env="), watching.replace("video.mp4", "video.gif").replace("env=", "max_frames=3, env=")):
        eval(call.replace("env=...", "env=env").replace("make_agent=...", "make_agent=make_agent"), {"proximo": proximo, **parts})
    assert (tmp_path / "other" / "video.gif").exists()


def test_the_model_of_an_earlier_version_knows_it_from_the_run(tmp_path):
    run = proximo.train(env=lambda: Hundredfold(gym.make("CartPole-v1")), run_dir=str(tmp_path / "run"), **FIELDS)
    tree = load_tree(run / "model")
    assert tree.pop("own_parts") == {"env": "<lambda>"}
    save_tree(run / "model", tree)
    record = json.loads((run / "config.json").read_text())
    del record["own_parts"]
    (run / "config.json").write_text(json.dumps(record))
    for given in (run, run / "model", proximo.load(run), proximo.load(run / "model")):
        with pytest.raises(UsageError, match="was trained in an environment of its own"):
            proximo.evaluate(given, 2)


@dataclass(frozen=True)
class Width(proximo.Config):
    width: int = 5


def agent_of_width(spec, cfg):
    return SeparateAgent(MLP([4, cfg.width, 1], 1.0), CategoricalHead(MLP([4, cfg.width, 2], 0.01), 2))


def test_a_network_with_a_field_of_its_own_is_loaded_with_the_class_of_its_configuration(tmp_path):
    run = proximo.train(Width, make_agent=agent_of_width, width=6, run_dir=str(tmp_path / "run"), **FIELDS)
    parts = {"make_agent": agent_of_width, "config": Width}
    model = proximo.load(run, **parts)
    assert model.cfg.width == 6 and proximo.evaluate(model, 2) == proximo.evaluate(run, 2, **parts)
    model.save(tmp_path / "saved")
    assert proximo.load(tmp_path / "saved", **parts).cfg == model.cfg
    with pytest.raises(FilesError, match=r"has no attribute 'width'. Pass make_agent=\.\.\. and config=\.\.\. of its program"):
        proximo.load(run, make_agent=agent_of_width)
    for call in (proximo.load, proximo.evaluate):
        with pytest.raises(UsageError, match="is not a class of configurations"):
            call(run, config=Width())


def test_a_video_of_an_environment_of_its_own(tmp_path):
    """The environment is named as for evaluate; the video has a frame for the reset and for each action of three
    short episodes."""
    run, out = tmp_path / "run", tmp_path / "video.mp4"

    def make_env():
        return TimeLimit(gym.make("CartPole-v1", disable_env_checker=True).unwrapped, max_episode_steps=5)

    proximo.train(env=make_env, run_dir=str(run), **FIELDS)
    with pytest.raises(UsageError, match=r"proximo.watch\('.*', env=...\)"):
        proximo.watch(run, out)
    assert proximo.watch(run, out, episodes=3, env=make_env) == out
    assert count_frames_and_secs(str(out))[0] == 3 * (1 + 5)
    assert proximo.watch(proximo.load(run), str(out), env=make_env, max_frames=4, deterministic=False) == out
    assert count_frames_and_secs(str(out))[0] == 4


def test_what_a_video_cannot_be(run):
    """All problems at once; what cannot draw is said."""
    with pytest.raises(UsageError) as error:
        proximo.watch(run, "video.avi", episodes=0, seed=-1, max_frames="many", frames=3)
    assert len(str(error.value).splitlines()) == 5
    with pytest.raises(UsageError, match="out=3 is not a path"):
        proximo.watch(run, 3)


def test_a_folder_of_several_runs_names_one_of_them(run, tmp_path):
    for seed in (1, 2):
        shutil.copytree(run, tmp_path / f"seed-{seed}")
    for call in (proximo.load, proximo.evaluate):
        with pytest.raises(UsageError, match=f"contains 2 runs. Name one of them, such as {tmp_path / 'seed-1'}"):
            call(tmp_path)


def lengths_of_slips(run, **how):
    return proximo.evaluate(run, 6, deterministic=False, **how).lengths


def test_another_environment_is_made_without_the_arguments_of_that_of_the_run(tmp_path):
    """They overrode those of the function: a test in another setting was one in that of training."""
    def frozen(**more):
        return gym.make("FrozenLake-v1", **more)

    run = proximo.train("ppo", env_id="FrozenLake-v1", env_kwargs={"is_slippery": False, "map_name": "4x4"}, run_dir=tmp_path / "run",
                        **FIELDS)
    still, slips = lengths_of_slips(run), lengths_of_slips(run, env="FrozenLake-v1")
    assert still != slips
    assert lengths_of_slips(run, env=partial(frozen, is_slippery=True)) == slips == lengths_of_slips(run, env=frozen)
    assert lengths_of_slips(run, env_kwargs={"is_slippery": True}) == slips
    assert lengths_of_slips(run, env=frozen, env_kwargs={"is_slippery": False}) == still
    own = proximo.train("ppo", env=frozen, env_kwargs={"is_slippery": False}, run_dir=tmp_path / "own", **FIELDS)
    assert lengths_of_slips(own, env=frozen) == still  # that of the run: a function is not recorded, its arguments are
    assert lengths_of_slips(own, env=frozen, env_kwargs={"is_slippery": True}) == slips
    with pytest.raises(UsageError, match="env_kwargs='slippery' is one text. Write a dict"):
        proximo.evaluate(run, 2, env_kwargs="slippery")
