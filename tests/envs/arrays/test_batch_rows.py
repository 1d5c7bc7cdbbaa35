"""Actions of N environments in one structure, against those that action_writer makes of each row."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector.utils import batch_space, iterate

from proximo.envs.arrays.batch_rows import NumpyArrays, batch_actions
from proximo.envs.arrays.joint_actions import action_parts
from proximo.envs.arrays.spaces import action_writer, scripted_action
from proximo.envs.arrays.torch_arrays import TensorArrays

BOUNDS = np.array([[-1, 0.25], [-9, 3]], np.float32), np.array([[1, 0.5], [9, 4]], np.float32)
SPACES = [spaces.Discrete(3), spaces.Discrete(3, start=-4), spaces.MultiDiscrete([2, 3], start=[5, -1], dtype=np.int16),
          spaces.MultiBinary(3), spaces.Box(-1, 1, ()), spaces.Box(-1, 1, (1,)), spaces.Box(*BOUNDS),
          spaces.Box(*np.float64(BOUNDS), dtype=np.float64), spaces.Dict(b=spaces.Discrete(3, start=1), a=spaces.Tuple([
              spaces.Box(-1, 1, ()), spaces.MultiBinary(2), spaces.MultiDiscrete([2, 2])]))]
CASES = [(space, kind) for space in SPACES for kind in ("numpy", "torch") if kind == "numpy" or len(action_parts(space)) == 1]


@pytest.mark.parametrize(("space", "kind"), CASES, ids=str)
def test_actions_are_those_of_single_environments(space, kind):
    """Some beyond the bounds; also for one environment, and for a Box as the flat rows of the policy."""
    rng = np.random.default_rng(0)
    arrays = NumpyArrays() if kind == "numpy" else TensorArrays(torch.device("cpu"))
    for number in (1, 4):
        rows = np.stack([scripted_action(space, None, rng) for _ in range(number)])
        if isinstance(space, spaces.Box):
            rows = 5 * rows.reshape(number, -1)
        single = action_writer(space, "x")(rows)
        found = batch_actions(space, arrays, "x", number)(rows if kind == "numpy" else torch.from_numpy(rows))
        found = found if kind == "numpy" else found.numpy()
        whole = batch_space(space, number)
        assert whole.contains(found)
        for one, other in zip(iterate(whole, found), single, strict=True):
            assert data_equivalence(one, other, exact=True)


def test_actions_of_checks_vary_in_every_component():
    """Inside the bounds, also where a Box does not reach the usual range of a policy."""
    space = spaces.Box(np.array([10, -30, -1, -np.inf, 0.5], np.float32), np.array([20, -20, 1, np.inf, 0.6], np.float32))
    rng = np.random.default_rng(1)
    played = np.stack([scripted_action(space, None, rng) for _ in range(200)])
    assert all(space.contains(one) for one in played)
    assert np.allclose(played.min(0), [10, -21.5, -1, -1.5, 0.5], atol=0.1)
    assert np.allclose(played.max(0), [11.5, -20, 1, 1.5, 0.6], atol=0.1)
