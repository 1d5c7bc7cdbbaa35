"""Classic control in JAX equals Gymnasium: the same state and action lead to the same step, for whole episodes."""

from functools import partial

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.config import Config
from proximo.envs.jax_control import ControlPure, control_tasks, make_jax_control, takes_jax_control
from proximo.envs.pure import cond_of_any
from proximo.errors import UsageError

N = 4
# Largest differences between float32 and float64 in an episode. Acrobot and pendulum are chaotic: 40 steps only.
TOLERANCE = {"CartPole-v1": 2e-5, "Acrobot-v1": 5e-4, "MountainCar-v0": 2e-5, "MountainCarContinuous-v0": 2e-5,
             "Pendulum-v1": 5e-4}
STEPS = {"Acrobot-v1": 40, "Pendulum-v1": 40}


def start_equal(env_id):
    """Return ControlPure at the first states of Gymnasium's environments, and those environments."""
    ours = ControlPure(control_tasks()[env_id], N)
    theirs = [gym.make(env_id, disable_env_checker=True) for _ in range(N)]
    for i, env in enumerate(theirs):
        env.reset(seed=i)
    state, step = ours.reset(jax.random.key(0))
    start = np.array([env.unwrapped.state for env in theirs], np.float32)
    for env, row in zip(theirs, start):
        env.unwrapped.state = row.astype(np.float64)
    return ours, theirs, state._replace(parts=tuple(jnp.asarray(start.T)))


@pytest.mark.parametrize("env_id", TOLERANCE)
def test_every_step_is_gymnasiums(env_id):
    ours, theirs, state = start_equal(env_id)
    step, rng, live, ends = jax.jit(ours.step), np.random.default_rng(3), [True] * N, 0
    for _ in range(STEPS.get(env_id, 250)):
        box = isinstance(ours.action_space, gym.spaces.Box)
        action = rng.uniform(-1.2, 1.2, (N, 1)).astype(np.float32) if box else rng.integers(0, ours.action_space.n, N)
        state, got = step(state, jnp.asarray(action))
        for i, env in enumerate(theirs):
            if not live[i]:
                continue
            sent = np.clip(action[i], ours.action_space.low, ours.action_space.high) if box else action[i]
            obs, reward, terminated, truncated, _ = env.step(sent)
            np.testing.assert_allclose(got.final_obs[i], obs, atol=TOLERANCE[env_id], rtol=1e-4)
            assert float(got.reward[i]) == pytest.approx(float(reward), abs=1e-3)
            assert (bool(got.terminated[i]), bool(got.truncated[i])) == (terminated, truncated and not terminated)
            live[i] = not (terminated or truncated)
            ends += not live[i]
            assert bool(got.first[i]) == (not live[i])
            if not live[i]:
                assert not np.allclose(got.obs[i], obs), "a new episode begins in the same step"
    assert ends == N or env_id in STEPS or env_id == "MountainCarContinuous-v0"


def test_a_time_limit_truncates_and_does_not_terminate():
    envs = ControlPure(control_tasks()["MountainCar-v0"], 2)
    state, _ = envs.reset(jax.random.key(1))
    step = jax.jit(envs.step)
    for _ in range(200):
        state, got = step(state, jnp.ones(2, jnp.int32))
    assert got.truncated.all() and not got.terminated.any() and got.episode.finished.all()
    assert got.episode.length.tolist() == [200, 200] and got.episode.ret.tolist() == [-200.0, -200.0]


def test_state_continues_exactly():
    envs, other = (make_jax_control(Config(), [3, 4]) for _ in range(2))
    assert envs.play == "inside" and envs.keeps_state
    envs.reset()
    for t in range(60):
        envs.step(np.full(2, t % 2))
    other.load(envs.state())
    for t in range(60):
        a, b = envs.step(np.full(2, t % 3 == 0)), other.step(np.full(2, t % 3 == 0))
        assert np.array_equal(a.obs, b.obs) and np.array_equal(a.episode.ret, b.episode.ret)


def test_which_engine_is_taken():
    assert takes_jax_control(Config()) and not takes_jax_control(Config(engine="gym"))
    assert not takes_jax_control(Config(env_id="LunarLander-v3"))
    for env_id, guess in (("CartPol-v1", r" Did you mean CartPole-v1\?"), ("Hopper-v4", "")):
        with pytest.raises(UsageError, match=f"^--engine jax has no {env_id}.{guess} All that it has are Acrobot-v1, CartPole-v1, "
                           "MountainCar-v0, MountainCarContinuous-v0, Pendulum-v1. Use one of these, or --engine gym.$"):
            make_jax_control(Config(env_id=env_id, engine="jax"), [1])


def test_members_that_begin_no_episode_keep_theirs_and_skip_the_draw_where_none_does():
    """vmapped, twice too: the result is that of lax.cond for each member; the compiled function branches, as its HLO
    has a conditional, where vmapped lax.cond alone computes both branches at every step."""
    def draw(limit, key, x):
        return x + jax.random.uniform(key, x.shape), limit + 1

    def keep(limit, key, x):
        return x, limit

    def ours(limit, key, x):
        return cond_of_any((x > limit).any(), draw, keep, limit, key, x)

    keys, x = jax.random.split(jax.random.key(0), (2, 3)), jnp.arange(24.0).reshape(2, 3, 4)
    for limit in (9.5, 30.0):
        found = jax.jit(jax.vmap(jax.vmap(partial(ours, limit))))(keys, x)
        for i, j in np.ndindex(2, 3):
            expected = (draw if (x[i, j] > limit).any() else keep)(limit, keys[i, j], x[i, j])
            for one, other in zip((found[0][i, j], found[1][i, j]), expected, strict=True):
                np.testing.assert_array_equal(one, other)
    envs = ControlPure(control_tasks()["CartPole-v1"], N)
    states, _ = jax.vmap(envs.reset)(jax.random.split(jax.random.key(1), 3))
    lowered = jax.jit(jax.vmap(envs.step)).lower(states, jnp.zeros((3, N), jnp.int32))
    assert " conditional(" in lowered.compile().as_text()


def test_a_gpu_resets_without_a_branch_and_begins_the_same_episodes(monkeypatch):
    """A branch of a compiled function costs a GPU more than first states that nobody needs."""
    envs = ControlPure(control_tasks()["CartPole-v1"], N)
    first, _ = envs.reset(jax.random.key(1))

    def play(branches):
        step, state, steps = jax.jit(lambda *x: envs.step(*x)), first, []
        assert ("stablehlo.case" in step.lower(state, jnp.zeros(N, jnp.int32)).as_text()) == branches
        for _ in range(30):
            state, played = step(state, jnp.zeros(N, jnp.int32))
            steps.append(played)
        return steps

    expected = play(branches=True)
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *x, cpu, default: default(*x))
    found = play(branches=False)
    assert any(x.terminated.any() for x in found)
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)  # rounded differently by other fusions
