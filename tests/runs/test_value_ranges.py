"""Remarks on observations and rewards, against environments whose numbers are known."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from proximo.runs.check_env import check_env
from proximo.runs.value_ranges import ValueRanges

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
