"""What a VectorEnv returns is refused where a conversion would repeat, reorder or cut off numbers."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.custom.suite import make_complete
from proximo.envs.vector_env import GymVectorEnvs
from proximo.errors import EnvError, UsageError

N = 4
IMAGE = spaces.Box(0, 255, (10, 8, 3), np.uint8)
BOX = spaces.Box(-9, 9, (3,), np.float32)
PARTS = spaces.Dict({"camera": IMAGE, "joints": BOX, "more": spaces.Tuple((spaces.Discrete(3),))})


class Simulator:
    """N robots in tensors or numpy arrays, without a base class. `spoil` changes what step() returns."""

    num_envs = N
    metadata = {"autoreset_mode": "SameStep"}
    single_action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, space, tensors, spoil=lambda answer: answer):
        self.single_observation_space, self.tensors, self.spoil = space, tensors, spoil
        self.spoils_reset = False

    def observe(self, space=None):
        space = self.single_observation_space if space is None else space
        if isinstance(space, spaces.Dict):
            return {name: self.observe(part) for name, part in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(map(self.observe, space.spaces))
        return self.array(np.ones((N, *space.shape), space.dtype))

    def array(self, x):
        return torch.as_tensor(x) if self.tensors else np.asarray(x)

    def reset(self, *, seed=None, options=None):
        obs = self.observe()
        return (self.spoil([obs])[0] if self.spoils_reset else obs), {}

    def step(self, action):
        none = self.array(np.zeros(N, bool))
        return self.spoil([self.observe(), self.array(np.ones(N, np.float32)), none, none, {}])

    def close(self):
        """Nothing is open."""


def change(i, convert):
    """Return a function that converts the value i of an answer."""
    return lambda answer: [convert(x) if k == i else x for k, x in enumerate(answer)]


def within(key, convert):
    """Return a function that converts a part of the observations of an answer."""
    return change(0, lambda obs: obs | {key: convert(obs[key])})


def to_float(x):
    return x.float() / 255 if hasattr(x, "float") else np.float32(x) / 255


def to_long(x, value):
    return x.long() * value if hasattr(x, "long") else np.int64(x) * value


def scalar(x):
    return x[0]


def columns(x):
    return x[:, None]


def swapped(x):
    return x.reshape(-1, N)


def channels_first(x):
    return x.reshape(N, 3, 10, 8)


FAULTS = {
    "reward_scalar": (BOX, change(1, scalar), r"reward of shape \(\) and dtype float32\. Its shape has to be \(4,\)"),
    "reward_columns": (BOX, change(1, columns), r"reward of shape \(4, 1\) and dtype float32\. Its shape has to be \(4,\)"),
    "terminated_one": (BOX, change(2, lambda x: x[:1]), r"terminated of shape \(1,\) and dtype bool\. Its shape has to be \(4,\)"),
    "truncated_one": (BOX, change(3, lambda x: x[:1]), r"truncated of shape \(1,\) and dtype bool\. Its shape has to be \(4,\)"),
    "terminated_columns": (BOX, change(2, columns), r"terminated of shape \(4, 1\)"),
    "terminated_long": (BOX, change(2, lambda x: to_long(x, 1)), "terminated of shape .* and dtype int64. Its dtype has to be bool"),
    "obs_swapped": (BOX, change(0, swapped), r"obs of shape \(3, 4\) and dtype float32\. Its shape has to be \(4, 3\)"),
    "obs_of_one": (BOX, change(0, scalar), r"obs of shape \(3,\)"),
    "obs_dict": (BOX, change(0, lambda x: {"policy": x}), r"obs as dict\. Its shape has to be \(4, 3\)"),
    "image_axes": (IMAGE, change(0, channels_first), r"obs of shape \(4, 3, 10, 8\) .* has to be \(4, 10, 8, 3\)"),
    "image_floats": (IMAGE, change(0, to_float), "obs of shape .* and dtype float32. It is stored as uint8, .* cut off what follows"),
    "image_300": (IMAGE, change(0, lambda x: to_long(x, 300)), "obs with a number that does not fit into uint8"),
    "part_axes": (PARTS, within("camera", channels_first), r"obs\['camera'\] of shape \(4, 3, 10, 8\)"),
    "part_floats": (PARTS, within("camera", to_float), r"obs\['camera'\] .* stored as uint8"),
    "part_300": (PARTS, within("camera", lambda x: to_long(x, 300)), r"obs\['camera'\] with a number that does not fit into uint8"),
    "part_swapped": (PARTS, within("joints", swapped), r"obs\['joints'\] of shape \(3, 4\) .* has to be \(4, 3\)"),
    "part_of_part": (PARTS, within("more", lambda x: (columns(x[0]),)), r"obs\['more'\]\[0\] of shape \(4, 1\)"),
    "no_part": (PARTS, change(0, lambda obs: {"camera": obs["camera"]}),
                r"obs with the keys camera\. Its space is a Dict with the key 'joints'"),
    "no_dict": (PARTS, change(0, lambda obs: obs["joints"]), r"obs of shape \(4, 3\) and dtype float32\. Its space is a Dict with"),
    "no_tuple": (PARTS, within("more", lambda x: ()), r"obs\['more'\] 0 values\. Its space is a Tuple with the part 0"),
}
OF_OBS = [name for name, (*_, said) in FAULTS.items() if said.startswith("obs")]
OF_STEP = {
    "four_values": (BOX, lambda answer: answer[:4], r"4 values\. Return obs, reward, terminated, truncated .* extras\['time_outs'\]"),
    "info": (BOX, change(4, lambda x: None), "info as NoneType. Return a dict"),
}


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("fault", FAULTS | OF_STEP)
def test_a_step_that_would_be_repeated_or_scrambled_is_refused(fault, tensors):
    space, spoil, said = (FAULTS | OF_STEP)[fault]
    envs = make_complete(lambda cfg, seeds: Simulator(space, tensors, spoil), Config(), range(N))
    envs.reset()
    error = EnvError if fault.endswith("300") else UsageError
    with pytest.raises(error, match=r"^(environment 0 \(Simulator\): |Simulator\.)step\(\) returned " + said):
        envs.step(envs._envs._kind.zeros((N, 1), np.float32))


@pytest.mark.parametrize("fault", OF_OBS)
def test_a_reset_is_checked_as_a_step_is(fault):
    space, spoil, said = FAULTS[fault]
    simulator = Simulator(space, True, spoil)
    simulator.spoils_reset = True
    with pytest.raises((EnvError, UsageError), match=r"reset\(\) returned " + said):
        GymVectorEnvs(simulator, 0)


@pytest.mark.parametrize("space", [BOX, IMAGE, PARTS, spaces.Box(-9, 9, (3, 2), np.float64), spaces.Discrete(5), spaces.MultiBinary(2)])
@pytest.mark.parametrize("tensors", [False, True])
def test_what_fits_is_played(space, tensors):
    if tensors and not isinstance(space, (spaces.Box, spaces.Dict)):
        pytest.skip("there are no rows of tensors for it")
    envs = make_complete(lambda cfg, seeds: Simulator(space, tensors), Config(), range(N))
    envs.reset()
    for _ in range(3):
        assert len(envs.step(envs._envs._kind.zeros((N, 1), np.float32)).obs) == N


def test_whole_numbers_of_another_dtype_are_converted_where_they_fit():
    envs = GymVectorEnvs(Simulator(IMAGE, False, change(0, lambda x: to_long(x, 255))), 0)
    envs.reset()
    assert (envs.step(np.zeros((N, 1), np.float32)).obs == 255).all()


def test_a_dtype_that_changes_later_is_noticed():
    simulator = Simulator(IMAGE, False)
    envs = GymVectorEnvs(simulator, 0)
    envs.reset()
    envs.step(np.zeros((N, 1), np.float32))
    simulator.spoil = change(0, to_float)
    with pytest.raises(UsageError, match="stored as uint8"):
        envs.step(np.zeros((N, 1), np.float32))


@pytest.mark.parametrize("tensors", [False, True])
def test_last_observations_need_the_rows_of_all_environments(tensors):
    def end(answer):
        obs, reward, terminated, truncated, _ = answer
        terminated[1] = True
        return obs, reward, terminated, truncated, {"final_obs": obs[terminated]}

    envs = GymVectorEnvs(Simulator(BOX, tensors, end), 0)
    envs.reset()
    with pytest.raises(UsageError, match=r"returned final_obs of shape \(1, 3\) .* has to be \(4, 3\) with the rows of all environments"):
        envs.step(envs._kind.zeros((N, 1), np.float32))


@pytest.mark.parametrize(("answer", "said"), [
    (torch.ones(N, 3), r"one value of shape \(4, 3\) and dtype float32\. Return obs and info"),
    ((torch.ones(N, 3), None), "info as NoneType. Return a dict"), ((1, 2, 3), r"3 values\. Return obs and info")])
def test_a_reset_without_info_is_refused(answer, said):
    simulator = Simulator(BOX, True)
    simulator.reset = lambda seed: answer
    with pytest.raises(UsageError, match=r"^Simulator\.reset\(\) returned " + said):
        GymVectorEnvs(simulator, 0)


@pytest.mark.parametrize(("attributes", "said"), [
    ({"single_observation_space": spaces.Box(-1, 1, (N, 3))}, r"single_observation_space has the shape \(4, 3\), .* of shape \(3,\)"),
    ({"single_action_space": spaces.Box(-1, 1, (N, 1))}, r"single_action_space has the shape \(4, 1\), .* of shape \(1,\)"),
    ({"single_action_space": spaces.MultiDiscrete([2] * N), "action_space": spaces.MultiDiscrete([2] * N)},
     r"single_action_space has the shape \(4,\)")])
def test_a_space_of_all_environments_is_refused(attributes, said):
    simulator = Simulator(BOX, True)
    for name, space in attributes.items():
        setattr(simulator, name, space)
    with pytest.raises(UsageError, match=said):
        GymVectorEnvs(simulator, 0)


def test_a_space_of_one_environment_may_have_as_many_numbers_as_there_are_environments():
    simulator = Simulator(spaces.Box(-9, 9, (N,)), True)
    simulator.single_action_space = spaces.Box(-1, 1, (N, 2))
    simulator.action_space = gymnasium.vector.utils.batch_space(simulator.single_action_space, N)
    assert GymVectorEnvs(simulator, 0).reset().obs.shape == (N, N)


@pytest.mark.parametrize(("mask", "said"), [(torch.ones(2, N), r"action_mask of shape \(2, 4\) .* one row for each of the 4 environments"),
                                            (torch.ones(2), r"action_mask of shape \(2,\)"), ([1, 1], "action_mask as list"),
                                            (torch.tensor([[0, -torch.inf]] * N), "action_mask with other values than True"),
                                            (np.array([[1, 2]] * N, np.int8), "action_mask with other values than True")])
def test_a_mask_has_a_row_for_each_environment_and_no_other_values(mask, said):
    """Numbers of a mask were reshaped; a mask that is added to logits was taken for its opposite."""
    simulator = Simulator(BOX, True, change(4, lambda info: {"action_mask": mask}))
    simulator.single_action_space = spaces.Discrete(2)
    envs = GymVectorEnvs(simulator, 0)
    envs.reset()
    with pytest.raises(UsageError, match=said):
        envs.step(torch.zeros(N, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float32])
@pytest.mark.parametrize("tensors", [False, True])
def test_masks_may_be_numbers(dtype, tensors):
    mask = np.eye(N, 2, dtype=bool)
    simulator = Simulator(BOX, tensors)
    simulator.reset = lambda seed: (simulator.observe(), {"action_mask": simulator.array(mask.astype(dtype))})
    found = GymVectorEnvs(simulator, 0).reset().mask
    assert found.dtype == (torch.bool if tensors else bool) and np.array_equal(found, mask)
