"""Remarks on observations and rewards, against environments whose numbers are known."""

from contextlib import nullcontext
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.envs.arrays.obs_layout import obs_layout, part_views
from proximo.on_torch.assemble import assemble
from proximo.runs.check.env import check_env
from proximo.runs.check.value_ranges import FirstValues, ValueRanges, unreached_actions

START = 1.7e9  # seconds since 1970: float32 numbers are 128 apart there


def remarks(space, observations, rewards=()):
    ranges = ValueRanges(space)
    for observation in observations:
        ranges.count(observation, 0.0)
    for reward in rewards:
        ranges.count(observations[0] if observations else None, reward)
    return [what for what, _ in ranges.remarks()]


def box(*shape, dtype=np.float64):
    return spaces.Box(-np.inf if dtype == np.float64 else 0, np.inf if dtype == np.float64 else 255, shape, dtype)


@pytest.mark.parametrize("observations", [[np.array([0.0, 1.0]), np.array([-100.0, 100.0])], []])
def test_ordinary_numbers_have_no_remark(observations):
    assert remarks(box(2), observations, [100, -100.0, np.float32(3), True]) == []


def test_large_numbers_are_told():
    told = remarks(box(2), [np.array([0.0, 1.0]), np.array([-2000.0, 50.0])], [1, np.array([-500.0])])
    assert told == ["observations reach from -2000 to 50", "rewards reach a magnitude of 500"]


def test_numbers_that_stay_far_from_zero_are_told():
    """Degrees from 28 to 48 of SB3's issue 1826, with which an agent learns nothing; from -9 to 60, a number comes near 0."""
    assert remarks(box(2), [np.array([0.0, 28.0]), np.array([1.0, 48.0])]) == [
        "observations are far from 0: 1 of 2 numbers, number 1 (counted from 0) lies between 28 and 48"]
    assert remarks(box(2), [np.array([0.0, -28.0]), np.array([1.0, -11.0])])[0].endswith("lies between -28 and -11")
    assert remarks(box(2), [np.array([-9.0, 9.0]), np.array([60.0, 60.0])]) == []


def test_numbers_that_float32_cannot_tell_apart_are_told():
    times = [np.array([START + second, second]) for second in range(0, 2000, 100)]
    assert "1 of 2 numbers" in remarks(box(2), times)[1] and f"between {START} and {START + 1900}" in remarks(box(2), times)[1]
    assert len({np.float32(START + second) for second in range(0, 2000, 100)}) < 20  # so it is true
    assert len(remarks(box(2), [np.array([START, 0.0])] * 3)) == 1  # a number that never changes is no fault


def test_parts_of_a_dict_count_but_no_images_and_masks():
    space = spaces.Dict({"camera": box(2, dtype=np.uint8), "action_mask": box(2), "arm": spaces.Tuple((box(1), spaces.Discrete(500)))})
    seen = {"camera": np.full(2, 255, np.uint8), "action_mask": np.full(2, 1e6), "arm": (np.array([7.0]), 499)}
    assert remarks(space, [seen]) == []
    assert remarks(space, [seen, seen | {"arm": (np.array([101.0]), 0)}]) == ["observations reach from 7 to 101"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("odd", [None, "text", {"other": 1}, np.array([np.nan, np.inf]), np.zeros(3)])
def test_faults_are_left_to_other_checks(odd):
    """They end neither with an error nor with a warning of numpy."""
    remarks(box(2), [np.zeros(2), odd, np.array([1e300, -np.inf])], [None, "text", np.zeros(2)])


@pytest.mark.filterwarnings("error")
def test_numbers_that_end_training_are_told():
    """Beyond the range of float32 too, as GymEnvs has it; the largest number of float32 is one."""
    ranges, large = ValueRanges(box(1)), float(np.finfo(np.float32).max)
    for wrong in (np.nan, np.inf, -2 * large):
        assert ranges.count(np.zeros(1), wrong).startswith(f"reward is {wrong}; it must be a finite number of float32")
        assert ranges.count(np.array([wrong]), 0.0).startswith("observation is not finite in float32")
    assert ranges.count(np.array([large]), -large) == ""
    assert [what for what, _ in ranges.remarks()] == ["observations reach from 3.403e+38 to 3.403e+38", "rewards reach a magnitude of 3.403e+38"]

def test_check_env_tells_them():
    class Clock(gymnasium.Env):
        observation_space, action_space = box(1), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.now = START
            return np.array([self.now]), {}

        def step(self, action):
            self.now += 1
            return np.array([self.now]), 1e4, self.now >= START + 50, False, {}

    notes = [finding.what for finding in check_env(Clock) if finding.ok is None]
    assert [note.split()[0] for note in notes] == ["observations", "rewards", "float32", "different"], notes


@pytest.mark.parametrize("observation", [None, "text", [None], object()])
def test_what_is_no_number_is_left_to_other_checks(observation):
    """None became NaN, and was said to be not finite."""
    assert ValueRanges(box(1)).count(observation, 0.0) == ""


def one_action(low, high):
    return spaces.Box(np.float32(low), np.float32(high), (1,))


@pytest.mark.parametrize(("low", "high", "share"), [
    (15, 30, 0.0), (-30, -15, 0.0), (0, 0.001, 0.0004), (2, 3, 0.0214), (1e3, np.inf, 0.0), (-60, 60, 1.0)])
def test_bounds_that_samples_of_a_standard_normal_miss_are_told(low, high, share):
    """Against samples: fewer than 5 % are inside, or all are in less than a tenth of the range."""
    samples = np.random.default_rng(0).standard_normal(100_000)
    assert np.mean((samples > low) & (samples < high)) == pytest.approx(share, abs=2e-3)
    words = "in a small part of this range" if share == 1 else "outside and become a bound"
    assert unreached_actions(one_action(low, high)).startswith("an untrained policy samples action[0] near 0")
    assert unreached_actions(one_action(low, high)).endswith(words)


@pytest.mark.parametrize("space", [one_action(-1, 1), one_action(0, 1), one_action(-0.1, 0.1), one_action(-50, 50),
                                   one_action(-np.inf, np.inf), one_action(0, np.inf), one_action(5, 5),
                                   spaces.MultiDiscrete([10, 5], start=[15, 20]), spaces.Box(0, 1, (0,))])
def test_other_bounds_are_not_told(space):
    assert unreached_actions(space) == ""


def test_the_part_and_the_number_of_an_action_are_named():
    valve, heat = spaces.Box(0.0, 1.0, ()), spaces.Box(np.float32([0, 15]), np.float32([1, 30]))
    assert "samples action['heat'][1] near 0" in unreached_actions(spaces.Dict({"heat": heat, "mode": spaces.Discrete(3)}))
    assert "samples action[1] near 0" in unreached_actions(spaces.Tuple((valve, spaces.Box(15.0, 30.0, ()))))
    assert unreached_actions(one_action(-300, 300), std=20.0) == "" == unreached_actions(valve)


class Setpoint(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Box(15.0, 30.0, (1,))

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, True, False, {}


@pytest.mark.parametrize(("settings", "told"), [
    ({}, True), ({"distribution": "squashed"}, False), ({"distribution": "beta"}, False), ({"log_std_init": 4.0}, False),
    ({"make_agent": assemble}, False)])
def test_training_tells_of_bounds_that_the_policy_does_not_reach(settings, told, tmp_path, caplog):
    proximo.train("ppo_continuous_action", env=Setpoint, num_steps=16, num_minibatches=2, total_timesteps=16,
                  logger="none", run_dir=tmp_path / "run", **settings)
    assert any("Setpoint: an untrained policy samples action[0]" in one.message and "--distribution squashed" in one.message
               for one in caplog.records) == told
    assert any("an untrained policy samples action[0]" in finding.what for finding in check_env(Setpoint))


class Degrees(Setpoint):
    action_space = spaces.Tuple((spaces.Discrete(2), spaces.Box(15.0, 30.0, (1,))))


@pytest.mark.parametrize(("env", "squash"), [(Setpoint, True), (Degrees, False)])
def test_check_env_advises_a_distribution_only_where_training_takes_it(env, squash, tmp_path):
    advice, = (one.advice for one in check_env(env) if "an untrained policy samples" in one.what)
    assert advice == "Rescale them to -1 to 1" + ", or train with --distribution squashed" * squash + "."
    settings = {"num_envs": 1, "num_steps": 16, "num_minibatches": 2, "total_timesteps": 16, "distribution": "squashed", "logger": "none"}
    with nullcontext() if squash else pytest.raises(proximo.UsageError, match="squashed"):
        proximo.train("ppo", env=env, run_dir=tmp_path / "run", **settings)


class Loud(gymnasium.Env):
    """Observations and rewards of one magnitude each."""

    observation_space, action_space = box(2), spaces.Discrete(2)

    def __init__(self, obs=1.0, reward=1.0):
        self.values = obs, reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(2, self.values[0]), {}

    def step(self, action):
        return np.full(2, -self.values[0]), self.values[1], False, False, {}


FEW = {"num_envs": 2, "num_steps": 8, "num_minibatches": 1, "logger": "none"}


@pytest.mark.parametrize(("kwargs", "options", "told"), [
    ({"obs": 5000.0}, {}, ["Loud: observations reach a magnitude of 5000, from which networks learn slowly. --norm-obs"]),
    ({"reward": -200.0}, {}, ["Loud: rewards reach a magnitude of 200, from which networks learn slowly. --norm-reward"]),
    ({"obs": -100.0, "reward": 100.0}, {}, []),
    ({"obs": 5000.0, "reward": 200.0}, {"norm_obs": True, "norm_reward": True}, []),
    ({"reward": 200.0}, {"norm_value": True}, []),
    ({"obs": 5000.0}, {"make_agent": assemble}, [])])
def test_training_tells_of_large_numbers_once(kwargs, options, told, tmp_path, caplog):
    """After the first iteration, and not where they are scaled, or where a network of the program may do it."""
    run = proximo.train(env=Loud, env_kwargs=kwargs, total_timesteps=32, run_dir=tmp_path / "run", **FEW, **options)
    found = [one.getMessage() for one in caplog.records if "magnitude" in one.getMessage()]
    assert [line.startswith(start) for line, start in zip(found, told, strict=True)] == [True] * len(told)
    parts = {name: part for name, part in options.items() if name == "make_agent"}
    caplog.clear()
    proximo.resume(run, env=Loud, total_timesteps=48, **parts)
    assert "magnitude" not in caplog.text


@pytest.mark.parametrize(("norm_obs", "told"), [
    (True, []), (False, ["A: observations are far from 0, so that networks see little of how they change: 1 of 3 numbers, number 2 "
                         "(counted from 0) lies between 28 and 48. --norm-obs normalises them."])])
def test_training_tells_of_numbers_that_stay_far_from_zero(norm_obs, told):
    """Over all rows and steps, without a row that is not valid."""
    first, valid = FirstValues(), np.array([True, True, False])
    for obs in ([[0, 1, 28], [1, 20, 40], [0, 0, 0]], [[0, 30, 48], [1, 20, 40], [0, 0, 0]]):
        first.count(SimpleNamespace(obs=np.array(obs, np.float32), reward=np.zeros(3), valid=valid))
    assert list(first.remarks(proximo.Config(env_id="A", norm_obs=norm_obs))) == told


def test_rows_that_are_not_valid_may_have_any_reward():
    first, ones = FirstValues(), np.ones(2)
    valid = np.array([True, False])
    first.count(SimpleNamespace(obs=np.zeros((2, 3), np.float32), reward=np.array([7.0, 1e9]), valid=valid, mask=None))
    first.count(SimpleNamespace(obs=np.full((2, 3), 255, np.uint8), reward=ones, valid=valid, mask=None))
    assert (first.obs, first.reward) == (0.0, 7.0)


MIXED = spaces.Dict({"depth": spaces.Box(0, 60000, (2,), np.uint16), "clock": spaces.Box(-100, 100, (1,), np.int8),
                     "speed": box(2), "wet": spaces.Box(0, 1, (1,), bool), "door": spaces.Discrete(300)})


class Sonar(gymnasium.Env):
    """Whole numbers and floats of one magnitude each, as parts of a Dict, whose rows are bytes."""

    observation_space, action_space = MIXED, spaces.Discrete(2)

    def __init__(self, depth=1, speed=1.0):
        self.values = depth, speed

    def seen(self, at):
        return {"depth": np.array([self.values[0], 0], np.uint16) * at, "clock": np.array([-9 * at], np.int8),
                "speed": np.array([-self.values[1], 0.0]) * at, "wet": np.array([True]), "door": 299}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.seen(1), {}

    def step(self, action):
        return self.seen(int(action)), 0.0, False, bool(action), {}


@pytest.mark.parametrize(("kwargs", "norm_obs", "told"), [
    ({}, False, []),
    ({"depth": 30000}, False, "magnitude of 3e+04, from which networks learn slowly. --norm-obs leaves whole numbers"),
    ({"depth": 30000, "speed": 1e6}, True, "magnitude of 3e+04, from which networks learn slowly. --norm-obs leaves whole numbers"),
    ({"speed": 5000.0}, False, "magnitude of 5000, from which networks learn slowly. --norm-obs normalises them"),
    ({"speed": 5000.0}, True, [])])
def test_whole_numbers_of_a_dict_are_told_with_an_advice_that_helps(kwargs, norm_obs, told, tmp_path, caplog):
    """--norm-obs normalises floats only, so it is no advice for a uint16 of 30000; the rows of such a Dict are bytes."""
    proximo.train(env=Sonar, env_kwargs=kwargs, norm_obs=norm_obs, total_timesteps=32, run_dir=tmp_path / "run", **FEW)
    found = [one.getMessage() for one in caplog.records if "Sonar: observations" in one.getMessage()]
    assert len(found) == bool(told) and all(told in line for line in found)


def test_check_env_advises_norm_obs_only_where_it_changes_the_numbers():
    def advice(**kwargs):
        return [one.advice for one in check_env(lambda: Sonar(**kwargs)) if one.what.startswith("observations reach")]

    assert advice(speed=5000.0) == ["Normalise them with --norm-obs, the default of ppo_continuous_action."]
    assert advice(depth=30000)[0].startswith("--norm-obs leaves whole numbers in a Dict or Tuple as they are")
    alone = ValueRanges(spaces.Box(0, 60000, (1,), np.uint16))    # becomes one float vector, which is normalised
    alone.count(np.array([30000], np.uint16), 0.0)
    assert [one for _, one in alone.remarks()] == ["Normalise them with --norm-obs, the default of ppo_continuous_action."]


def test_large_numbers_in_arrays_of_another_shape_than_the_space_are_told():
    """check-env ended with an error of NumPy, instead of naming the shape."""
    class Longer(Sonar):
        def seen(self, at):
            return super().seen(at) | {"depth": np.full(3, 30000, np.uint16)}

    found = [one.what for one in check_env(Longer) if not one.ok]
    assert any(one.startswith("observations reach") for one in found) and any("shape" in one for one in found), found


@pytest.mark.parametrize(("space", "largest"), [
    (spaces.Dict({"board": spaces.Box(0, 200, (3,), np.uint8), "action_mask": spaces.MultiBinary(2)}), 0),
    (spaces.Dict({"me": spaces.Dict({"action_mask": spaces.Box(0, 1, (2,), np.int8), "far": spaces.Box(0, 900, (), np.int16)})}), 900),
    (spaces.Tuple((spaces.Box(-9, 900, (2, 2), np.float32), spaces.MultiBinary(3))), 900)])
def test_rows_of_bytes_are_read_by_their_parts(space, largest):
    first, layout = FirstValues(), obs_layout(space)
    rows = np.zeros((2, layout.size), np.uint8)
    for part, view in zip(layout.parts, part_views(layout, rows)):
        is_mask = part.space.dtype == np.int8
        view[...] = np.ravel(part.space.high) if isinstance(part.space, spaces.Box) and not is_mask else 1
    first.count(SimpleNamespace(obs=rows, reward=np.zeros(2), valid=np.ones(2, bool)), space)
    told = list(first.remarks(proximo.Config(env_id="A")))
    assert first.obs == largest and len(told) == (largest > 100)
