"""One contract for every environment suite: what protocols.VecEnv promises, checked over 200 random steps of each.

A suite joins with a line in SUITES: its name, the packages it needs, its maker and a configuration.
"""

from copy import deepcopy
from functools import partial

import numpy as np
import pytest
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.arrays.joint_actions import action_parts
from proximo.envs.arrays.obs_layout import obs_layout
from proximo.envs.atari import make_atari
from proximo.envs.brax import make_brax
from proximo.envs.envpool import make_envpool, make_envpool_atari
from proximo.envs.gym import make_gym
from proximo.envs.inside import make_control_inside
from proximo.envs.mujoco import make_mujoco
from proximo.envs.parallel_env import from_parallel_env
from proximo.envs.pettingzoo import make_pettingzoo
from proximo.envs.procgen import make_procgen
from proximo.protocols import Step
from proximo.variants import Atari, AtariEnvpool, AtariLSTM, BatchedSim, Continuous, Procgen, SelfPlay
from tests.support.games import Corridor
from tests.support.play import random_actions
from tests.support.vector_envs import vector_suite

SEEDS = [21, 22]


SUITES = [
    ("gym CartPole", (), make_gym, Config(env_id="CartPole-v1")),
    ("gym CartPole next-step", (), make_gym, Config(env_id="CartPole-v1", autoreset="next-step")),
    ("gym Pendulum", (), make_gym, Config(env_id="Pendulum-v1")),
    ("gym Masked", (), make_gym, Config(env_id="tests.support.probes:Masked-v0")),
    ("gym DictMasked next-step", (), make_gym,
     Config(env_id="tests.support.probes:DictMasked-v0", autoreset="next-step")),
    ("gym DictObs", (), make_gym, Config(env_id="tests.support.probes:DictObs-v0")),
    ("gym Rich", (), make_gym, Config(env_id="tests.support.probes:Rich-v0")),
    ("gym Rich workers normalized", (), make_gym,
     Config(env_id="tests.support.probes:Rich-v0", norm_obs=True, env_workers=2)),
    ("gym Rich workers gray stacks", (), make_gym,
     Config(env_id="tests.support.probes:Rich-v0", env_workers=2, grayscale=True, frame_stack=3)),
    ("gym Hybrid", (), make_gym, Config(env_id="tests.support.probes:Hybrid-v0")),
    ("gym Hybrid workers", (), make_gym, Config(env_id="tests.support.probes:Hybrid-v0", env_workers=2)),
    ("gym Image", (), make_gym, Config(env_id="tests.support.probes:Image-v0")),
    ("gym Truncated", (), make_gym, Config(env_id="tests.support.probes:Truncated-v0")),
    ("gym MultiDiscrete", (), make_gym, Config(env_id="tests.support.probes:Several-v0")),
    ("gym MultiBinary", (), make_gym, Config(env_id="tests.support.probes:Switches-v0")),
    ("gym LunarLander", ("Box2D",), make_gym, Config(env_id="LunarLander-v3")),
    ("gym workers", (), make_gym, Config(env_id="CartPole-v1", env_workers=2)),
    ("gym workers Pendulum", (), make_gym, Config(env_id="Pendulum-v1", env_workers=2)),
    ("vector CartPole", (), vector_suite("NextStep"), Config(env_id="CartPole-v1")),
    ("vector Rich same-step", (), vector_suite("SameStep"), Config(env_id="tests.support.probes:Rich-v0")),
    ("vector Truncated tensors", (), vector_suite("SameStep", tensors=True),
     Config(env_id="tests.support.probes:Truncated-v0")),
    ("vector Several tensors, reset here", (), vector_suite("Disabled", tensors=True),
     Config(env_id="tests.support.probes:Several-v0")),
    ("games", (), from_parallel_env(partial(Corridor, agents=2, size=99)), Config()),
    ("games masked", (), from_parallel_env(partial(Corridor, agents=2, size=99, masked="info")), Config()),
    ("atari Breakout", ("ale_py",), make_atari, Atari()),
    ("atari one frame, sticky", ("ale_py",), make_atari, AtariLSTM(sticky=0.25)),
    ("envpool Breakout", ("envpool_assets",), make_envpool_atari, AtariEnvpool()),
    ("envpool CartPole", ("envpool_assets",), make_envpool, Config(env_id="CartPole-v1")),
    ("envpool LunarLander", ("envpool_assets",), make_envpool, Config(env_id="LunarLanderContinuous-v3")),
    ("envpool Hopper", ("envpool_assets",), make_envpool, Config(env_id="Hopper-v4")),
    ("envpool dm_control", ("envpool_assets",), make_envpool, Config(env_id="dm_control/cartpole-balance-v0")),
    ("envpool MiniGrid", ("envpool_assets",), make_envpool, Config(env_id="MiniGrid-Empty-5x5-v0")),
    ("envpool masked", ("envpool_assets",), make_envpool, Config(env_id="Game2048-v1")),
    ("mujoco Hopper", ("mujoco",), make_mujoco, Continuous(env_id="Hopper-v4")),
    ("mujoco Ant", ("mujoco",), make_mujoco, Continuous(env_id="Ant-v5")),
    ("dm_control", ("shimmy", "dm_control"), make_mujoco, Continuous(env_id="dm_control/cartpole-balance-v0")),
    ("self-play", ("multi_agent_ale_py", "tinyscaler"), make_pettingzoo, SelfPlay(max_cycles=300)),
    ("brax", ("brax",), make_brax, BatchedSim(env_id="fast")),
    ("procgen", ("envpool_assets", "PyQt5"), make_procgen, Procgen()),
    ("jax CartPole", ("jax",), make_control_inside, Config(engine="jax")),
    ("envpool CartPole inside", ("envpool_assets", "jax"), make_control_inside, Config(engine="envpool")),
]
KEEPS_NO_STATE = ("envpool", "procgen", "vector", "dm_control", "gym LunarLander")  # how the names begin; all others keep theirs


@pytest.fixture(params=SUITES, ids=[suite[0] for suite in SUITES])
def make_envs(request):
    _, packages, make, cfg = request.param
    for package in packages:
        pytest.importorskip(package)
    opened = []

    def make_one(seeds=SEEDS):
        opened.append(make(cfg, list(seeds)))
        return opened[-1]

    yield make_one
    for envs in opened:
        envs.close()


def as_numpy(step):
    """Return a copy in numpy, whatever the suite's arrays are."""
    def one(value):
        if value is None:
            return None
        return np.array(value.cpu().numpy() if hasattr(value, "detach") else value)

    return Step(*map(one, step[:8]), type(step.episode)(*map(one, step.episode)),
                {name: one(value) for name, value in step.metrics.items()})


def as_suite_array(envs, action):
    """Return the action as the kind of array that the suite takes."""
    if envs.arrays == "torch":
        return pytest.importorskip("torch").as_tensor(action)
    return pytest.importorskip("jax").numpy.asarray(action) if envs.arrays == "jax" else action


def play(envs, steps, rng):
    """Yield reset() and `steps` random steps as copies."""
    step = as_numpy(envs.reset())
    yield step
    for _ in range(steps):
        step = as_numpy(envs.step(as_suite_array(envs, random_actions(envs, step, rng))))
        yield step


def assert_same(one, other):
    """Check that two steps are equal in every bit that may be read."""
    over = one.terminated | one.truncated
    assert all(np.array_equal(getattr(one, name), getattr(other, name))
               for name in ("obs", "first", "reward", "terminated", "truncated", "valid"))
    assert one.mask is None or np.array_equal(one.mask, other.mask)
    assert one.final_obs is None or np.array_equal(one.final_obs[over], other.final_obs[over])
    assert np.array_equal(one.episode.finished, other.episode.finished)


def test_attributes(make_envs, request):
    envs, name = make_envs(), request.node.callspec.id
    assert envs.num_envs == len(SEEDS) and envs.arrays in ("numpy", "torch", "jax")
    assert isinstance(envs.obs_shape, tuple) and np.dtype(envs.obs_dtype).itemsize < 8
    kinds = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box
    assert all(isinstance(part, kinds) for part in action_parts(envs.action_space))
    assert obs_layout(envs.observation_space) is None or envs.obs_shape == (obs_layout(envs.observation_space).size,)
    assert isinstance(envs.players, tuple) and isinstance(envs.metric_names, tuple)
    assert (envs.frames is None) is not name.startswith(("atari", "envpool Breakout", "self-play"))
    assert envs.play == ("inside" if name.startswith(("brax", "jax")) else "pool" if "inside" in name else "host")
    assert envs.keeps_state is not name.startswith(KEEPS_NO_STATE)
    assert not hasattr(envs, "statistics")  # normalisation belongs to the loop


def test_shapes_and_dtypes(make_envs):
    envs = make_envs()
    for step in play(envs, 30, np.random.default_rng(0)):
        rows = envs.num_envs
        assert step.obs.shape == (rows, *envs.obs_shape) and step.obs.dtype == envs.obs_dtype
        assert step.reward.shape == (rows,) and step.reward.dtype == np.float32
        for flag in (step.first, step.terminated, step.truncated, step.valid, step.episode.finished):
            assert flag.shape == (rows,) and flag.dtype == bool
        assert step.episode.ret.shape == step.episode.length.shape == (rows,)
        final = step.obs if step.final_obs is None else step.final_obs
        assert final.shape == step.obs.shape and final.dtype == step.obs.dtype
        assert step.mask is None or (step.mask.dtype == bool and step.mask.any(axis=1).all())
        assert tuple(step.metrics) == tuple(envs.metric_names)
        assert np.isfinite(step.obs).all() and np.isfinite(step.reward).all()


def test_ends(make_envs):
    """reset() begins every episode; an end is of one kind; what follows it depends on the reset mode of the suite."""
    envs = make_envs()
    owed = np.zeros(envs.num_envs, bool)
    for t, step in enumerate(play(envs, 200, np.random.default_rng(0))):
        over = step.terminated | step.truncated
        if t == 0:
            assert step.first.all() and step.valid.all() and not over.any() and not step.reward.any()
        elif step.final_obs is not None:
            assert step.valid.all() and np.array_equal(step.first, over)
        else:
            assert np.array_equal(~step.valid, owed) and np.array_equal(step.first, owed)
            assert not step.reward[owed].any() and not over[owed].any() and not step.episode.finished[owed].any()
            owed = over
        assert not (step.terminated & step.truncated).any()
        assert not (step.episode.finished & ~over).any()
        assert (step.episode.length[step.episode.finished] > 0).all()


def test_same_seeds_same_behaviour(make_envs):
    """Two sets of environments with the same seeds make the same steps."""
    one, two = (play(make_envs(), 60, np.random.default_rng(0)) for _ in range(2))
    for left, right in zip(one, two, strict=True):
        assert_same(left, right)


def test_state_continues_or_is_none(make_envs):
    """state() returns None unless keeps_state is True; then other environments continue from it exactly, and later steps
    do not change it."""
    envs, other = make_envs(), make_envs([31, 32])
    rng = np.random.default_rng(0)
    *_, step = play(envs, 40, rng)
    state = envs.state()
    assert envs.keeps_state == (state is not None)
    if state is None:
        return
    assert_plain(state)
    kept = deepcopy(state)
    *_, _ = play(other, 3, np.random.default_rng(1))
    other.load(state)
    for _ in range(60):
        action = as_suite_array(envs, random_actions(envs, step, rng))
        step = as_numpy(envs.step(action))
        assert_same(step, as_numpy(other.step(action)))
    np.testing.assert_equal(state, kept)


def assert_plain(state):
    """Check for nested dicts with string keys; leaves are arrays, numbers, strings, booleans, None or lists."""
    if isinstance(state, dict):
        assert all(type(name) is str for name in state)
        for value in state.values():
            assert_plain(value)
    elif isinstance(state, list):
        for value in state:
            assert_plain(value)
    else:
        assert state is None or isinstance(state, np.ndarray | np.generic | bool | int | float | str), type(state)
        assert not isinstance(state, np.ndarray) or state.dtype != object


def test_render_is_a_picture_or_nothing(make_envs):
    envs = make_envs()
    envs.reset()
    picture = envs.render()
    assert picture is None or (picture.ndim == 3 and picture.shape[2] == 3 and picture.dtype == np.uint8)
