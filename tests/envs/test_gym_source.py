"""Environments the way people have them: with arguments, in wrappers, in a script; against gymnasium.make by hand."""

import json
import os
import sys
from dataclasses import fields, replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import proximo
from proximo.cli.flags import parse_flags
from proximo.cli.main import main
from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.envs.gym_source import EMULATOR, env_source, make_from_source
from proximo.errors import EnvError, UsageError
from proximo.problems import config_problems
from proximo.runs.settings.choice import choose_variant, config_of_env, played_env
from proximo.variants import Atari, BatchedSim, Compact, Continuous, Procgen
from tests.support.runs import SMALL, same_weights

SCRIPT = '''
import gymnasium as gym
import numpy as np
from helper_of_my_env import LENGTH


class MyEnv(gym.Env):
    def __init__(self, size=3, word="a"):
        self.size, self.word = size, word
        self.observation_space = gym.spaces.Box(-1, 1, (size,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.uniform(-1, 1, self.size).astype(np.float32), {}

    def step(self, action):
        self.t += 1
        return self.np_random.uniform(-1, 1, self.size).astype(np.float32), float(action), self.t >= LENGTH, False, {}


class Half(gym.RewardWrapper):
    def reward(self, reward):
        return reward / 2
'''


@pytest.fixture
def script(tmp_path):
    """The path of a script that imports another one of its folder."""
    (tmp_path / "helper_of_my_env.py").write_text("LENGTH = 5\n")
    path = tmp_path / f"my_env_{tmp_path.name.replace('-', '_')}.py"
    path.write_text(SCRIPT)
    return path


def made(**values):
    return make_from_source(env_source(Config(**values)))


def test_arguments_are_python_literals_or_text():
    """Equal to gymnasium.make with the same arguments; max_episode_steps belongs to gymnasium.make."""
    texts = ("map_name=8x8", "is_slippery=False", "max_episode_steps=7", "desc=None", "success_rate=0.5")
    one = made(env_id="FrozenLake-v1", env_kwargs=texts)
    other = gym.make("FrozenLake-v1", map_name="8x8", is_slippery=False, max_episode_steps=7, success_rate=0.5, desc=None)
    assert one.spec.kwargs == other.spec.kwargs and one.observation_space == other.observation_space
    one.reset(seed=1)
    assert [one.step(0)[3] for _ in range(7)] == [False] * 6 + [True]


@pytest.mark.parametrize("value", [5, "5", "a b", (1, 2), [1, "x"], {"a": None}, True, 2.5, np.int64(3), -1])
def test_a_dict_from_python_arrives_as_it_is(value):
    """Through the texts that config.json holds, and back."""
    cfg = Config(env_kwargs={"key": value}).resolved()
    recorded = tuple(json.loads(json.dumps(cfg.env_kwargs)))
    from proximo.envs.gym_source import kwargs_of

    assert kwargs_of(recorded) == {"key": value} and config_problems(Config(env_kwargs=recorded)) == []


def test_each_mistake_is_one_sentence():
    wrong = config_problems(Config(env_kwargs=("size", "a=1", "a=2"), env_wrappers=("FlattenObservation",)))
    assert len(wrong) == 3 and "'size' is not key=value" in wrong[0] and "a twice" in wrong[1]
    assert "'FlattenObservation' is not module:Wrapper" in wrong[2]
    (wrong,) = config_problems(Config(env_kwargs={"a": 1, "f": len}))
    assert "f is a builtin_function_or_method, which is not a Python literal" in wrong and "env=lambda: MyEnv(...)" in wrong


def test_an_object_in_env_kwargs_is_refused_on_one_line():
    """Of a table, which Python writes on many lines."""
    class Table:
        def __repr__(self):
            return "a\n1\n2"

    assert all(len(one.splitlines()) == 1 for one in config_problems(Config(env_kwargs={"table": Table()})))


def test_wrappers_apply_in_order(script):
    env = made(env_id="CartPole-v1", env_wrappers=("gymnasium.wrappers:FlattenObservation",
                                                   "gymnasium.wrappers:RecordEpisodeStatistics"))
    assert [type(env).__name__, type(env.env).__name__] == ["RecordEpisodeStatistics", "FlattenObservation"]
    halved = made(env_file=str(script), env_wrappers=(f"{script.stem}:Half",))
    halved.reset(seed=1)
    assert halved.step(1)[1] == 0.5


@pytest.mark.parametrize(("text", "words"), [
    ("gymnasium.wrappers:Nothing", "has no Nothing"), ("gymnasium.wrappers:TimeLimit", "cannot wrap CartPole-v1: TypeError"),
    ("no_such_module:Wrapper", "cannot be imported"), ("builtins:str", "returned a str")])
def test_wrappers_that_cannot_wrap(text, words):
    with pytest.raises(UsageError, match=words):
        made(env_id="CartPole-v1", env_wrappers=(text,))


@pytest.mark.parametrize("suffix", ["", ":MyEnv"])
def test_a_script_by_its_path(script, suffix):
    """The class is found by itself or by its name, and recorded with the absolute path."""
    cfg = Config(env_file=f"{script}{suffix}", env_kwargs=("size=4",))
    assert choose_variant(cfg) == ("ppo", "discrete actions", {})
    recorded = played_env(cfg)
    assert recorded == {"env_id": "MyEnv", "env_file": str(script)}
    for one in (cfg, replace(cfg, **recorded)):
        envs = make_gym(one, [1, 2])
        assert envs.reset().obs.shape == (2, 4)
        envs.close()


def test_a_script_that_registers_ids(tmp_path):
    path = tmp_path / "registers_ids.py"
    path.write_text(SCRIPT.replace("from helper_of_my_env import LENGTH", "LENGTH = 9")
                    + 'gym.register("OfScript-v0", entry_point="registers_ids:MyEnv", max_episode_steps=3)\n'
                    + 'gym.register("OfScript-v1", entry_point=MyEnv, max_episode_steps=4)\n')
    env = made(env_file=str(path), env_id="OfScript-v0")
    env.reset(seed=1)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
    assert made(env_file=f"{path}:OfScript-v1").spec.max_episode_steps == 4
    with pytest.raises(UsageError, match="has OfScript-v0, OfScript-v1, MyEnv. Name one: --env-file registers_ids.py:MyEnv"):
        made(env_file=str(path))
    with pytest.raises(UsageError, match="has OfScript-v0, OfScript-v1, MyEnv, and not Other-v0"):
        made(env_file=str(path), env_id="Other-v0")


@pytest.mark.parametrize(("content", "words"), [
    ("x = (", r"my_file.py, line 1 with SyntaxError"), ("\n\nprint(name_error)", "my_file.py, line 3 with NameError"),
    ("import no_such_package", "line 1 with ModuleNotFoundError: No module named 'no_such_package'"),
    ("import sys\nsys.exit(0)", "line 2 with SystemExit"), ("x = 1", "has no environment. Define a subclass")])
def test_faults_of_a_script_and_of_a_module(content, words, tmp_path, monkeypatch, capsys):
    """One sentence with the place, exit code 2, by --env-file and by an id."""
    (tmp_path / "my_file.py").write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for words_ in (["--env-file", "my_file.py"], ["--env-id", "my_file:Env-v0"] * ("no env" not in words)):
        if words_:
            assert main(["train", *words_]) == 2
            lines = capsys.readouterr().err.splitlines()
            assert any(word in lines[-1] for word in [words]) or __import__("re").search(words, lines[-1]), lines
            assert "Traceback" not in "".join(lines)
    assert list(tmp_path.glob("runs/*")) == []


@pytest.mark.parametrize("env_id", ["./my_env.py:Env-v0", "my_env.py:Env-v0", "../my_env:Env-v0"])
def test_an_id_with_a_path_is_told_of_env_file(env_id):
    with pytest.raises(UsageError, match="--env-file .*my_env.py --env-id Env-v0"):
        made(env_id=env_id)


def test_another_environment_than_that_of_the_file_is_refused(script, tmp_path, capsys):
    """Also the id that is the default of the variant, and with or without a variant; nothing is trained."""
    told = f"env_file={script} has MyEnv, and env_id=CartPole-v1 was given. Leave env_id out."
    for variant, file in ((["ppo"], script), ([], script), (["ppo"], f"{script}:MyEnv")):
        words = ["train", *variant, "--env-file", str(file), "--env-id", "CartPole-v1", "--run-dir", str(tmp_path / "run")]
        assert main(words) == 2
        assert capsys.readouterr().err.splitlines()[-1] == f"proximo: {told}"
    for config in ("ppo", None):
        with pytest.raises(UsageError, match="CartPole-v1 was given. Leave env_id out"):
            proximo.train(config, env_file=str(script), env_id="CartPole-v1", run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_unknown_arguments_and_files():
    with pytest.raises(UsageError, match="CartPole-v1 could not be made with env_kwargs .*'size'"):
        made(env_id="CartPole-v1", env_kwargs=("size=5",))
    for file, words in (("nothing.py", "does not exist"), (str(Path(__file__).parent), "is not a Python file")):
        with pytest.raises(UsageError, match=words):
            made(env_file=file)


@pytest.mark.parametrize(("text", "value"), [
    ('config={"a": true}', '{"a": true}'), ("config=[a, b]", "[a, b]"), ("config=false", "false")])
def test_arguments_in_json_are_texts_and_a_warning_says_so(text, value, script, caplog):
    env = made(env_file=str(script), env_kwargs=(text.replace("config", "word"),))
    assert env.word == value
    (said,) = caplog.messages[-1:]
    assert f"word={value} is not a Python literal and is passed as text. Write True, False" in said
    warned = len(caplog.messages)
    for literal in (repr(value), '{"a": True}', "falsehood", "a{", "(1, 2)"):
        made(env_file=str(script), env_kwargs=(f"word={literal}",))
    assert len(caplog.messages) == warned


NEEDY = '''
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Needy(CartPoleEnv):
    def __init__(self, config, level, render_mode=None):
        super().__init__()

def one_env(*, config, level):
    return CartPoleEnv()

def fails_inside(**given):
    return Needy(level=1)

gym.register("Needy-v0", entry_point="needy_env:Needy", kwargs={"level": 1})
'''


def test_arguments_without_a_default_are_asked_for(tmp_path, monkeypatch, capsys):
    """Of classes, functions, files and registered ids, exit code 2; not those of a call inside, which is a fault of the code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("needy_env.py").write_text(NEEDY)
    both = ("needs config and level, and env_kwargs does not have them. Use --env-kwargs config=VALUE level=VALUE, from "
            "Python env_kwargs={'config': VALUE, 'level': VALUE}.")
    one = "needs config, and env_kwargs does not have it. Use --env-kwargs config=VALUE, from Python env_kwargs={'config': VALUE}."
    try:
        module = __import__("needy_env")
        for words in (["--env-file", "needy_env.py:Needy"], ["ppo", "--env-file", "needy_env.py:one_env"]):
            assert main(["train", *words]) == 2
            assert capsys.readouterr().err.splitlines()[-1] == f"proximo: {words[-1].partition(':')[2]} {both}"
        assert main(["check-env", "--env-file", "needy_env.py:Needy", "--env-kwargs", "level=2"]) == 2
        assert capsys.readouterr().err.splitlines()[-1] == f"proximo: Needy {one}"
        for variant in ([], ["ppo"]):
            assert main(["train", *variant, "--env-id", "needy_env:Needy-v0"]) == 2
            assert capsys.readouterr().err.splitlines()[-1] == f"proximo: Needy-v0 {one}"
        for env in (module.Needy, lambda config, level: None, module.one_env):
            with pytest.raises(UsageError, match="needs config and level, and env_kwargs does not have them"):
                proximo.train(env=env)
        with pytest.raises(EnvError, match="missing 1 required"):
            proximo.train(env=module.fails_inside)
    finally:
        sys.modules.pop("needy_env", None)
        gym.registry.pop("Needy-v0", None)


def test_a_script_whose_name_is_taken(tmp_path):
    """`random.py` does not take the place of the standard library's module."""
    import random

    path = tmp_path / "random.py"
    path.write_text(SCRIPT.replace("from helper_of_my_env import LENGTH", "LENGTH = 9"))
    assert type(made(env_file=str(path)).unwrapped).__name__ == "MyEnv"
    assert __import__("random") is random


@pytest.mark.parametrize("flags", [[], ["--env-workers", "2"], ["--framework", "jax"]])
def test_a_run_in_a_script_trains_resumes_and_plays_from_another_folder(flags, script, tmp_path, monkeypatch, capsys):
    """Nothing is given again; the run equals one from Python with the same settings."""
    if "jax" in flags:
        pytest.importorskip("jax")
    monkeypatch.chdir(script.parent)
    words = ["--env-file", script.name, "--env-kwargs", "size=4", "word=b c", f"--env-wrapper={script.stem}:Half", *flags]
    run = tmp_path / "run"
    assert main(["train", *words, *SMALL, "--run-dir", str(run)]) == 0
    assert "because" in capsys.readouterr().err
    monkeypatch.chdir("/")
    assert main(["resume", str(run), "--total-timesteps", "640", "--allow-import", str(script)]) == 0
    assert main(["eval", str(run), "--episodes", "2", "--allow-import", str(script)]) == 0
    assert "MyEnv: " in capsys.readouterr().out
    if not flags:
        mine = proximo.train(env_file=f"{script}:MyEnv", env_kwargs={"size": 4, "word": "b c"},
                             env_wrappers=[f"{script.stem}:Half"], run_dir=tmp_path / "mine", **parse_flags(Config, SMALL))
        proximo.resume(mine, total_timesteps=640, allow_import=[script])
        assert same_weights(run, mine)
        assert proximo.load(mine, allow_import=str(script)).allow_import == (str(script),)  # one text is one name
        proximo.resume(mine, total_timesteps=704, allow_import=str(script))


def test_own_objects_take_arguments_wrappers_and_image_settings(tmp_path):
    """A class passed from Python is called with the arguments."""
    from tests.support.probes import Truncated

    class Sized(Truncated):
        def __init__(self, length=4):
            self.length = length

    run = proximo.train(env=Sized, env_kwargs={"length": 2}, env_wrappers=["gymnasium.wrappers:FlattenObservation"],
                        frame_stack=3, total_timesteps=64, num_steps=16, num_envs=2, num_minibatches=2, logger="none",
                        run_dir=tmp_path / "run")
    model = proximo.load(run)
    assert model.spec.obs_shape == (6,)
    with pytest.raises(UsageError, match="env and env_file were both given"):
        proximo.train(env=Sized, env_file="a.py")


@pytest.mark.parametrize(("cfg", "words"), [
    (Config(engine="envpool", env_kwargs=("a=1",)), "env_kwargs is not available with engine=envpool. Use --engine gym"),
    (Config(engine="jax", framework="jax", frame_skip=2), "frame_skip is not available with engine=jax"),
    (Continuous(engine="envpool", env_file="a.py"), "env_file is not available with engine=envpool"),
    (BatchedSim(env_kwargs=("a=1",)), "env_kwargs is not available in this variant: tasks of Brax take no arguments. Leave "
                                      "--env-kwargs out."),
    (BatchedSim(env_wrappers=("a:B",)), "env_wrappers is not available in this variant. Use a variant for Gymnasium's"),
    (Atari(env_wrappers=("a:B",)), "env_wrappers is not available in this variant"),
    (Atari(resize=64), "resize=64 is not available in this variant. Use --screen-size 64."),
    (Compact(env_id="Pong-v5", resize=64), "resize=64 is not available in this variant. Use --screen-size 64."),
    (Compact(engine="envpool", env_kwargs=("a=1",)), "env_kwargs is not available with engine=envpool. Use --engine gym"),
    (Compact(resize=64), "resize=64 has no effect: this variant applies it to Atari games only. Use the variant ppo"),
    (Compact(frame_stack=2), "frame_stack=2 has no effect: this variant applies it to Atari games only"),
    (Compact(noop_max=0), "noop_max=0 has no effect: this variant applies it to Atari games only"),
    (Compact(env_file="a.py", env_id="Pong-v5", grayscale=False), "grayscale=False has no effect"),
    (Compact(model="cnn").resolved(), "clip_rewards=True has no effect: this variant applies clip_rewards, frame_skip"),
    (Procgen(frame_stack=4), "frame_stack is not available in this variant"),
    (Procgen(grayscale=True), "grayscale is not available in this variant")])
def test_engines_and_variants_without_single_environments_refuse(cfg, words):
    wrong = config_problems(cfg)
    assert len(wrong) == 1 and wrong[0].startswith(words)


def test_compact_has_the_settings_of_emulators_for_atari_games():
    assert config_problems(Compact(env_id="Pong-v5", model="cnn", frame_stack=2, noop_max=0).resolved()) == []
    assert config_problems(Compact(model="cnn", clip_rewards=False).resolved()) == []


def test_emulator_names_all_fields_of_atari():
    """A field that is added to Atari is either refused for other environments, or is clip_rewards."""
    added = {field.name for field in fields(Atari)} - {field.name for field in fields(Config)}
    assert added | {"frame_skip", "grayscale", "frame_stack"} == {*EMULATOR, "clip_rewards"}


def test_compact_passes_arguments_to_gymnasium_and_refuses_them_for_atari():
    from proximo.catalog import make_gym_or_atari

    envs = make_gym_or_atari(Compact(env_id="FrozenLake-v1", env_kwargs=("map_name=8x8",)), [1])
    assert envs.obs_shape == (64,)
    with pytest.raises(UsageError, match="env_kwargs: Pong-v5 is an Atari game"):
        make_gym_or_atari(Compact(env_id="Pong-v5", env_kwargs=("a=1",)), [1])


def test_the_choice_of_a_variant_sees_arguments():
    """CarRacing with continuous=False has discrete actions."""
    pytest.importorskip("Box2D")
    assert choose_variant(config_of_env({"env_id": "CarRacing-v3", "env_kwargs": ("continuous=False",)}))[0] == "ppo"
    assert choose_variant(config_of_env({"env_id": "Pendulum-v1"}))[0] == "ppo_continuous_action"


def test_check_env_takes_all_of_them(script, capsys):
    os.environ.pop("RANK", None)
    assert main(["check-env", "--env-file", str(script), "--env-kwargs", "size=4", "--env-wrapper",
                 f"{script.stem}:Half", "--frame-stack", "2"]) == 0
    assert "observations (8,)" in capsys.readouterr().out
    assert main(["check-env", "FrozenLake-v1", "--env-kwargs", "map_name=8x8"]) == 0
    assert "Discrete(64)" in capsys.readouterr().out
    assert main(["check-env"]) == 2
    assert "needs an environment" in capsys.readouterr().err
    assert any("Box" in finding.what for finding in proximo.check_env(env_file=str(script)))
