"""gae against a slow definition in float64 numpy: the discounted sum of errors, written out for every start, over every
pattern of ends."""

import itertools
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proximo.config import Config
from proximo.types import Rollout

SHAPES = [(1, 1), (2, 3), (5, 1), (8, 2), (17, 4)]  # few, because JAX compiles each


def slow_gae(reward, value, next_value, terminated, done, gamma, gae_lambda):
    """Compute equation 16 as it stands: a sum over the future of every step, cut at the first end. All (T, N)."""
    advantage = np.zeros_like(reward)
    for t, n in np.ndindex(*reward.shape):
        weight = 1.0
        for k in range(t, len(reward)):
            following = 0.0 if terminated[k, n] else next_value[k, n]
            advantage[t, n] += weight * (reward[k, n] + gamma * following - value[k, n])
            if done[k, n]:
                break
            weight *= gamma * gae_lambda
    return advantage


def make_rows(seed, shape):
    """Return rewards, values and next values."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for _ in range(3)]


def check(framework, seed, ends, gamma, gae_lambda):
    """Compare gae with the definition; `ends` (T, N) is 0 to continue, 1 to terminate, 2 to truncate."""
    rows = *make_rows(seed, ends.shape), ends == 1, ends > 0
    np.testing.assert_allclose(framework.gae(*rows, gamma, gae_lambda), slow_gae(*rows, gamma, gae_lambda), rtol=1e-9,
                               atol=1e-9)


def test_every_pattern_of_ends_of_four_steps(framework):
    """All 3 ** 4 patterns of continuing, terminating and being truncated, as the columns of one batch."""
    check(framework, 0, np.array(list(itertools.product(range(3), repeat=4))).T, 0.9, 0.8)


@given(st.integers(0, 10**6), st.sampled_from(SHAPES), st.floats(0, 0.9), st.floats(0, 1), st.floats(0, 1))
def test_equals_the_definition(framework, seed, shape, often, gamma, gae_lambda):
    ends = np.random.default_rng(seed).choice(3, shape, p=[1 - often, often / 2, often / 2])
    check(framework, seed, ends, gamma, gae_lambda)


def test_lambda_1_gives_returns_minus_values_and_lambda_0_the_one_step_error(framework):
    reward, value, next_value = make_rows(3, (6, 2))
    never = np.zeros((6, 2), bool)
    next_value = np.vstack([value[1:], next_value[-1:]])
    returns = [sum(0.9**k * reward[t + k] for k in range(6 - t)) + 0.9**(6 - t) * next_value[-1] for t in range(6)]
    found = [framework.gae(reward, value, next_value, never, never, 0.9, gae_lambda) for gae_lambda in (1.0, 0.0)]
    np.testing.assert_allclose(found[0], np.array(returns) - value, rtol=1e-9)
    np.testing.assert_allclose(found[1], reward + 0.9 * next_value - value, rtol=1e-9)


def test_a_time_limit_is_worth_what_follows_and_a_termination_is_not(framework):
    """V(final_obs) = 7 counts where the episode was truncated. Nothing of the next episode counts in either case."""
    end, never = np.array([[True], [False]]), np.zeros((2, 1), bool)
    reward, value, next_value = np.array([[1.0], [100.0]]), np.array([[2.0], [50.0]]), np.array([[7.0], [0.0]])
    assert framework.gae(reward, value, next_value, end, end, 0.5, 0.9)[0] == 1 - 2
    assert framework.gae(reward, value, next_value, never, end, 0.5, 0.9)[0] == 1 + 0.5 * 7 - 2


def test_a_filler_row_changes_nothing_before_it(framework):
    """The row after an end may hold anything, because the end cuts the recursion before it."""
    reward, value, next_value = make_rows(4, (6, 1))
    done = np.arange(6)[:, None] == 2
    wild = np.where(np.arange(6)[:, None] == 3, 1e6, reward)
    plain, with_filler = (framework.gae(x, value, next_value, done, done, 0.99, 0.95) for x in (reward, wild))
    assert np.array_equal(plain[:3], with_filler[:3]) and np.array_equal(plain[4:], with_filler[4:])


def test_an_episode_that_was_cut_by_a_row_that_is_not_valid_continues_in_its_value(framework):
    """A row without a reward that ends an episode (--restart-envs). With exact values all advantages are 0."""
    value, reward, done = np.full((5, 1), 100.0), np.full((5, 1), 1.0), np.arange(5)[:, None] == 3
    row = np.where(done, np.nan, 1.0)
    rollout = Rollout(obs=value, first=done, mask=None, action=value, logprob=value, value=value * row,
                      next_value=value * row, reward=np.where(done, 0.0, reward), terminated=done & False, done=done,
                      valid=~done)
    shown = framework.without_fillers(rollout)
    advantage = framework.gae(shown.reward, shown.value, shown.next_value, shown.terminated, shown.done, 0.99, 0.95)
    assert np.allclose(advantage, 0) and np.array_equal(shown.logprob, rollout.logprob)
    for name in ("reward", "value", "next_value"):
        assert np.array_equal(getattr(shown, name), np.where(done, 0.0, getattr(rollout, name)))


@pytest.mark.parametrize("bootstrap", [True, False])
def test_a_time_limit_counts_as_a_termination_where_the_configuration_says_so(framework, bootstrap):
    ends = np.random.default_rng(5).choice(3, (17, 4), p=[0.6, 0.2, 0.2])
    reward, value, next_value = make_rows(6, ends.shape)
    rollout = Rollout(obs=value, first=ends > 0, mask=None, action=value, logprob=value, value=value, next_value=next_value,
                      reward=reward, terminated=ends == 1, done=ends > 0, valid=ends >= 0)
    estimate = import_module(f"proximo.on_{framework.name}.gae").estimate_advantages
    found = framework.to_numpy(estimate(framework.to_array(rollout), Config(bootstrap_truncated=bootstrap, gamma=0.9,
                                                                            gae_lambda=0.8)))
    expected = slow_gae(reward, value, next_value, ends == 1 if bootstrap else ends > 0, ends > 0, 0.9, 0.8)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
