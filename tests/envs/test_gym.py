"""The Gymnasium suite against Gymnasium's own SyncVectorEnv, and its border against environments that misbehave."""


import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from proximo.config import Config
from proximo.envs.env_state_check import same_steps
from proximo.envs.gym import make_gym
from proximo.envs.gym_ids import gym_id
from proximo.envs.spaces import scripted_action
from proximo.errors import EnvError, UsageError
from tests.support.probes import DictObs

CLASSIC = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")
SEEDS = [11, 12, 13]


def made(env_id, seeds=SEEDS, **fields):
    return make_gym(Config(env_id=env_id, **fields), seeds)


def probe(name, seeds=SEEDS, **fields):
    return made(f"tests.support.probes:{name}-v0", seeds, **fields)


def played(envs, step, steps, rng):
    """Plays allowed random actions; yields each step with the action that led to it."""
    for _ in range(steps):
        rows = range(envs.num_envs)
        action = np.stack([scripted_action(envs.action_space, None if step.mask is None else step.mask[i], rng)
                           for i in rows])
        step = envs.step(action)
        yield action, step


@pytest.mark.parametrize("env_id", CLASSIC)
@pytest.mark.parametrize("mode", ["same-step", "next-step"])
def test_equals_gymnasiums_vector_environment(env_id, mode):
    """Against SyncVectorEnv with the same seeds and actions, in both reset modes: every bit of every step."""
    envs = made(env_id, autoreset=mode)
    reference = SyncVectorEnv([lambda: gymnasium.make(env_id)] * 3,
                              autoreset_mode=AutoresetMode[mode.replace("-", "_").upper()])
    begin, (obs, _) = envs.reset(), reference.reset(seed=SEEDS)
    assert np.array_equal(begin.obs, obs)
    ends = 0
    for action, step in played(envs, begin, 450, np.random.default_rng(0)):
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


def test_both_reset_modes_play_the_same_episodes():
    """Against each other: the transitions of next-step without its filler rows are those of same-step."""
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


def test_reset_begins_anew_from_the_seeds():
    """Two resets with the same seeds give the same observations, other seeds others."""
    envs = made("CartPole-v1")
    one = envs.reset().obs.copy()
    envs.step(np.array([0, 1, 0]))
    assert np.array_equal(envs.reset().obs, one)
    assert not np.array_equal(made("CartPole-v1", [1, 2, 3]).reset().obs, one)


@pytest.mark.parametrize("mode", ["same-step", "next-step"])
@pytest.mark.parametrize("env_id", [*CLASSIC, "Taxi-v3", "FrozenLake-v1", "Blackjack-v1"])
def test_state_continues_exactly(env_id, mode):
    """Against the environments that were never interrupted: 300 steps after loading into others, every bit."""
    pytest.importorskip("pygame")
    envs, other = made(env_id, autoreset=mode), made(env_id, [1, 2, 3], autoreset=mode)
    rng = np.random.default_rng(0)
    *_, (_, last) = played(envs, envs.reset(), 77, rng)
    state = envs.state()
    for _ in played(other, other.reset(), 5, np.random.default_rng(1)):
        pass
    other.load(state)
    for action, step in played(envs, last, 300, rng):
        assert same_steps(step, other.step(action))


def test_state_taken_between_an_end_and_its_reset():
    """In next-step mode the row that owes a reset still owes it after loading."""
    envs, other = probe("Observed", [5], autoreset="next-step"), probe("Observed", [6], autoreset="next-step")
    envs.reset(), other.reset()
    assert envs.step(np.array([0])).terminated[0]
    other.load(envs.state())
    step = other.step(np.array([0]))
    assert not step.valid[0] and step.first[0] and same_steps(envs.step(np.array([0])), step)


@pytest.mark.parametrize("env_id", ["LunarLander-v3", "BipedalWalker-v3"])
def test_opaque_state_is_said_not_guessed(env_id):
    """Box2D's world cannot be kept: state() is None."""
    pytest.importorskip("Box2D")
    envs = made(env_id)
    envs.reset()
    assert envs.state() is None


def test_state_that_a_replay_refutes_is_none():
    """An environment whose state hides in its class is not trusted although every attribute could be kept."""

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
    envs = made("Hidden-v0")
    envs.reset()
    assert envs.state() is None


def test_flattened_observations():
    """Against gymnasium.spaces.flatten of the observation that the environment gives."""
    envs = probe("DictObs", [4])
    env = DictObs()
    observation, _ = env.reset(seed=4)
    wanted = gymnasium.spaces.flatten(env.observation_space, observation)
    step = envs.reset()
    assert envs.obs_shape == (10,) and envs.obs_dtype == np.float32 and np.array_equal(step.obs[0], wanted)


def test_images_become_channels_first():
    """Against where the probe puts its three numbers."""
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
    """Against the action that the probe echoes: start is added, Box clipped to its bounds (detail 27)."""
    envs = probe(name)
    envs.reset()
    action = np.array(action)
    before = action.copy()
    assert np.allclose(envs.step(action).obs * 10, given) and np.array_equal(action, before)


@pytest.mark.parametrize("name", ["Masked", "DictMasked"])
@pytest.mark.parametrize("mode", ["same-step", "next-step"])
def test_masks_follow_the_environment(name, mode):
    """The probe raises where a forbidden action is taken; allowed ones play through ends and resets."""
    envs = probe(name, autoreset=mode)
    begin = envs.reset()
    assert envs.obs_shape == (2,) and begin.mask.tolist() == [[False, True, True]] * 3
    for _, step in played(envs, begin, 30, np.random.default_rng(0)):
        assert step.mask.sum(axis=1).tolist() == [2, 2, 2]
    with pytest.raises(EnvError, match="forbidden"):
        envs.step(np.argmin(step.mask, axis=1))


def test_no_mask_without_one():
    assert made("CartPole-v1").reset().mask is None


@pytest.mark.parametrize(("how", "words"), [
    ("raises", "RuntimeError: the motor is on fire"), ("nan_obs", "observation is not finite"),
    ("inf_reward", "reward is inf"), ("no_reward", "reward is nan"), ("wrong_shape", "shape (1,)"),
    ("wrong_dtype", "dtype float64"), ("list_obs", "is a list"), ("four_values", "tuple of 4"),
])
def test_faults_name_environment_step_and_cause(how, words):
    """Each fault of the probe stops at the step where it happens."""
    envs = probe(f"Faulty_{how}", [1, 2])
    envs.reset()
    for _ in range(6):
        envs.step(np.zeros(2, int))
    with pytest.raises(EnvError) as caught:
        envs.step(np.zeros(2, int))
    assert "environment 0" in str(caught.value) and "step 7" in str(caught.value) and words in str(caught.value)


def test_a_bad_last_observation_is_seen():
    """NaN in the observation that ends an episode is not hidden by the reset that follows it."""

    class BadEnd(DictObs):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

        def observe(self):
            return np.full(2, np.nan if self.played == 4 else 0, np.float32)

    gymnasium.register("BadEnd-v0", entry_point=BadEnd)
    envs = made("BadEnd-v0")
    envs.reset()
    with pytest.raises(EnvError, match="last observation"):
        for _ in range(4):
            envs.step(np.zeros(3, int))


@pytest.mark.parametrize(("env_id", "words"), [
    ("CartPol-v1", "CartPole-v1"), ("LunarLander-v9", "LunarLander-v3"), ("no_such_module:Env-v0", "no_such_module"),
    ("tests.support.probes:Spoken-v0", "Text"),
])
def test_ids_and_spaces_that_cannot_run(env_id, words):
    with pytest.raises(UsageError, match=words):
        made(env_id)


@pytest.mark.parametrize(("old", "new"), [
    ("LunarLander-v2", "LunarLander-v3"), ("BipedalWalker-v2", "BipedalWalker-v3"),
    ("HalfCheetah-v2", "HalfCheetah-v4"), ("CarRacing-v2", "CarRacing-v3"),
])
def test_retired_ids_run_as_their_successors(old, new, capsys):
    assert gym_id(old) == new
    assert f"{old} is retired. Its successor {new} is used instead." in capsys.readouterr().err


def test_a_missing_package_is_said_with_its_command(monkeypatch):
    def absent(*_, **__):
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed")

    monkeypatch.setattr(gymnasium, "make", absent)
    with pytest.raises(UsageError, match=r'pip install "proximo\[box2d\]"'):
        made("LunarLander-v3")


def test_render_shows_the_first_environment():
    pytest.importorskip("pygame")
    envs = made("CartPole-v1", [1])
    envs.reset()
    picture = envs.render()
    assert picture.shape == (400, 600, 3) and picture.dtype == np.uint8 and picture.std() > 0
    assert probe("Constant").render() is None


def test_raw_returns_are_of_whole_episodes():
    """CartPole pays 1 a step, so return and length agree, and the longest run of a fixed policy is below 500."""
    envs = made("CartPole-v1", [1, 2])
    seen = np.zeros(2)
    for _, step in played(envs, envs.reset(), 200, np.random.default_rng(0)):
        seen += 1
        for i in np.flatnonzero(step.episode.finished):
            assert step.episode.ret[i] == step.episode.length[i] == seen[i]
            seen[i] = 0


def test_rendering_changes_nothing():
    """Against the same environments never rendered: steps, and a state loaded across."""
    pytest.importorskip("Box2D")
    envs, unseen = made("LunarLander-v3", [1]), made("LunarLander-v3", [1])
    assert same_steps(envs.reset(), unseen.reset())
    for t in range(150):
        assert same_steps(envs.step(np.array([t % 4])), unseen.step(np.array([t % 4])))
        if t % 50 == 0:
            assert envs.render().ndim == 3
    cart, other = made("CartPole-v1", [1]), made("CartPole-v1", [2])
    cart.reset(), other.reset(), cart.render()
    other.load(cart.state())
    assert same_steps(cart.step(np.array([1])), other.step(np.array([1])))
