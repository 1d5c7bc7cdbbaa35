"""Files whose make_envs makes all environments: what is meant, and runs that equal those of a program with make_envs."""

from dataclasses import replace

import numpy as np
import pytest

import proximo
from proximo.catalog import rows_per_game
from proximo.config import Config
from proximo.envs.custom.env_file import function_in_file, name_in_file, names_function, played_script, with_function
from proximo.envs.parallel_env import from_parallel_env
from proximo.errors import EnvError, UsageError
from proximo.models.export.ports import obs_changes
from proximo.runs.settings.choice import choose_variant
from tests.support.games import Corridor
from tests.support.runs import same_logs, same_weights

SHORT = {"num_steps": 16, "num_minibatches": 2, "anneal_lr": False}
VECTOR = '''
import gymnasium as gym

def make_envs(cfg, seeds):
    return gym.make_vec("CartPole-v1", num_envs=len(seeds), vectorization_mode="vector_entry_point")
'''
GAMES = '''
from proximo.envs.parallel_env import from_parallel_env
from tests.support.games import Corridor

make_envs = from_parallel_env(Corridor)
'''
JAX = '''
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from proximo.envs.func_env import from_func_env

class Line:
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def initial(self, rng):
        return jax.random.uniform(rng, (1,))

    def transition(self, state, action, rng):
        return state + jnp.where(action == 1, 0.1, -0.1)

    def observation(self, state, rng):
        return state

    def reward(self, state, action, next_state, rng):
        return -jnp.abs(next_state[0])

    def terminal(self, state, rng):
        return jnp.abs(state[0]) > 2

make_envs = from_func_env(Line(), max_episode_steps=20)
'''
CLASS = '''
import gymnasium as gym

class One(gym.Env):
    observation_space, action_space = gym.spaces.Box(0, 1, (1,)), gym.spaces.Discrete(2)
'''


@pytest.fixture
def write(tmp_path):
    """Write a script whose module has a name of its own."""
    def write(text, name="script"):
        path = tmp_path / f"{name}_{tmp_path.name.replace('-', '_')}.py"
        path.write_text(text)
        return path

    return write


def test_make_envs_is_meant_where_nothing_else_is(write):
    """It is recorded with its name, and the run has the name of the file or the given id."""
    path = write(VECTOR)
    for cfg, env_id in ((Config(env_file=str(path)), path.stem), (Config(env_file=str(path), env_id="Pole"), "Pole"),
                        (Config(env_file=f"{path}:make_envs"), path.stem)):
        assert name_in_file(cfg) == (env_id, f"{path}:make_envs")
        recorded = replace(cfg, env_id=env_id, env_file=f"{path}:make_envs")
        assert name_in_file(recorded) == (env_id, f"{path}:make_envs")
        assert function_in_file(recorded)(recorded, [1, 2, 3]).num_envs == 3
        assert names_function(recorded.env_file) and not names_function(str(path))


def test_a_file_with_a_class_and_a_function_needs_a_name(write):
    """The class was trained, without what the function adds to it, and nothing said so. Recorded runs have a name."""
    path = write(CLASS + VECTOR)
    with pytest.raises(UsageError, match="has One, make_envs. Name one: --env-file"):
        name_in_file(Config(env_file=str(path)))
    assert name_in_file(Config(env_file=f"{path}:One")) == ("One", str(path))
    assert name_in_file(Config(env_file=str(path), env_id="One")) == ("One", str(path))
    assert function_in_file(Config(env_file=f"{path}:One")) is None
    assert function_in_file(Config(env_file=f"{path}:make_envs")) is not None
    with pytest.raises(UsageError, match="has One, make_envs, and not Two. Name one: --env-file"):
        name_in_file(Config(env_file=f"{path}:Two"))


def test_what_a_file_without_environments_is_told(write):
    path = write("later = 1")
    with pytest.raises(UsageError, match=r"has no environment. Define .* function make_envs\(cfg, seeds\), such"):
        name_in_file(Config(env_file=str(path)))
    with pytest.raises(UsageError, match="has no environment, and not make_envs"):
        name_in_file(Config(env_file=f"{path}:make_envs"))


def test_a_file_with_wrappers_alone_is_told_to_name_one(tmp_path):
    """Wrappers are not meant by themselves: most take an environment. A named one is made without arguments."""
    script = tmp_path / "poles.py"
    script.write_text("""
import gymnasium as gym

class Poles(gym.Wrapper):
    def __init__(self):
        super().__init__(gym.make("CartPole-v1"))
""")
    with pytest.raises(UsageError, match=r"no environment. Name a wrapper .* itself: --env-file poles.py:Poles.$"):
        name_in_file(Config(env_file=str(script)))
    assert name_in_file(Config(env_file=f"{script}:Poles")) == ("Poles", str(script))


def test_a_refusal_in_a_file_names_the_line_of_the_file(write):
    """It named a line of Proximo."""
    path = write("from proximo.envs.func_env import from_func_env\n\nmake_envs = from_func_env(int)\n")
    with pytest.raises(UsageError, match=f"fails in {path}, line 3 with UsageError: int is a class"):
        name_in_file(Config(env_file=str(path)))


def test_the_path_of_a_resume(tmp_path):
    """A script that has moved needs no name after its path."""
    recorded = Config(env_file="/old/script.py:make_envs", env_id="Pole")
    assert with_function({"env_file": "new/script.py"}, recorded) == {"env_file": "new/script.py:make_envs"}
    assert with_function({"env_file": "new/script.py:One"}, recorded) == {"env_file": "new/script.py:One"}
    assert with_function({"gamma": 0.9}, recorded) == {"gamma": 0.9}
    assert with_function({"env_file": "new/script.py"}, Config(env_file="/old/script.py")) == {"env_file": "new/script.py"}
    assert played_script({"env_file": "/new/script.py:make_envs"}) == {"env_file": "/new/script.py:make_envs"}
    assert played_script({"env_file": "/new/script.py:One"}) == {"env_file": "/new/script.py", "env_id": "One"}


def test_agents_of_a_game_are_the_rows(write):
    path = write(GAMES)
    cfg = Config(env_file=str(path))
    assert rows_per_game(cfg) == from_parallel_env(Corridor).rows_per_game(cfg) > 1
    assert rows_per_game(Config()) == 1
    assert choose_variant(cfg).variant == "ppo"


def test_a_game_that_cannot_be_made_is_named_by_its_file(tmp_path):
    (tmp_path / "broken.py").write_text("from proximo.envs.parallel_env import from_parallel_env\n\n\ndef game():\n"
                                        "    raise OSError('no board')\n\n\nmake_envs = from_parallel_env(game)\n")
    with pytest.raises(EnvError, match="^broken could not be made: OSError: no board"):
        choose_variant(replace(Config(), env_file=str(tmp_path / "broken.py")))


@pytest.mark.parametrize("text", [VECTOR, GAMES])
def test_a_file_trains_like_a_program(write, tmp_path, text):
    """The reference is the same function, passed as make_envs: weights, metrics and evaluations are equal. The run of
    the file resumes and is evaluated without the function."""
    path = write(text)
    function = function_in_file(Config(env_file=str(path)))
    values = {**SHORT, "num_envs": 6, "env_id": "Task-v0", "checkpoint_every": 5}  # a VectorEnv is made again there
    whole = proximo.train("ppo", make_envs=function, total_timesteps=960, run_dir=tmp_path / "program", **values)
    part = proximo.train("ppo", env_file=str(path), total_timesteps=480, run_dir=tmp_path / "file", **values)
    again = proximo.resume(part, total_timesteps=960, allow_import=[str(path)])
    assert same_weights(whole, again) and same_logs(whole, again)
    one = proximo.evaluate(whole, episodes=6, make_envs=function)
    other = proximo.evaluate(again, episodes=6, allow_import=[str(path)])
    assert np.array_equal(one.returns, other.returns)
    assert obs_changes(proximo.load(again)) == {"make_envs": f"make_envs of {path.name}"}  # what an exported file says


def test_environments_in_jax_train_several_seeds_from_a_file(write, tmp_path):
    """All seeds train in one compiled function, with the weights of the same function as make_envs."""
    path = write(JAX)
    values = {**SHORT, "num_envs": 4, "env_id": "Line-v0", "framework": "jax", "num_seeds": 2, "total_timesteps": 256}
    ours = proximo.train("ppo", env_file=str(path), run_dir=tmp_path / "file", **values)
    function = function_in_file(Config(env_file=str(path)))
    program = proximo.train("ppo", make_envs=function, run_dir=tmp_path / "program", **values)
    for name in ("seed-1", "seed-2"):
        assert same_weights(ours / name, program / name)


@pytest.mark.parametrize(("text", "framework", "settings"), [
    (VECTOR, "torch", {"recurrent": "lstm"}), (VECTOR, "jax", {"norm_obs": True, "norm_reward": True}),
    (GAMES, "jax", {"recurrent": "gru"}), (JAX, "torch", {"recurrent": "lstm", "norm_obs": True})])
def test_files_train_with_other_features(write, tmp_path, text, framework, settings):
    """A run of two iterations, and an evaluation, which needs nothing but permission."""
    path = write(text)
    run = proximo.train(env_file=str(path), run_dir=tmp_path / "run", framework=framework, num_envs=6, num_steps=8,
                        num_minibatches=2, total_timesteps=96, **settings)
    assert len(proximo.evaluate(run, episodes=3, max_steps=600, allow_import=[str(path)]).returns) >= 3


@pytest.mark.parametrize("variant, settings", [("ppo_atari", {}), ("ppo", {"engine": "envpool"})])
def test_a_file_where_none_is_taken_is_the_only_problem(variant, settings, write, tmp_path):
    """The class in it is not looked for among the games or the environments of EnvPool."""
    path = write(TASK.replace("SIZE", "2").replace("BOUND", "1"))
    with pytest.raises(UsageError) as caught:
        proximo.train(variant, env_file=f"{path}:Task", run_dir=tmp_path / "run", **settings)
    (line,) = str(caught.value).splitlines()
    assert line.startswith("env_file is not available ")


def test_settings_that_have_no_effect_are_told(write, tmp_path, caplog):
    """A plain function may read them, so there is a warning; makers of Proximo refuse them."""
    vector, games = write(VECTOR), write(GAMES, "games")
    values = {**SHORT, "num_envs": 6, "frame_stack": 2, "total_timesteps": 96}
    proximo.train("ppo", env_file=str(vector), run_dir=tmp_path / "run", **values)
    assert "frame_stack=2 has an effect on the environments only if make_envs reads it" in caplog.text
    with pytest.raises(UsageError, match="frame_stack=2 has no effect on environments of from_parallel_env"):
        proximo.train("ppo", env_file=str(games), run_dir=tmp_path / "other", **values)
    with pytest.raises(UsageError, match="make_envs and env_file were both given"):
        proximo.train("ppo", env_file=str(vector), make_envs=lambda cfg, seeds: None)
    with pytest.raises(UsageError, match="env_file is not available in this variant"):
        proximo.train("ppo_atari", env_file=str(vector), run_dir=tmp_path / "atari")


TASK = """
import gymnasium as gym
import numpy as np

class Task(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (SIZE,)), gym.spaces.Box(-BOUND, BOUND, (1,))

    def reset(self, seed=None, options=None):
        return np.zeros(SIZE, np.float32), {}

    def step(self, action):
        return np.zeros(SIZE, np.float32), 0.0, True, False, {}
"""
MANY = """
def make_envs(cfg, seeds):
    return gym.vector.SyncVectorEnv([Task] * len(seeds))
"""


@pytest.mark.parametrize(("text", "name"), [(TASK, "Task"), (TASK + MANY, "make_envs")])
def test_a_resume_of_a_changed_file_says_what_differs(tmp_path, text, name, caplog):
    """Other bounds of actions were taken without a word, and another shape was called a fault of the network."""
    def changed(size, bound):
        path = tmp_path / f"{size}_{bound}" / "changed_task.py"
        path.parent.mkdir()
        path.write_text(text.replace("SIZE", str(size)).replace("BOUND", str(bound)))
        return path

    run = proximo.train("ppo_continuous_action", env_file=f"{changed(3, 1)}:{name}", run_dir=tmp_path / "run",
                        **{**SHORT, "num_envs": 2, "total_timesteps": 64})
    with pytest.raises(UsageError, match=r"has observations float32 of shape \(4,\) .* trained with .* shape \(3,\)"):
        proximo.resume(run, env_file=str(changed(4, 1)), total_timesteps=128)
    proximo.resume(run, env_file=str(changed(3, 2)), total_timesteps=128)
    assert "Actions are clipped to the new bounds" in caplog.text


def test_a_function_that_makes_one_environment_has_to_be_named(tmp_path):
    """The message names it, and not what the file imports."""
    path = tmp_path / "poles_maker.py"
    path.write_text("from gymnasium import make, register\n\n\ndef make_env():\n    return make('CartPole-v1')\n")
    with pytest.raises(UsageError, match=r"has no environment. If a function .*: --env-file poles_maker.py:make_env.$"):
        name_in_file(Config(env_file=str(path)))
    assert name_in_file(Config(env_file=f"{path}:make_env")) == ("make_env", str(path))
