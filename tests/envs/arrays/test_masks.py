"""Action masks: of one environment as a row, and of Gymnasium's environments in every step."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.arrays.masks import MaskReader, mask_methods, mask_parts, mask_row
from proximo.envs.gym import make_gym
from proximo.envs.gym_loop import GymEnvs
from proximo.errors import EnvError, UsageError
from tests.support.play import play_random
from tests.support.probes import Probe


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


@pytest.mark.parametrize("name", ["Masked", "DictMasked"])
def test_actions_with_a_mask_are_not_repeated(name):
    """The mask after the first time may forbid the second; the wrapper took the forbidden action."""
    cfg = Config(env_id=f"tests.support.probes:{name}-v0", frame_skip=2)
    with pytest.raises(UsageError, match=f"frame_skip=2 repeats actions, and .*{name}-v0 returns an action_mask, which may"):
        make_gym(cfg, [1]).reset()


def test_no_mask_without_one():
    assert make_gym(Config(env_id="CartPole-v1"), [1]).reset().mask is None


def test_an_empty_mask_is_named():
    with pytest.raises(ValueError, match="action_mask has 0 entries, the action space has 2 choices"):
        mask_row([], 2)


def test_none_in_place_of_a_mask_is_named():
    """It was said to have one entry."""
    with pytest.raises(ValueError, match="^action_mask is None. Give one entry for each of the 3 choices"):
        mask_row(None, 3)


def test_rows_of_several_components():
    """An array and a tuple of arrays are the same mask; the number of entries must be right."""
    assert mask_row((np.array([1, 0]), np.array([0, 1, 1])), 5).tolist() == [True, False, False, True, True]
    assert mask_row(np.array([[1, 0], [0, 1]]), 4).tolist() == [True, False, False, True]
    with pytest.raises(ValueError, match="has 2 entries, the action space has 3 choices"):
        mask_row(np.ones(2), 3)


@pytest.mark.parametrize(("space", "parts"), [
    (spaces.Discrete(3), [3]), (spaces.MultiDiscrete([2, 4]), [2, 4]), (spaces.Box(-1, 1, (2,)), None), (spaces.MultiBinary(2), None),
    (spaces.Dict(b=spaces.Discrete(3), a=spaces.Box(-1, 1, (2,))), [3]), (spaces.Tuple([spaces.Box(-1, 1, (2,))]), None),
    (spaces.Tuple([spaces.MultiDiscrete([2, 4]), spaces.MultiBinary(2), spaces.Discrete(5)]), [2, 4, 5])])
def test_which_choices_a_mask_covers(space, parts):
    found = mask_parts(space)
    assert found is None if parts is None else found.tolist() == parts


@pytest.mark.parametrize(("mask", "value"), [([0.0, -np.inf], "-inf"), ([1.0, np.nan], "nan"), ([2, 0], "2"),
                                             ([0, 255], "255")])
def test_a_mask_has_no_other_values(mask, value):
    """An additive mask (0 for allowed actions, -inf for others) would be the opposite mask."""
    with pytest.raises(ValueError, match=f"action_mask has the value {value}; it must be True or 1 "):
        mask_row(mask, 2)
    assert mask_row(np.array([1.0, 0.0]), 2).tolist() == [True, False]


class MaskAttribute(Probe):
    """Allows one action, which alternates, and says so in an attribute; another action is a fault."""

    def __init__(self, as_property):
        self.t = 0
        if not as_property:
            self.action_masks = np.array([True, False])

    def step(self, action):
        assert int(action) == self.t % 2
        self.t += 1
        if "action_masks" in vars(self):
            self.action_masks = np.array([self.t % 2 == 0, self.t % 2 == 1])
        return np.zeros(2, np.float32), 1.0, False, False, {}


class MaskProperty(MaskAttribute):
    @property
    def action_masks(self):
        return np.array([self.t % 2 == 0, self.t % 2 == 1])


@pytest.mark.parametrize("kind", [MaskAttribute, MaskProperty])
def test_action_masks_may_be_a_property_or_an_attribute(kind):
    envs = GymEnvs(lambda: kind(kind is MaskProperty), [1, 2], "Mine-v0")
    begin = envs.reset()
    assert begin.mask.tolist() == [[True, False]] * 2
    for _, step in play_random(envs, begin, 6, np.random.default_rng(0)):
        assert step.mask.sum() == 2


class MaskAfterReset(Probe):
    """Its property fails before the first reset."""

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return super().reset(seed=seed, options=options)

    def step(self, action):
        assert int(action) == self.t % 2
        self.t += 1
        return np.zeros(2, np.float32), 1.0, False, False, {}

    @property
    def action_masks(self):
        return np.array([self.t % 2 == 0, self.t % 2 == 1])


class MaskOfNothing(MaskAfterReset):
    """Its property raises TypeError before the first reset: None has no items."""

    t = None

    @property
    def action_masks(self):
        return np.array([self.t % 2 == 0, self.t % 2 == 1])


@pytest.mark.parametrize("kind", [MaskAfterReset, MaskOfNothing])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_property_of_masks_may_need_a_reset_first(kind, wrapped):
    """It was taken for missing, because it raised AttributeError, and every action was allowed. Another exception ended
    the command with a traceback."""
    def make():
        return gymnasium.wrappers.TimeLimit(kind(), 100) if wrapped else kind()

    envs = GymEnvs(make, [1, 2], "Mine-v0")
    begin = envs.reset()
    assert begin.mask.tolist() == [[True, False]] * 2
    for _, step in play_random(envs, begin, 6, np.random.default_rng(0)):
        assert step.mask.sum() == 2


class MaskMethod(Probe):
    def action_masks(self):
        return [True, False]


class MaskOfNone(Probe):
    action_masks = None


class MaskingWrapper(gymnasium.Wrapper):
    """Its property fails before the first reset, and the environment in it has none."""

    def __init__(self):
        super().__init__(Probe())

    @property
    def action_masks(self):
        return self.masks


@pytest.mark.parametrize(("kinds", "number"), [
    ([MaskMethod, MaskMethod], 2), ([MaskingWrapper], 1), ([MaskAfterReset, MaskAfterReset], 2), ([MaskMethod, MaskOfNone], 0),
    ([MaskMethod, Probe], 0), ([MaskAfterReset, Probe], 0), ([MaskOfNone], 0), ([Probe], 0)])
def test_environments_have_masks_if_all_of_them_have(kinds, number):
    assert len(mask_methods([kind() for kind in kinds])) == number


def test_a_mask_that_allows_nothing():
    """Every component needs an allowed choice, except at the end of an episode, where everything is then allowed."""
    masks = MaskReader(spaces.MultiDiscrete([2, 2]), 1, False, "Env-v0")
    info = {"action_mask": np.array([1, 1, 0, 0])}
    assert not masks.read(0, None, info, over=False)
    assert masks.read(0, None, info, over=True) and masks.rows.all()
    assert masks.read(0, None, {}, over=False) and masks.rows.all()


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("mode", ["same-step", "next-step"])
def test_the_last_observation_may_allow_nothing(mode, truncated):
    """Whether the episode terminates or is truncated there: no action follows."""
    class Ends(Probe):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)[0], {"action_mask": np.array([1, 0])}

        def step(self, action):
            observation, reward, over, *_ = super().step(action)
            return observation, reward, over and not truncated, over and truncated, {"action_mask": np.array([not over, 0])}

    envs, begun = GymEnvs(Ends, [1, 2], "Ends", mode), 0
    envs.reset()
    for _ in range(10):
        step = envs.step(np.zeros(2, int))
        begun += step.first.all()
        assert (step.mask == [True, (step.terminated | step.truncated)[0] and mode == "next-step"]).all()
    assert begun == 2


def test_what_helps_if_nothing_is_allowed_is_in_the_message():
    """Of a state without a way out, which the environment has not ended, or in which it begins."""
    class DeadEnd(Probe):
        action_space = spaces.MultiDiscrete([2, 2])

        def step(self, action):
            return *super().step(action)[:4], {"action_mask": [1, 1, 0, 0]}

        def reset(self, **how):
            return super().reset(**how)[0], {"action_mask": [1, 1, 1, 1]}

    envs = GymEnvs(DeadEnd, [1], "DeadEnd")
    envs.reset()
    with pytest.raises(EnvError, match="step 1: action_mask allows no action. Allow at least one choice of each component, or "
                                       "return terminated=True from the step that leads there"):
        envs.step(np.zeros((1, 2), int))

    class NoWay(DeadEnd):
        def reset(self, **how):
            return super().reset(**how)[0], {"action_mask": [0, 0, 1, 1]}

    with pytest.raises(EnvError, match="step 0: action_mask allows no action"):
        GymEnvs(NoWay, [1], "NoWay").reset()


def test_actions_that_cannot_be_masked():
    with pytest.raises(UsageError, match="Env-v0 returns an action_mask, but its action space is Box"):
        MaskReader(spaces.Box(-1, 1, (2,)), 1, True, "Env-v0")


class LateMask(Probe):
    """Allows action 0 only, and says so in the info of step() alone, or from its second reset() on."""

    def __init__(self, where, resets=1):
        self.where, self.resets = where, resets

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        self.resets -= 1
        return observation, info | ({"action_mask": np.array([1, 0])} if self.resets < 0 and self.where == "reset" else {})

    def step(self, action):
        *answer, info = super().step(action)
        return *answer, info | ({"action_mask": np.array([1, 0])} if self.where == "step" else {})


@pytest.mark.parametrize("mode", ["same-step", "next-step"])
@pytest.mark.parametrize(("where", "step"), [("step", 1), ("reset", 4)])
def test_a_mask_that_the_first_reset_did_not_return_is_a_fault(where, step, mode):
    """The rollout buffer has no place for it: it would be ignored. Episodes have four steps; next-step resets at the fifth."""
    envs = GymEnvs(lambda: LateMask(where), [1, 2], "LateMask", autoreset=mode)
    assert envs.reset().mask is None
    late = step + (where == "reset" and mode == "next-step")
    for _ in range(late - 1):
        envs.step(np.zeros(2, int))
    with pytest.raises(EnvError, match=f"environment 0 \\(LateMask\\), step {late}: action_mask was returned, and the first "
                                       "reset"):
        envs.step(np.zeros(2, int))


def test_a_mask_that_begins_when_all_are_reset_is_a_fault():
    envs = GymEnvs(lambda: LateMask("reset"), [1], "LateMask")
    envs.reset()
    with pytest.raises(EnvError, match="action_mask was returned"):
        envs.reset()


def test_masks_stay_where_a_later_reset_returns_none():
    """Such a row allows every action."""
    class Early(LateMask):
        def reset(self, *, seed=None, options=None):
            observation, info = super().reset(seed=seed)
            return observation, {"action_mask": np.array([0, 1])} if self.resets == 0 else info

    envs = GymEnvs(lambda: Early("never"), [1], "Early")
    assert envs.reset().mask.tolist() == [[False, True]]
    assert envs.reset().mask.tolist() == [[True, True]]
