"""The Gymnasium suite equals Gymnasium's SyncVectorEnv, and reports environments that misbehave."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from proximo.config import Config
from proximo.envs.arrays.obs_layout import obs_layout, part_views
from proximo.envs.custom.factory import make_from_factory
from proximo.envs.gym import make_gym
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.state.check import same_steps
from proximo.errors import EnvError, UsageError
from tests.support.play import play_random
from tests.support.probes import DictObs, Faulty

CLASSIC = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")
SEEDS = [11, 12, 13]


def make_envs(env_id, seeds=SEEDS, **fields):
    return make_gym(Config(env_id=env_id, **fields), seeds)


def probe(name, seeds=SEEDS, **fields):
    return make_envs(f"tests.support.probes:{name}-v0", seeds, **fields)


@pytest.mark.parametrize("env_id", CLASSIC)
@pytest.mark.parametrize("mode", ["same-step", "next-step"])
def test_equals_gymnasiums_vector_environment(env_id, mode):
    """With the same seeds and actions, every step is equal bit for bit, in both reset modes."""
    envs = make_envs(env_id, autoreset=mode)
    reference = SyncVectorEnv([lambda: gymnasium.make(env_id)] * 3,
                              autoreset_mode=AutoresetMode[mode.replace("-", "_").upper()])
    begin, (obs, _) = envs.reset(), reference.reset(seed=SEEDS)
    assert np.array_equal(begin.obs, obs)
    ends = 0
    for action, step in play_random(envs, begin, 450, np.random.default_rng(0)):
        obs, reward, terminated, truncated, info = reference.step(action)
        over = terminated | truncated
        ends += over.sum()
        assert np.array_equal(step.obs, obs) and np.array_equal(step.reward, reward.astype(np.float32))
        assert np.array_equal(step.terminated, terminated)
        assert np.array_equal(step.truncated, truncated & ~terminated)
        if mode == "same-step":
            assert np.array_equal(step.first, over) and step.valid.all()
            assert all(np.array_equal(step.final_obs[i], info["final_obs"][i]) for i in np.flatnonzero(over))
    assert ends > 0 or env_id in ("Acrobot-v1", "MountainCarContinuous-v0")


@pytest.mark.parametrize("mode", ["same-step", "next-step"])
@pytest.mark.parametrize("played", [2, 4])
def test_a_reset_has_no_trace_of_what_was_played(mode, played):
    """In the middle of an episode of four steps and at its end, against new environments."""
    envs, new = probe("Echo", autoreset=mode), probe("Echo", autoreset=mode)
    envs.reset()
    for _ in range(played):
        envs.step(np.ones(3, int))
    assert same_steps(envs.reset(), new.reset())
    for action in np.random.default_rng(0).integers(2, size=(6, 3)):
        assert same_steps(envs.step(action), new.step(action))


@pytest.mark.parametrize("name", ["Masked", "DictMasked"])
def test_environments_with_masks_continue_exactly(name):
    """Also in environments that were not reset before: they show masks from the beginning."""
    envs, other = probe(name), probe(name, [4, 5, 6])
    rng = np.random.default_rng(0)
    *_, (_, last) = play_random(envs, envs.reset(), 7, rng)
    assert envs.keeps_state
    other.load(envs.state())
    for action, step in play_random(envs, last, 20, rng):
        assert same_steps(step, other.step(action)) and step.mask is not None


def test_both_reset_modes_play_the_same_episodes():
    """The transitions of next-step without its filler rows are those of same-step."""
    rows = {}
    for mode in ("same-step", "next-step"):
        envs = probe("Truncated", [3], autoreset=mode)
        step, rows[mode] = envs.reset(), []
        for _ in range(40):
            before = step.obs.copy()
            step = envs.step(np.array([1]))
            after = step.obs if step.final_obs is None or not step.truncated[0] else step.final_obs
            if step.valid[0]:
                rows[mode].append((*before[0], *after[0], step.reward[0], step.truncated[0], step.episode.finished[0],
                                   step.episode.length[0] if step.episode.finished[0] else 0))
            else:
                assert step.first[0] and step.reward[0] == 0 and not step.terminated[0] and not step.truncated[0]
    fewer = len(rows["next-step"])
    assert 30 < fewer < 40 and rows["next-step"] == rows["same-step"][:fewer]


class Opponent(gymnasium.Env):
    """Draws from the action space that it has seeded, and shows what it drew."""

    observation_space = gymnasium.spaces.Box(0, 3, (1,), np.float32)

    def __init__(self):
        self.action_space = gymnasium.spaces.Discrete(4, seed=3)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.array([self.action_space.sample()], np.float32), 0.0, False, False, {}


def test_an_action_space_keeps_the_generator_that_the_environment_has_seeded():
    bare = Opponent()
    drawn = [bare.step(0)[0] for _ in range(50)]
    envs = make_from_factory(lambda **_: Opponent(), Config(env_id="Opponent"), [1])
    envs.reset()
    assert [float(envs.step(np.zeros(1, int)).obs[0, 0]) for _ in range(50)] == [float(one[0]) for one in drawn]


def test_reset_begins_again_from_the_seeds():
    """Two resets with the same seeds return the same observations, other seeds other ones."""
    envs = make_envs("CartPole-v1")
    one = envs.reset().obs.copy()
    envs.step(np.array([0, 1, 0]))
    assert np.array_equal(envs.reset().obs, one)
    assert not np.array_equal(make_envs("CartPole-v1", [1, 2, 3]).reset().obs, one)


@pytest.mark.parametrize("mode", ["same-step", "next-step"])
@pytest.mark.parametrize("env_id", [*CLASSIC, "Taxi-v3", "FrozenLake-v1", "Blackjack-v1"])
def test_state_continues_exactly(env_id, mode):
    """300 steps of other environments that loaded the state are equal bit for bit to those without an interruption."""
    pytest.importorskip("pygame")
    envs, other = make_envs(env_id, autoreset=mode), make_envs(env_id, [1, 2, 3], autoreset=mode)
    rng = np.random.default_rng(0)
    *_, (_, last) = play_random(envs, envs.reset(), 77, rng)
    state = envs.state()
    for _ in play_random(other, other.reset(), 5, np.random.default_rng(1)):
        pass
    other.load(state)
    for action, step in play_random(envs, last, 300, rng):
        assert same_steps(step, other.step(action))


def test_state_taken_between_an_end_and_its_reset():
    """In next-step mode a row that has to be reset is still reset after loading."""
    envs, other = probe("Observed", [5], autoreset="next-step"), probe("Observed", [6], autoreset="next-step")
    envs.reset(), other.reset()
    assert envs.step(np.array([0])).terminated[0]
    other.load(envs.state())
    step = other.step(np.array([0]))
    assert not step.valid[0] and step.first[0] and same_steps(envs.step(np.array([0])), step)


@pytest.mark.parametrize("env_id", ["LunarLander-v3", "BipedalWalker-v3"])
def test_state_of_a_physics_engine_is_none(env_id, caplog):
    """Box2D's world cannot be saved: state() is None, and what holds it is named."""
    pytest.importorskip("Box2D")
    envs = make_envs(env_id)
    envs.reset()
    with caplog.at_level("INFO"):
        assert envs.state() is None
    assert "a state that cannot be saved: its attribute 'world' holds a value of the type b2World." in caplog.text


def test_state_is_none_if_a_copy_does_not_continue_from_it():
    """The state of this environment is hidden in its class, although every attribute can be saved."""

    class Hidden(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1e9, 1e9, (1,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)
        ticks = [0]

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.ticks[0] += 1
            return np.array([self.ticks[0]], np.float32), 0.0, False, False, {}

    gymnasium.register("Hidden-v0", entry_point=lambda: Hidden())
    envs = make_envs("Hidden-v0")
    envs.reset()
    assert envs.state() is None


def test_packed_observations():
    """Their parts are those of the environment's observation, as a row of one array."""
    envs = probe("DictObs", [4])
    env = DictObs()
    observation, _ = env.reset(seed=4)
    step = envs.reset()
    assert envs.obs_shape == (24,) and envs.obs_dtype == np.uint8
    kind, floats, bits, vector = part_views(obs_layout(env.observation_space), step.obs[0])
    assert kind == observation["kind"] and floats == observation["pair"][0]
    assert np.array_equal(bits, observation["pair"][1]) and np.array_equal(vector, observation["vector"])


def test_images_become_channels_first():
    """The three numbers of the probe are where they should be."""
    envs = probe("Image")
    step = envs.reset()
    assert envs.obs_shape == (3, 12, 10) and step.obs.dtype == np.uint8
    assert step.obs[2, :, 0, 1].tolist() == [10, 20, 30] and step.obs.sum() == 3 * 60
    assert step.obs.flags.c_contiguous


@pytest.mark.parametrize(("name", "action", "given"), [
    ("Started", [0, 1, 1], [[5, 5], [6, 6], [6, 6]]),
    ("Several", [[2, 1], [0, 0], [1, 1]], [[2, 1], [0, 0], [1, 1]]),
    ("Switches", [[0, 1], [1, 1], [0, 0]], [[0, 1], [1, 1], [0, 0]]),
    ("Bounded", [[-3.0, -1.0], [0.5, 1.5], [9.0, 9.0]], [[-1, 0], [0.5, 1.5], [1, 2]]),
])
def test_actions_reach_the_environment(name, action, given):
    """The probe returns its action as observation: start is added, Box is clipped to its bounds (detail 27)."""
    envs = probe(name)
    envs.reset()
    action = np.array(action)
    before = action.copy()
    assert np.allclose(envs.step(action).obs * 10, given) and np.array_equal(action, before)


@pytest.mark.parametrize(("how", "words"), [
    ("raises", "RuntimeError: the motor is on fire"), ("nan_obs", "observation is not finite"),
    ("inf_reward", "reward is inf"), ("no_reward", "reward is None; it must be a number"),
    ("two_rewards", "reward is array([0., 1.]); it must be one number. Return a weighted sum of several objectives"), ("wrong_shape", "shape (1,)"),
    ("four_values", "tuple of 4"),
])
def test_faults_name_environment_step_and_cause(how, words):
    """Each fault of the probe stops at the step where it happens. Only the second environment has it."""
    when = iter((99, 7))
    envs = GymEnvs(lambda: Faulty(how, next(when)), [1, 2], "Faulty")
    envs.reset()
    for _ in range(6):
        envs.step(np.zeros(2, int))
    with pytest.raises(EnvError) as caught:
        envs.step(np.zeros(2, int))
    assert str(caught.value).startswith("environment 1 (Faulty), step 7: ") and words in str(caught.value)
    assert ("docs/runs.md (Environments that crash)" in str(caught.value)) is (how == "raises")


@pytest.mark.parametrize(("env_id", "shape", "wanted"), [
    ("Pendulum-v1", (3, 2), "(3, 1)"), ("Pendulum-v1", (2, 1), "(3, 1)"), ("CartPole-v1", (2,), "(3,)"),
    ("tests.support.probes:Several-v0", (3, 3), "(3, 2)"), ("tests.support.probes:Looking-v0", (3, 1), "(3, 2)")])
@pytest.mark.parametrize("steps", [0, 1])
def test_actions_of_a_wrong_shape_are_no_fault_of_an_environment(env_id, shape, wanted, steps):
    """At the first step and at a later one; three environments."""
    envs = make_envs(env_id)
    envs.reset()
    for _ in range(steps):
        envs.step(np.zeros(tuple(int(x) for x in wanted.strip("()").split(",") if x), np.int64))
    with pytest.raises(UsageError, match=re.escape(f"The actions have the shape {shape}, and 3 environments of ")) as caught:
        envs.step(np.zeros(shape, np.int64))
    assert f"take {wanted}. Change the head of the policy" in str(caught.value)


def test_flat_actions_of_a_box_with_two_axes_are_not_blamed():
    """Policies return rows of numbers; the fault is that of the environment."""
    class Grid(DictObs):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (2, 3), np.float32)

        def observe(self):
            return np.zeros(2, np.float32)

        def step(self, action):
            assert action.shape == (2, 3)
            raise RuntimeError("the motor is on fire")

    gymnasium.register("Grid-v0", entry_point=Grid)
    for shape in ((3, 6), (3, 2, 3)):
        envs = make_envs("Grid-v0")
        envs.reset()
        with pytest.raises(EnvError, match="the motor is on fire"):
            envs.step(np.zeros(shape, np.float32))


@pytest.mark.parametrize("when", ["first", "later", "last"])
@pytest.mark.filterwarnings("ignore:overflow")
def test_observations_beyond_float32_are_told(when):
    """1e39 is a finite number of float64, in which the space has its bounds."""
    class Far(DictObs):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)

        def observe(self):
            return np.full(2, 1e39 if self.played == {"first": 0, "later": 1, "last": 4}[when] else 0.0)

    gymnasium.register(f"Far-{when}-v0", entry_point=Far)
    envs = make_envs(f"Far-{when}-v0")
    with pytest.raises(EnvError, match="observation.* is not finite in float32"):
        envs.reset()
        for _ in range(4):
            envs.step(np.zeros(3, int))


def test_a_last_observation_with_nan_is_an_error():
    """NaN among the numbers of the last observation of an episode is not hidden by the reset that follows."""

    class BadEnd(DictObs):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

        def observe(self):
            return np.array([0, np.nan if self.played == 4 else 0], np.float32)

    gymnasium.register("BadEnd-v0", entry_point=BadEnd)
    envs = make_envs("BadEnd-v0")
    envs.reset()
    with pytest.raises(EnvError, match="last observation"):
        for _ in range(4):
            envs.step(np.zeros(3, int))


def test_render_shows_the_first_environment():
    pytest.importorskip("pygame")
    envs = make_envs("CartPole-v1", [1])
    envs.reset()
    picture = envs.render()
    assert picture.shape == (400, 600, 3) and picture.dtype == np.uint8 and picture.std() > 0
    assert probe("Constant").render() is None


def test_raw_returns_are_of_whole_episodes():
    """CartPole's reward is 1 per step, so the return equals the length."""
    envs = make_envs("CartPole-v1", [1, 2])
    seen = np.zeros(2)
    for _, step in play_random(envs, envs.reset(), 200, np.random.default_rng(0)):
        seen += 1
        for i in np.flatnonzero(step.episode.finished):
            assert step.episode.ret[i] == step.episode.length[i] == seen[i]
            seen[i] = 0


def test_rendering_changes_nothing():
    """Steps are equal to those of environments that are not rendered, also after loading a state."""
    pytest.importorskip("Box2D")
    envs, unseen = make_envs("LunarLander-v3", [1]), make_envs("LunarLander-v3", [1])
    assert same_steps(envs.reset(), unseen.reset())
    for t in range(150):
        assert same_steps(envs.step(np.array([t % 4])), unseen.step(np.array([t % 4])))
        if t % 50 == 0:
            assert envs.render().ndim == 3
    cart, other = make_envs("CartPole-v1", [1]), make_envs("CartPole-v1", [2])
    cart.reset(), other.reset(), cart.render()
    other.load(cart.state())
    assert same_steps(cart.step(np.array([1])), other.step(np.array([1])))
