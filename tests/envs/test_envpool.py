"""EnvPool: late resets, returns of whole games, checked actions, ids, and corrections of what EnvPool does wrong."""

import sys

import numpy as np
import pytest
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.arrays.obs_layout import obs_layout, part_views
from proximo.envs.envpool import make_envpool, make_envpool_atari
from proximo.envs.envpool_arrays import ActionWriter, pool_reader, true_action_space
from proximo.envs.envpool_ids import envpool_id, import_envpool, pool_threads
from proximo.errors import EnvError, UsageError, notify_once
from proximo.variants import Atari, AtariEnvpool

pytest.importorskip("envpool_assets")  # importorskip("envpool") would import it before its libraries


def pool(env_id, seeds=(1, 2), **fields):
    return make_envpool(Config(env_id=env_id, engine="envpool", **fields), list(seeds))


def test_a_late_reset_is_a_filler_row():
    """CartPole pushed to one side: the reward is 1 per step, so the return equals the length."""
    envs = pool("CartPole-v1")
    step, played, ended = envs.reset(), np.zeros(2, int), np.zeros(2, bool)
    for _ in range(60):
        step = envs.step(np.array([1, 1]))
        assert np.array_equal(~step.valid, ended) and np.array_equal(step.first, ended)
        assert np.array_equal(step.reward, step.valid.astype(np.float32)) and step.final_obs is None
        assert (np.abs(step.obs[ended]) < 0.06).all()  # the first observation of the next episode
        played[step.valid] += 1
        ended = step.terminated | step.truncated
        assert np.array_equal(step.episode.finished, ended)
        assert (step.episode.ret[ended] == played[ended]).all() and (step.episode.length[ended] == played[ended]).all()
        assert (np.abs(step.obs[ended][:, 2]) > 0.2).all()  # the pole has fallen: the observation after the action
        played[ended] = 0


def test_a_time_limit_truncates():
    """Pendulum is truncated after 200 steps, in all rows."""
    envs = pool("Pendulum-v1")
    envs.reset()
    steps = [envs.step(np.zeros((2, 1), np.float32)) for _ in range(201)]
    assert steps[199].truncated.all() and not steps[199].terminated.any()
    assert (steps[199].episode.length == 200).all() and not steps[200].valid.any()


def test_dm_control_reward_of_the_reset_row_is_zero():
    """EnvPool repeats the last reward there; the reward of the last step itself is not 0."""
    envs = pool("dm_control/cartpole-balance-v0")
    envs.reset()
    steps = [envs.step(np.zeros((2, 1), np.float32)) for _ in range(1001)]
    assert steps[999].truncated.all() and (steps[999].reward != 0).all() and not steps[1000].reward.any()
    assert np.allclose(steps[999].episode.ret, sum(step.reward for step in steps), rtol=1e-4)


def test_atari_returns_are_of_whole_games_and_raw():
    """Returns equal sums of EnvPool's raw reward between two ends of games of Space Invaders (5 to 30 points each)."""
    cfg = AtariEnvpool(env_id="SpaceInvadersNoFrameskip-v4")
    envs = make_envpool_atari(cfg, [1, 2, 3, 4])
    envs.reset()
    inner, seen = envs.pool.step, {}

    def spy(action):
        seen["answer"] = inner(action)
        return seen["answer"]

    envs.pool.step = spy
    rng, total, lives_lost, games = np.random.default_rng(0), np.zeros(4), 0, 0
    for _ in range(500):
        step = envs.step(rng.integers(0, 6, 4))
        _, reward, _, truncated, info = seen["answer"]
        total += reward
        over = step.valid & (info["terminated"].astype(bool) | truncated)
        assert np.array_equal(step.episode.finished, over) and set(np.unique(step.reward)) <= {0, 1}
        assert np.array_equal(step.episode.ret[over], total[over])
        games, lives_lost = games + over.sum(), lives_lost + (step.terminated & ~over).sum()
        total[over] = 0
    assert games >= 2 and lives_lost >= 4


def test_atari_takes_the_options_of_the_variant():
    """Options change the shapes; an option that EnvPool does not have is an error."""
    assert make_envpool_atari(Atari(frame_stack=1, screen_size=64), [1]).obs_shape == (1, 64, 64)
    assert make_envpool_atari(Atari(grayscale=False), [1]).obs_shape == (12, 84, 84)
    for wrong in ({"noop_max": 0}, {"max_pool": False}):
        with pytest.raises(UsageError, match="--engine ale"):
            make_envpool_atari(Atari(**wrong), [1])


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "Basic-v1"])
def test_variants_of_atari_refuse_other_environments(env_id):
    """Their settings, such as the sign of rewards, would have no effect there. Basic-v1 is one of ViZDoom's."""
    with pytest.raises(UsageError, match=f"^env_id={env_id} is not the id of an Atari game. .*--engine envpool"):
        make_envpool_atari(AtariEnvpool(env_id=env_id), [1])


def test_an_action_of_doom_is_a_combination_of_buttons(tmp_path, monkeypatch):
    """With a number for each button, EnvPool's default, all would be down: one is up where its number is exactly 0."""
    monkeypatch.chdir(tmp_path)  # ViZDoom writes its settings there
    envs = pool("HealthGathering-v1", [1])
    assert envs.action_space == spaces.Discrete(6) and envs.frames is None
    envs.reset()
    step = envs.step(np.array([5]))
    assert step.valid.all() and step.obs.shape == (1, 12, 84, 84) and step.obs.max() > 0
    envs.close()
    numbers = make_envpool(Config(env_id="HealthGathering-v1"), [1], {"use_combined_action": False})
    assert numbers.action_space.shape == (3,)
    numbers.close()
    with pytest.raises(UsageError, match="Cig-v1 is a game of several players"):  # EnvPool ends the interpreter
        pool("Cig-v1")


def test_atari_in_another_variant_is_logged_once(capsys):
    """`ppo --engine envpool` has no flags for Atari and logs its settings; ppo_atari_envpool logs nothing."""
    make_envpool_atari(AtariEnvpool(env_id="Freeway-v5"), [1]).close()
    assert capsys.readouterr().err == ""
    notify_once.cache_clear()
    for _ in range(2):  # as at a checkpoint
        pool("Freeway-v5", [1]).close()
    said = capsys.readouterr().err
    assert said.count("Freeway-v5 is an Atari game") == 1 and "ppo_atari_envpool" in said and "life" in said


@pytest.mark.parametrize("action", [
    np.array([0, 1, 0]), np.array([0]), np.array([0, 2]), np.array([-1, 0]), np.array([0.0, 1.0]),
    np.array([[0], [1]])], ids=str)
def test_wrong_whole_numbers_do_not_reach_the_engine(action):
    """EnvPool itself ends the interpreter with these, or takes them for other actions."""
    envs = pool("CartPole-v1")
    envs.reset()
    with pytest.raises(EnvError, match="CartPole"):
        envs.step(action)
    assert envs.step(np.array([0, 1])).valid.all()


@pytest.mark.parametrize("action", [np.array([[0.0], [np.nan]]), np.array([[np.inf], [0.0]]), np.zeros(2),
                                    np.zeros((3, 1)), np.array([["a"], ["b"]])], ids=repr)
def test_wrong_floats_do_not_reach_the_engine(action):
    envs = pool("Pendulum-v1")
    envs.reset()
    with pytest.raises(EnvError, match="Pendulum"):
        envs.step(action)


def test_actions_are_clipped_to_the_bounds():
    """An action far out of bounds has the effect of the bound; it is float32 whatever dtype the engine has."""
    one, two = pool("HalfCheetah-v4"), pool("HalfCheetah-v4")
    one.reset(), two.reset()
    for _ in range(5):
        left, right = one.step(np.full((2, 6), 7, np.float32)), two.step(np.ones((2, 6), np.float32))
        assert left.obs.dtype == np.float32 and np.array_equal(left.obs, right.obs)


def test_bounds_that_mean_nothing_are_no_bounds():
    """The smallest and the largest float, EnvPool's sign for no bound, become infinite; true bounds stay."""
    info = np.finfo(np.float64)
    space = true_action_space(spaces.Box(info.tiny, info.max, (2,), np.float64), "X")
    assert np.isneginf(space.low).all() and np.isposinf(space.high).all() and space.dtype == np.float32
    assert pool("dm_control/cheetah-run-v0").action_space == spaces.Box(-1, 1, (6,), np.float32)


def test_whole_numbers_in_several_dimensions():
    """A Box of integers from 0 becomes MultiDiscrete; each component has its own bound."""
    native = spaces.Box(0, np.array([3, 1]), dtype=np.int32)
    space = true_action_space(native, "X")
    writer = ActionWriter(space, native, 2, "X")
    assert space == spaces.MultiDiscrete([4, 2])
    assert np.array_equal(writer.write(np.array([[3, 1], [0, 0]]), 1), [[3, 1], [0, 0]])
    with pytest.raises(EnvError, match="environment 1"):
        writer.write(np.array([[3, 1], [1, 2]]), 1)


def test_dict_observations_are_packed():
    """Part by part, as those of Gymnasium; a mask that fits the actions is removed."""
    space = spaces.Dict([("b", spaces.Box(-1, 1, (2,))), ("a", spaces.Discrete(3)), ("action_mask", spaces.MultiBinary(4))])
    reader = pool_reader(space, spaces.Discrete(4))
    obs = {"b": np.array([[5.0, 6.0]]), "a": np.array([1]), "action_mask": np.array([[True, False, True, True]])}
    assert reader.shape == (16,) and reader.dtype == np.uint8
    b, a = part_views(obs_layout(space), reader.read(obs))
    assert b.tolist() == [[5, 6]] and a.tolist() == [[1]]
    assert reader.mask(obs).tolist() == [[True, False, True, True]]


@pytest.mark.parametrize(("shape", "nvec", "masked"), [
    ((3, 4), [4, 4, 4], True), ((2, 21), [21, 21], True), ((10, 10), [10, 10], False), ((4, 10), [4, 10], False),
    ((2, 2), [2, 2], False), ((3, 4), [4, 4], False)])
def test_a_mask_of_components_is_one_of_combinations_only_by_its_shape(shape, nvec, masked):
    """Jumanji has both kinds. The rows of a mask of components are the choices of one component each."""
    space = spaces.Dict([("a", spaces.Box(-1, 1, (2,))), ("action_mask", spaces.MultiBinary(shape))])
    allowed = np.zeros((2, *shape), bool)
    allowed[0, :, 1] = allowed[0, 0, 0] = True
    mask = pool_reader(space, spaces.MultiDiscrete(nvec)).mask({"a": np.zeros((2, 2)), "action_mask": allowed})
    assert (mask is not None) == masked
    if masked:
        assert np.array_equal(mask[0], allowed[0].ravel()) and mask[1].all(), "where nothing is allowed, all is"


def test_three_cleaners_do_not_walk_into_walls():
    """Such a step ends their episode: of 1 or 2 steps without the mask, otherwise of the limit of 100."""
    envs, rng = pool("Cleaner-v0", [1]), np.random.default_rng(0)
    step = envs.reset()
    for _ in range(60):
        assert step.mask.shape == (1, 12)
        step = envs.step(np.array([[rng.choice(np.flatnonzero(part)) for part in step.mask[0].reshape(3, 4)]]))
        assert not step.terminated.any()


def test_images_are_channels_first():
    """CarRacing's engine returns (96, 96, 3)."""
    envs = pool("CarRacing-v3", [1])
    assert envs.reset().obs.shape == (1, 3, 96, 96) and envs.obs_dtype == np.uint8


def test_same_seeds_same_games_and_reset_begins_again():
    """EnvPool's own reset continues its random numbers and ignores seeds."""
    first = pool("Acrobot-v1", (5, 9)).reset().obs
    envs = pool("Acrobot-v1", (5, 9))
    assert np.array_equal(envs.reset().obs, first) and not np.array_equal(first[0], first[1])
    envs.step(np.array([0, 1]))
    assert np.array_equal(envs.reset().obs, first)
    assert np.array_equal(pool("Acrobot-v1", (9, 5)).reset().obs, first[::-1])


def test_environments_that_all_begin_alike_are_mentioned(capsys):
    pool("FrozenLake-v1").reset()
    assert "begins with the same observation" in capsys.readouterr().err
    pool("CartPole-v1").reset()
    assert capsys.readouterr().err == ""


def test_rows_of_other_environments_are_refused():
    """EnvPool once returned one environment in every row (its issues 312 and 324)."""
    envs = pool("CartPole-v1")
    with pytest.raises(EnvError, match="NumPy"):
        envs._check_rows(np.zeros((2, 4)), np.array([0, 0]))


def test_ids():
    """Ids of Gymnasium find their environment; an error for an unknown id names similar ones."""
    known = import_envpool().list_all_envs()
    for env_id, name in (("BreakoutNoFrameskip-v4", "Breakout-v5"), ("ALE/MsPacman-v5", "MsPacman-v5"),
                         ("dm_control/ball_in_cup-catch-v0", "BallInCupCatch-v1"), ("Hopper-v4", "Hopper-v4"),
                         ("dm_control/humanoid_CMU-stand-v0", "HumanoidCMUStand-v1")):
        assert envpool_id(env_id, known) == name
    with pytest.raises(UsageError, match="Did you mean .*CartPole-v1"):
        pool("CartPol-v1")
    for env_id, advice in (("Ponng-v5", "Did you mean Pong-v5[?]"), ("breakout", "Did you mean Breakout-v5[?]"),
                           ("Humanoyd-v9", "Did you mean Humanoid-v5"), ("Foo-v5", "Use the name of a game"), ("Foo-v1", "Use --engine gym")):
        with pytest.raises(UsageError, match=f"is unknown to EnvPool. {advice}.*$"):  # the version alone is not near
            envpool_id(env_id, known)
    with pytest.raises(UsageError, match="2 players"):
        pool("ConnectFour-v1")


def test_other_systems_and_shared_cores(monkeypatch):
    """Processes of torchrun on one machine share its cores.

    macOS and Windows do not say which cores a process may use: then it is all of them. If EnvPool has no wheel for a
    system, it is missing; the name of the system is no reason for an error.
    """
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert pool_threads(64) == 8 and pool_threads(4) == 4
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert pool_threads(64) == 2
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 12)
    assert pool_threads(64) == 3
    monkeypatch.setattr(sys, "platform", "darwin")
    assert pool("CartPole-v1").num_envs == 2
    monkeypatch.setitem(sys.modules, "envpool", None)
    for extra in ("envpool", "procgen"):
        with pytest.raises(UsageError, match=f'pip install "proximo.{extra}."'):
            import_envpool(extra)


def test_pictures():
    """Also of MuJoCo, for which EGL must be loaded first; None for a family that cannot draw."""
    for env_id in ("CartPole-v1", "Hopper-v4"):
        envs = pool(env_id)
        envs.reset()
        assert envs.render().max() > 0
    envs = pool("FrozenLake-v1")
    envs.reset()
    assert envs.render() is None and envs.state() is None
