"""Observations as an environment returns them, against the rows that the suite makes of the same observations."""

import json
import subprocess
import sys
from collections import OrderedDict, UserDict

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.envs.gym_loop import GymEnvs
from proximo.errors import UsageError
from proximo.models.raw_obs import read_raw
from proximo.models.spaces import action_for_env, space_from_json, space_to_json
from tests.support.runs import train


class Echo(gymnasium.Env):
    """Returns samples of an observation space; episodes of five steps."""

    action_space = spaces.Discrete(3)

    def __init__(self, space):
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.time = 0
        return self.sample(), {}

    def sample(self):
        observation = self.observation_space.sample()
        if isinstance(observation, dict) and "action_mask" in observation:
            observation["action_mask"] = np.array([0, 1, 1], np.int8)
        return observation

    def step(self, action):
        self.time += 1
        return self.sample(), float(action == 0), self.time == 5, False, {}


SPACES = {
    "Vector": spaces.Box(-1, 1, (3,), np.float64), "Image": spaces.Box(0, 255, (40, 36, 3), np.uint8),
    "Number": spaces.Discrete(5, start=2), "Numbers": spaces.MultiDiscrete([3, 2]), "Bits": spaces.MultiBinary(4),
    "Flags": spaces.Box(0, 1, (3,), np.bool_),
    "Pair": spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,))]),
    "Nested": spaces.Dict(OrderedDict(z=spaces.Discrete(2), a=spaces.Dict({"x": spaces.Box(-9, 9, (2, 2))}),
                                      action_mask=spaces.MultiBinary(3))),
    "Camera": spaces.Dict({"camera": spaces.Box(0, 255, (9, 8, 3), np.uint8), "seen": spaces.Box(-1, 1, (2,)),
                           "kind": spaces.Discrete(3, start=1), "action_mask": spaces.MultiBinary(3)}),
}
for NAME, SPACE in SPACES.items():
    gymnasium.register(f"Echo{NAME}-v0", entry_point=Echo, kwargs={"space": SPACE}, max_episode_steps=9)


def batched(observations):
    """Return N observations as gymnasium's vector environments do: the same structure of arrays."""
    one = observations[0]
    if isinstance(one, dict):
        return {name: batched([x[name] for x in observations]) for name in one}
    return tuple(map(batched, zip(*observations))) if isinstance(one, tuple) else np.stack(observations)


def first_observations(space):
    """Return what five environments return at reset, and the suite's rows of it."""
    envs = GymEnvs(lambda: Echo(space), range(5), "echo")
    space.seed(0)
    wanted = envs.reset().obs.copy()
    return [one.reset(seed=seed)[0] for seed, one in enumerate([Echo(space)] * 5)], wanted, envs


@pytest.mark.parametrize("name", SPACES)
def test_raw_observations_become_the_rows_of_the_suite(name):
    """One, N in one structure, and N in a list; and from the space as the model's file has it."""
    space = space_from_json(space_to_json(SPACES[name]))
    raw, wanted, envs = first_observations(SPACES[name])
    shape = envs.obs_shape
    for given in ([raw] if isinstance(raw[0], (dict, tuple)) else []) + [batched(raw)]:
        rows = read_raw(space, shape, given)
        assert not rows.single and np.array_equal(rows.obs, wanted)
        assert (rows.mask is None) == ("action_mask" not in str(SPACES[name]))
    one = read_raw(space, shape, raw[2])
    assert one.single and one.obs.shape == (1, *shape) and np.array_equal(one.obs[0], wanted[2])


@pytest.mark.parametrize("hidden", [name for name, space in SPACES.items() if "action_mask" not in str(space)])
def test_a_key_that_the_policy_does_not_see_may_be_missing(hidden):
    """One of any kind, in N observations in one structure, in a list, and in one; the other part is as it is."""
    space = spaces.Dict(seen=spaces.Box(-1, 1, (2,)), hidden=SPACES[hidden])
    raw, wanted, _ = first_observations(space)
    raw = [{"seen": one["seen"]} for one in raw]
    rows = read_raw(space, wanted.shape[1:], batched(raw), "hidden")
    assert rows.obs.shape == wanted.shape and np.array_equal(rows.obs, read_raw(space, wanted.shape[1:], raw, "hidden").obs)
    assert np.array_equal(rows.obs[2:3], read_raw(space, wanted.shape[1:], raw[2], "hidden").obs)
    assert all(one["seen"].tobytes() in row.tobytes() for one, row in zip(raw, rows.obs, strict=True))


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_spaces_travel_as_json(space):
    again = space_from_json(space_to_json(space))
    assert again == space and (not isinstance(space, spaces.Dict) or list(again.spaces) == list(space.spaces))


def test_actions_of_a_loaded_model_are_in_the_space_of_the_environment():
    """gymnasium compares dtypes."""
    space = spaces.MultiDiscrete([2, 3], dtype=np.int8, start=[4, 5])
    loaded = space_from_json(space_to_json(space))
    assert loaded.dtype == np.int8 and all(map(space.contains, action_for_env(np.array([[0, 0], [1, 2]]), loaded)))
    record = {"type": "MultiDiscrete", "nvec": [2, 3], "start": [0, 0]}
    assert space_from_json(record).dtype == np.int64
    with pytest.raises(AssertionError):
        space_from_json({**record, "dtype": "float32"})


def test_bounds_that_were_written_as_booleans_are_read():
    """Version 0.2.0.dev0 wrote them, and could not read them."""
    assert space_from_json({"type": "Box", "low": False, "high": True, "shape": [3], "dtype": "bool"}) == SPACES["Flags"]
    uneven = spaces.Box(np.array([0, 1]), np.array([1, 1]), dtype=np.bool_)
    assert space_from_json(space_to_json(uneven)) == uneven


@pytest.mark.parametrize("name,raw,words", [
    ("Nested", {"z": 1}, "a dict with z. This model takes a dict with z, a, action_mask"),
    ("Nested", np.zeros(3), "the observation is a ndarray"), ("Pair", (1,), "a tuple of 1. This model takes a tuple of 2"),
    ("Pair", (1, np.zeros(3)), r"observation\[1\] has shape \(3,\); its space requires \(2,\)"),
    ("Pair", ([1, 2], np.zeros((3, 2))), "different numbers of rows"), ("Number", 9, "which is not in Discrete"),
    ("Numbers", [9, 0], "the observation is .9, 0., which is not in MultiDiscrete"),
    ("Number", UserDict(a=1), r"the observation cannot be read \(KeyError: 0\)"),
    ("Number", 2.5, "dtype float64. This model takes int64"), ("Image", np.zeros((3, 40, 36)), r"takes \(40, 36, 3\)"),
])
def test_other_structures_are_refused(name, raw, words):
    with pytest.raises(UsageError, match=words):
        read_raw(SPACES[name], (1,), raw)


@pytest.mark.parametrize("space,raw,words", [
    (spaces.Box(0, 255, (3,), np.uint8), [0.2, 0.4, 1.0], "dtype float64. This model takes uint8, which cannot hold"),
    (spaces.Box(0, 255, (3,), np.uint8), [1, 2, 300], "dtype int64. This model takes uint8"),
    (spaces.Box(0, 255, (3,), np.uint8), [1, 2, np.nan], "dtype float64. This model takes uint8"),
    (spaces.Box(-9, 9, (2,), np.int64), [1.5, 0], "dtype float64. This model takes int64"),
    (spaces.Box(-9, 9, (2,)), [1.0, np.nan], "the observation is not finite in float32"),
    (spaces.Box(-9, 9, (2,)), [1.0, 1e300], "the observation is not finite in float32"),
    (spaces.Box(-9, 9, (2,)), [1.0, None], "dtype object. This model takes float32"),
    (spaces.Box(-9, 9, (2,)), [1.0, 1j], "dtype complex128. This model takes float32"), (None, [0.0, np.inf], "is not finite"),
    (spaces.Dict(a=spaces.Box(0, 255, (2,), np.uint8)), {"a": [1, 256]}, r"observation\['a'\] has dtype int64"),
    (spaces.Dict(a=spaces.Box(-9, 9, (2,))), {"a": [1, np.nan]}, r"observation\['a'\] is not finite")])
def test_numbers_that_a_conversion_would_change_are_refused(space, raw, words):
    """The network would act on other numbers: an image that was divided by 255 was black."""
    for given in (raw, [raw, raw] if isinstance(raw, dict) else np.array([raw, raw])):
        with pytest.raises(UsageError, match=words):
            read_raw(space, (2,), given)


@pytest.mark.parametrize("space,raw", [
    (spaces.Box(0, 255, (3,), np.uint8), [0.0, 3.0, 255.0]), (spaces.Box(-9, 9, (3,)), [0, True, 2]),
    (spaces.Box(-9, 9, (3,), np.float64), np.float16([0.1, 2, 3])), (spaces.Box(-9, 9, (3,), np.int64), [1.0, 2, 3])])
def test_numbers_of_other_dtypes_are_taken_where_none_is_lost(space, raw):
    assert np.allclose(read_raw(space, (3,), raw).obs, [np.asarray(raw, float)], atol=0)


PROGRAM = """
import json, sys, proximo
from tests.models.test_raw_obs import SPACES, batched, first_observations
print(json.dumps({name: proximo.load(f"{sys.argv[1]}/{name}").act(batched(first_observations(SPACES[name])[0]),
                                                                   deterministic=True).tolist() for name in SPACES}))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Train one small run for each space; their folders have the names of the spaces."""
    folder = tmp_path_factory.mktemp("runs")
    for name in SPACES:
        normalized = ["--norm-obs"] if name in ("Vector", "Camera", "Pair") else []
        assert train(folder / name, "--env-id", f"tests.models.test_raw_obs:Echo{name}-v0", *normalized) == 0
    return folder


@pytest.fixture(scope="module")
def found(runs):
    """Return the actions of each model in a fresh process."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(runs)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", SPACES)
def test_a_model_acts_on_raw_observations_in_a_fresh_process(name, runs, found):
    """The same actions as from the suite's rows, by a program that knows the folder and the raw observations only."""
    model, (_, rows, _) = proximo.load(runs / name), first_observations(SPACES[name])
    mask = np.tile([False, True, True], (5, 1)) if "action_mask" in str(SPACES[name]) else None
    wanted = model.choose(rows, None, mask, deterministic=True).tolist()
    assert found[name] == wanted and not (mask is not None and 0 in wanted)
