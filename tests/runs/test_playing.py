"""proximo.load and proximo.evaluate: what may be given, and every argument that cannot work, in one sentence each."""

import pytest

import proximo
from proximo.envs.gym_loop import GymEnvs
from proximo.errors import UsageError
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
    wrong = {"episodes": 0, "seed": -1, "max_steps": 2.5, "make_agent": 3, "make_agents": print}
    with pytest.raises(UsageError) as error:
        proximo.evaluate(run, **wrong)
    sentences = str(error.value).splitlines()
    assert len(sentences) == 5 and all(any(name in one for one in sentences) for name in wrong)
    for episodes in (-1, "3", 2.5, None):
        with pytest.raises(UsageError, match="episodes=.* is not allowed. Use a whole number of at least 1"):
            proximo.evaluate(run, episodes=episodes)


@pytest.mark.parametrize("call", [proximo.load, proximo.evaluate, proximo.resume])
@pytest.mark.parametrize("given", [None, 3, ""])
def test_what_is_no_folder_is_said(call, given):
    with pytest.raises(UsageError, match="is not a folder. Give the folder of a run"):
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
