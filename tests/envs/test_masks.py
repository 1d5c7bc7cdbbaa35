"""Action masks: of one environment as a row, and of Gymnasium's environments in every step."""

import numpy as np
import pytest
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.envs.masks import MaskReader, mask_row
from proximo.errors import EnvError, UsageError
from tests.support.play import play_random


@pytest.mark.parametrize("name", ["Masked", "DictMasked"])
@pytest.mark.parametrize("mode", ["same-step", "next-step"])
def test_masks_follow_the_environment(name, mode):
    """The probe raises if a forbidden action is taken; allowed ones play through ends and resets."""
    envs = make_gym(Config(env_id=f"tests.support.probes:{name}-v0", autoreset=mode), [11, 12, 13])
    begin = envs.reset()
    assert envs.obs_shape == (2,) and begin.mask.tolist() == [[False, True, True]] * 3
    for _, step in play_random(envs, begin, 30, np.random.default_rng(0)):
        assert step.mask.sum(axis=1).tolist() == [2, 2, 2]
    with pytest.raises(EnvError, match="forbidden"):
        envs.step(np.argmin(step.mask, axis=1))


def test_no_mask_without_one():
    assert make_gym(Config(env_id="CartPole-v1"), [1]).reset().mask is None


def test_rows_of_several_components():
    """An array and a tuple of arrays are the same mask; the number of entries must be right."""
    assert mask_row((np.array([1, 0]), np.array([0, 1, 1])), 5).tolist() == [True, False, False, True, True]
    assert mask_row(np.array([[1, 0], [0, 1]]), 4).tolist() == [True, False, False, True]
    with pytest.raises(ValueError, match="has 2 entries, the action space has 3 choices"):
        mask_row(np.ones(2), 3)


def test_a_mask_that_allows_nothing():
    """Every component needs an allowed choice, except at the end of an episode, where everything is then allowed."""
    masks = MaskReader(spaces.MultiDiscrete([2, 2]), 1, False, "Env-v0")
    info = {"action_mask": np.array([1, 1, 0, 0])}
    assert not masks.read(0, None, info, over=False)
    assert masks.read(0, None, info, over=True) and masks.rows.all()
    assert masks.read(0, None, {}, over=False) and masks.rows.all()


def test_actions_that_cannot_be_masked():
    with pytest.raises(UsageError, match="Env-v0 returns an action_mask, but its action space is Box"):
        MaskReader(spaces.Box(-1, 1, (2,)), 1, True, "Env-v0")
