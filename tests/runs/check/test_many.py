"""check_env of functions that make all environments, against probes with one known fault each."""

import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.envs.parallel_env import from_parallel_env
from proximo.errors import EnvError, UsageError
from proximo.runs.check import many as check_many
from tests.support.games import Corridor


def vector(kind):
    """Return make_envs of a VectorEnv of some environments of a class."""
    return lambda cfg, seeds: gym.vector.SyncVectorEnv([kind] * len(seeds))


def told(make_envs):
    """(sentences that say something is wrong, those that say all is well)"""
    findings = proximo.check_env(make_envs=make_envs)
    return ([finding.what for finding in findings if finding.ok is False],
            " ".join(finding.what for finding in findings if finding.ok))


class Walk(gym.Env):
    """A walk from a random place to 1."""

    observation_space, action_space = gym.spaces.Box(-9, 9, (1,), np.float64), gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.random()
        return np.array([self.place]), {}

    def step(self, action):
        self.place += 0.2
        return np.array([self.place]), 1.0, bool(self.place > 1), False, {}


class Unseeded(Walk):
    """Draws from a generator that reset(seed) does not seed."""

    def reset(self, seed=None, options=None):
        super().reset()
        self.place = np.random.default_rng().random()
        return np.array([self.place]), {}


class Lottery(Walk):
    """Rewards are drawn from a generator that reset(seed) does not seed."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, np.random.default_rng().random(), *rest


class Endless(Walk):
    def step(self, action):
        return *super().step(action)[:2], False, False, {}


class Failing(Walk):
    def step(self, action):
        raise ZeroDivisionError("a fault")


class NoChoiceAtTheEnd(Walk):
    """The mask of the last step of an episode allows nothing, which is no fault: the next step only resets."""

    def reset(self, seed=None, options=None):
        return super().reset(seed=seed)[0], {"action_mask": np.array([True, False])}

    def step(self, action):
        assert action == 0
        *answer, _ = super().step(action)
        return *answer, {"action_mask": np.array([not answer[2], False])}


@pytest.mark.parametrize("make_envs", [vector(Walk), vector(NoChoiceAtTheEnd), from_parallel_env(Corridor)])
def test_good_environments_have_no_fault(make_envs):
    wrong, right = told(make_envs)
    assert not wrong
    assert "same seed gives the same episode" in right and "finite and well formed" in right


def test_the_parts_of_an_observation_are_shown_as_their_space_has_them():
    """Training packs them into one row of bytes, whose size says nothing to a user."""
    class Parts(Walk):
        observation_space = spaces.Dict(image=spaces.Box(0, 255, (8, 8, 3), np.uint8), near=spaces.Tuple(
            [spaces.Box(-1, 1, (2, 2), np.float64), spaces.Discrete(4)]))

        def reset(self, seed=None, options=None):
            return self.parts(), super().reset(seed=seed)[1]

        def step(self, action):
            return self.parts(), *super().step(action)[1:]

        def parts(self):
            return {"image": np.zeros((8, 8, 3), np.uint8), "near": (np.zeros((2, 2)), 1)}

    shown = ("observation['image'] (8, 8, 3) uint8, observation['near'][0] (2, 2) float64, observation['near'][1] () int64 "
             "and rewards are finite and well formed")
    for findings in (proximo.check_env(Parts), proximo.check_env(make_envs=vector(Parts))):
        assert shown in [finding.what for finding in findings if finding.ok]


@pytest.mark.parametrize("kind", [Unseeded, Lottery])
def test_seeds_that_are_ignored_are_a_fault(kind):
    assert told(vector(kind))[0] == ["the same seed gives different episodes"]


def test_seeds_that_are_used_are_told():
    assert "different seeds give different episodes" in told(vector(Walk))[1]


def test_episodes_that_do_not_end_are_a_fault(monkeypatch):
    monkeypatch.setattr(check_many, "ENDLESS", 100)
    assert told(vector(Endless))[0] == ["no episode ended in 100 steps of random actions"]


@pytest.mark.parametrize(("length", "wrong"), [(40, []), (60, ["no episode ended in 800 steps of random actions"])])
def test_a_game_of_many_agents_may_be_as_long_as_an_episode_of_one(monkeypatch, length, wrong):
    """Two games of eight agents are sixteen rows, so 100 steps of all rows would be six steps of each game."""
    monkeypatch.setattr(check_many, "ENDLESS", 100)
    assert told(from_parallel_env(lambda: Corridor(agents=8, size=100, length=length)))[0] == wrong


def test_slow_environments_are_no_fault(monkeypatch):
    monkeypatch.setattr(check_many, "MOST_SECONDS", 0.0)
    findings = proximo.check_env(make_envs=vector(Endless))
    assert [(one.ok, one.advice) for one in findings if "no episode ended" in one.what] == [
        (None, "It is slow: only 0 s were played. Make sure that its episodes end.")]


def test_an_environment_that_raises_is_a_fault():
    findings = proximo.check_env(make_envs=vector(Failing))
    assert [finding.ends for finding in findings if finding.ok is False] == [True]
    assert "ZeroDivisionError: a fault" in findings[-1].what


class Leaving(Walk):
    """Ends the process in a step."""

    def step(self, action):
        sys.exit("no licence")


def test_an_environment_that_exits_is_a_fault():
    """The process ended, and the command said that this happened outside the calls of the environment."""
    findings = proximo.check_env(make_envs=vector(Leaving))
    assert findings[-1].ends and "called sys.exit('no licence')" in findings[-1].what
    with pytest.raises(EnvError, match="make_envs raised SystemExit: no licence"):
        proximo.check_env(make_envs=lambda cfg, seeds: sys.exit("no licence"))


def test_single_environments_are_told_what_is_needed():
    for made, advice in ((Walk(), "Return one object that steps all"), ([Walk()], "Return one object that steps all"),
                         (None, "Return the environments")):
        with pytest.raises(UsageError, match=f"make_envs returned {type(made).__name__}, which lacks .*{advice}"):
            proximo.check_env(make_envs=lambda cfg, seeds, made=made: made)


def test_what_cannot_be_checked_is_told():
    with pytest.raises(UsageError, match="make_envs was given, and another environment too"):
        proximo.check_env(Walk, make_envs=vector(Walk))
    with pytest.raises(UsageError, match="make_envs returned list, which lacks"):
        proximo.check_env(make_envs=lambda cfg, seeds: [])


def test_compiling_takes_no_time_of_play(monkeypatch):
    """The first step, in which JAX compiles, takes longer than all of the play; episodes are counted after it."""
    clock = [0.0]

    class Compiled(gym.vector.SyncVectorEnv):
        def step(self, actions):
            clock[0] += 0.001 if clock[0] else 10 * check_many.MOST_SECONDS
            return super().step(actions)

    monkeypatch.setattr(check_many.time, "perf_counter", lambda: clock[0])
    findings = proximo.check_env(make_envs=lambda cfg, seeds: Compiled([Walk] * len(seeds)))
    (played,) = (one.what for one in findings if "steps of random actions" in one.what)
    assert f"in {check_many.STEPS} steps" in played
