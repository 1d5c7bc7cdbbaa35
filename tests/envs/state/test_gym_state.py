"""The saved state of Gymnasium environments: what it holds, and what cannot be saved."""

import random
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import (
    ClipAction,
    ClipReward,
    FlattenObservation,
    RecordEpisodeStatistics,
    RescaleAction,
    RescaleObservation,
    StickyAction,
    TimeAwareObservation,
)

import proximo
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.state.check import same_steps
from proximo.envs.state.codes import decode_value, same_value
from proximo.errors import warn_once
from proximo.runs.folder.checkpoint import load_tree, save_tree


class Plain(gymnasium.Env):
    """Observations are random, rewards count the steps, and episodes have `length` steps."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    length = 30
    played = 0

    def observe(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.played = 0
        return self.observe(), {}

    def step(self, action):
        self.played += 1
        return self.observe(), float(self.played), self.played >= self.length, False, {}


class NamedSpaces(Plain):
    """Draws from spaces in a dict, as environments of several agents have them."""

    def __init__(self):
        self.action_spaces = {"a": spaces.Discrete(9), "b": [spaces.Discrete(9), spaces.Box(0, 1, (2,))]}

    def observe(self):
        return np.float32([self.action_spaces["a"].sample(), self.action_spaces["b"][0].sample()]) / 9


class NestedSpaces(Plain):
    """Draws from spaces inside spaces, one of which is in two places. One is sampled as a whole."""

    def __init__(self):
        six = spaces.Discrete(6)
        self.deep = spaces.Dict(a=spaces.Dict(b=spaces.Discrete(9)), c=six, d=spaces.Tuple([six, spaces.Discrete(9)]))
        self.more = spaces.Sequence(spaces.Discrete(9), stack=False)

    def observe(self):
        drawn = self.deep.sample() if self.played % 3 else {"a": {"b": self.deep["a"]["b"].sample()}, "d": [0, 0]}
        return np.float32([drawn["a"]["b"], sum(drawn["d"]) + sum(self.more.sample())]) / 99


class LateSpace(Plain):
    """Makes a space when it is first needed."""

    def step(self, action):
        if self.played == 5:
            self.moves = spaces.Discrete(3)
        return super().step(action)


class Itself(Plain):
    """Holds a list that contains itself, and one that is nested deeply."""

    def __init__(self):
        self.deep = []
        for _ in range(2000):
            self.deep = [self.deep]


class Finds(Plain):
    """Holds an object in step 120 that cannot be saved."""

    length = 200

    def step(self, action):
        if self.played == 120:
            self.found = {1, 2}
        return super().step(action)


class Fails(Plain):
    """Raises in step 30."""

    length = 200

    def step(self, action):
        if self.played == 29:
            raise KeyError("torque")
        return super().step(action)


def test_a_fault_of_the_environment_is_told_where_its_state_is_tested(capsys):
    """Otherwise only the state that cannot be saved would be, although that is not what is wrong."""
    assert not GymEnvs(Fails, [1], "Fails").keeps_state
    assert "whether their state can be saved, and one failed: environment 0 (Fails), step 30: raised KeyError" in (
        capsys.readouterr().err)


DRAWS = random.Random(0)


class DrawsElsewhere(Plain):
    """Its goals come from a generator of the module, which the seed of the first reset sets."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            DRAWS.seed(seed)
        self.goal = DRAWS.random()
        return super().reset(seed=seed)

    def observe(self):
        return np.float32([self.goal, self.played / self.length])


def test_that_attributes_are_not_the_whole_state_is_told(capsys):
    """The same seed gives the same steps, so that no other message says why its state cannot be saved."""
    assert not GymEnvs(DrawsElsewhere, [1], "Elsewhere").keeps_state
    assert "another one went on differently with the saved attributes" in capsys.readouterr().err
    assert GymEnvs(Plain, [1], "Plain").keeps_state
    assert not capsys.readouterr().err


class OnlyOne(Plain):
    """A robot, or a simulator on a fixed port: a second one cannot be opened."""

    opened = 0

    def __init__(self):
        if OnlyOne.opened:
            raise OSError("port 5005 is already in use")
        OnlyOne.opened = 1

    def close(self):
        OnlyOne.opened = 0


def test_an_environment_of_which_only_one_can_be_open_is_trained(tmp_path, capsys):
    """The test of its state needs two more: it cannot be saved then. A rebuild closes it first."""
    proximo.train(env=lambda: OnlyOne(), num_envs=1, num_steps=16, num_minibatches=2, total_timesteps=64, checkpoint_every=2,
                  run_dir=tmp_path / "run", logger="none")
    assert "port 5005 is already in use" in capsys.readouterr().err


def test_windows_are_not_closed_by_a_copy():
    """pygame.quit() of one environment closes the windows of all of them."""
    made = []

    def make():
        made.append(Plain())
        made[-1].render_mode = "human"
        return made[-1]

    assert not GymEnvs(make, [1], "Shown").keeps_state
    assert len(made) == 1


class Shares(Plain):
    """Holds one array under two names from step 120 on."""

    length = 200

    def reset(self, *, seed=None, options=None):
        self.best, self.now = np.zeros(3), np.zeros(3)
        return super().reset(seed=seed)

    def step(self, action):
        if self.played == 120:
            self.best = self.now
        return super().step(action)


class Drawing(Plain):
    """Draws from a generator of its own when an episode begins; episodes are longer than the first part of the check."""

    length = 200
    goal = 0.0

    def draw(self):
        return 1.0

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        if seed is not None:
            self.prepare(seed)
        self.goal = float(self.draw())
        return observation, info

    def prepare(self, seed):
        pass

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, self.goal, *rest


class BoundGenerator(Drawing):
    """The generator is only known to its method."""

    def prepare(self, seed):
        self.draw = np.random.default_rng(seed).normal


class BoundHelper(Drawing):
    """The same with an object of Python."""

    def prepare(self, seed):
        self.draw = Drawer(seed).next


class Drawer:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def next(self):
        return self.rng.normal()


class InClosure(Drawing):
    """A function has the generator and two counters."""

    def prepare(self, seed):
        rng, drawn, level = np.random.default_rng(seed), [0], 0

        def draw():
            nonlocal level
            drawn[0] += 1
            level += 2
            return rng.normal() + drawn[0] + level + self.length

        self.draw = draw


class InClass(Drawing):
    """Counts in its class."""

    begun = 0

    def draw(self):
        type(self).begun += 1
        return self.begun


class OfModule(Drawing):
    """Draws from the global generator."""

    def draw(self):
        return random.random()


class Inside(Drawing):
    """Holds an environment that it does not wrap."""

    def prepare(self, seed):
        self.inner = Plain()
        self.inner.reset(seed=seed)

    def draw(self):
        return self.inner.observe()[0] if hasattr(self, "inner") else 0.0


class Listed(Drawing):
    """Functions in a list, whose order may change."""

    def prepare(self, seed):
        self.draws = [lambda: 1.0, lambda: 2.0]


class Recursive(Drawing):
    """A function that holds itself."""

    def prepare(self, seed):
        def draw(depth=3):
            return draw(depth - 1) + 1 if depth else 0

        self.draw = draw


class Masking(Drawing):
    """An array with a mask, which a plain array would lose."""

    def prepare(self, seed):
        self.hidden = np.ma.masked_array(np.zeros(3), mask=[0, 1, 0])


class Slotted(Plain):
    """Counts episodes outside of its __dict__; the rewards change in the 50th one."""

    __slots__ = ("begun",)

    def reset(self, *, seed=None, options=None):
        self.begun = getattr(self, "begun", 0) + 1
        return super().reset(seed=seed)

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, float(self.begun >= 50), *rest


class Precise(Plain):
    """Holds numbers of more than 64 bits, which files cannot store."""

    def __init__(self):
        self.sum = np.zeros(2, np.longdouble)


class Linear(Plain):
    """Adds up a matrix in the order in which the memory holds it: rewards depend on it in their last bits."""

    def __init__(self):
        self.matrix = np.random.default_rng(0).normal(size=(40, 30)).T

    def step(self, action):
        self.matrix *= 1.001
        observation, _, *rest = super().step(action)
        return observation, float(np.cumsum(self.matrix.ravel("K"))[-1] * 2**40 % 1), *rest


def make(kind, seeds=(1, 2), mode="same-step"):
    return GymEnvs(kind, seeds, kind.__name__, mode)


def continues(kind, steps, mode="same-step"):
    """Return whether other environments continue from a state for 200 steps."""
    envs, other, action = make(kind, mode=mode), make(kind, (3, 4), mode), np.zeros(2, int)
    envs.reset(), other.reset()
    for _ in range(steps):
        envs.step(action)
    other.load(envs.state())
    return all(same_steps(envs.step(action), other.step(action)) for _ in range(200))


class Remembers(Plain):
    """Has an attribute for each action that was taken, from the step on that took it."""

    action_space = gymnasium.spaces.Discrete(8)

    def step(self, action):
        setattr(self, f"taken_{action}", self.np_random.random())
        left = sum(value for name, value in sorted(vars(self).items()) if name.startswith("taken_"))
        return np.full(self.observation_space.shape, left / 8, np.float32), left, False, False, {}


def test_the_order_in_which_attributes_were_set_is_no_state():
    """The copy of the test has taken another action first."""
    assert GymEnvs(Remembers, [1, 2], "Remembers").keeps_state


class Seeded(Plain):
    """Episodes have as many steps as the first seed says."""

    def reset(self, *, seed=None, options=None):
        self.length = self.length if seed is None else seed
        return super().reset(seed=seed)


def test_an_episode_that_has_ended_before_a_state_was_saved_ends_once():
    """Row 0 ends with the third step and row 1 with the fourth, in environments that were played before they load."""
    envs, other, action = make(Seeded, (3, 4)), make(Seeded, (9, 9)), np.zeros(2, int)
    envs.reset(), other.reset()
    other.step(action)
    for _ in range(3):
        envs.step(action)
    other.load(envs.state())
    step = other.step(action)
    assert step.episode.finished.tolist() == [False, True] and same_steps(envs.step(action), step)


@pytest.mark.parametrize(("kind", "cause"), [
    (Finds, "its attribute 'found' holds a value of the type set"), (Shares, "its attribute 'now' holds a value of the type ndarray that another attribute holds too")])
def test_a_state_that_can_no_longer_be_saved_is_told(kind, cause, capsys):
    envs = make(kind)
    envs.reset()
    assert envs.keeps_state and envs.state() is not None
    for _ in range(121):
        envs.step(np.zeros(2, int))
    assert envs.state() is None and f"{kind.__name__} can no longer be saved: {cause}." in capsys.readouterr().err


@pytest.mark.parametrize("kind", [BoundGenerator, BoundHelper, InClass, OfModule, Inside, Listed, Recursive, Masking])
def test_state_outside_of_attributes_is_found(kind):
    """Also if it shows only where an episode begins, and episodes are long."""
    envs = make(kind)
    envs.reset()
    assert not envs.keeps_state


@pytest.mark.parametrize("mode", ["same-step", "next-step"])
def test_variables_of_functions_are_saved(mode):
    assert make(InClosure, mode=mode).keeps_state and continues(InClosure, 150, mode)


@pytest.mark.parametrize("wrap", [
    lambda env: RescaleAction(env, -1, 1), lambda env: RescaleObservation(env, np.float32(-1), np.float32(1)), FlattenObservation,
    lambda env: ClipReward(env, -1, 1), ClipAction, TimeAwareObservation, RecordEpisodeStatistics, lambda env: StickyAction(env, 0.25)])
def test_wrappers_with_functions_are_still_saved(wrap):
    assert GymEnvs(lambda: wrap(gymnasium.make("MountainCarContinuous-v0")), [1], "wrapped").keeps_state


def test_arrays_keep_their_order_in_the_memory(tmp_path):
    """Also through a file: sums of another order differ in the last bits."""
    envs, other, action = make(Linear), make(Linear, (3, 4)), np.zeros(2, int)
    envs.reset(), other.reset()
    for _ in range(9):
        envs.step(action)
    save_tree(tmp_path / "saved", {"state": envs.state()})
    other.load(load_tree(tmp_path / "saved")["state"])
    for _ in range(40):
        step = envs.step(action)
        assert same_steps(step, other.step(action))
    assert envs.keeps_state


class Dated(Plain):
    """Has times of numpy, as a table of prices has them; the reward is the hour."""

    def __init__(self):
        self.times = np.datetime64("2024-01-01T00", "ns") + np.arange(40) * np.timedelta64(1, "h")

    def step(self, action):
        observation, _, *rest = super().step(action)
        self.now = self.times[self.played]
        self.times[self.played:] += np.timedelta64(1, "h")
        return observation, float(self.now.astype("datetime64[h]").astype(int) % 24), *rest


def test_times_are_saved(tmp_path):
    envs, other, action = make(Dated), make(Dated, (3, 4)), np.zeros(2, int)
    envs.reset(), other.reset()
    for _ in range(9):
        envs.step(action)
    assert envs.keeps_state
    save_tree(tmp_path / "saved", {"state": envs.state()})
    other.load(load_tree(tmp_path / "saved")["state"])
    assert all(same_steps(envs.step(action), other.step(action)) for _ in range(40))


@pytest.mark.parametrize("kind", [NamedSpaces, NestedSpaces])
def test_spaces_in_dicts_lists_and_spaces_are_saved(kind, tmp_path):
    """Also in the files of a checkpoint."""
    assert make(kind).keeps_state and continues(kind, 17)
    envs = make(kind)
    envs.reset()
    save_tree(tmp_path / "saved", {"state": envs.state()})
    assert same_value(load_tree(tmp_path / "saved")["state"], envs.state())


def test_a_state_without_the_parts_of_spaces_can_be_read():
    """As older checkpoints have it: no part had drawn."""
    space = spaces.Dict(a=spaces.Discrete(9))
    space.sample()
    assert decode_value({"space": None}, space) is space and space._np_random is space["a"]._np_random is None


@pytest.mark.parametrize("kind", [LateSpace, Itself, Slotted, Precise])
def test_a_state_that_cannot_be_encoded_or_loaded_stops_nothing(kind):
    """Such environments are made again at checkpoints."""
    envs = make(kind)
    envs.reset()
    assert not envs.keeps_state and envs.state() is None
    assert envs.step(np.zeros(2, int)).reward.tolist() == ([0, 0] if kind is Slotted else [1, 1])


class Drawing(gymnasium.Env):
    """Draws from numpy's global generator, or from its own."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

    def __init__(self, own):
        self.own = own

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action):
        return self._observe(), 1.0, False, False, {}

    def _observe(self):
        return (self.np_random if self.own else np.random).uniform(-1, 1, 2).astype(np.float32)


@pytest.mark.parametrize("own", [True, False])
def test_environments_that_their_seed_does_not_determine_are_told(own, capsys):
    """A message said that a resumed run equals an uninterrupted one."""
    warn_once.cache_clear()
    assert GymEnvs(lambda: Drawing(own), [1], "Drawing-v0").keeps_state == own
    assert ("make different steps with the same seed and actions" in capsys.readouterr().err) == (not own)


class Sharing(Plain):
    """Reads a dict of the program."""

    def __init__(self, program):
        self.program = program

    def observe(self):
        return super().observe() * self.program["scale"]


MAP = np.zeros(2000)  # repr() leaves out the middle of such arrays


@pytest.mark.parametrize("changes", [{}, {"scale": 0.25}, {"map": np.where(np.arange(2000) == 1000, 1.0, MAP)}])
def test_environments_share_a_dict_with_the_program_after_a_resume(changes, caplog, tmp_path):
    """As before, if it has not changed since its program began; otherwise each has a copy, and a warning says so."""
    warn_once.cache_clear()
    first, program = ({"scale": 0.5, "map": MAP.copy(), "parts": [(1, np.nan), None]} for _ in range(2))
    envs, others = (GymEnvs(partial(Sharing, one), [1, 2], "Sharing-v0") for one in (first, program))
    envs.reset(), others.reset()
    first.update(changes)
    save_tree(tmp_path / "state", envs.snapshot())
    others.load(load_tree(tmp_path / "state"))
    for held in others.call("get_wrapper_attr", "program"):
        assert held["scale"] == first["scale"] and (held["map"] == first["map"]).all()
        assert (held is program) != bool(changes)
    assert ("The environments share the dict 'program'" in caplog.text) == bool(changes)
