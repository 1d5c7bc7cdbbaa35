"""gae against a slow definition in float64 numpy: the discounted sum of errors, written out for every start, over every
pattern of ends; and the form for devices against the loop."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proximo.on_torch.gae import _sum_backwards_doubling, _sum_backwards_on_cpu, gae


def slow_gae(reward, value, next_value, terminated, done, gamma, gae_lambda):
    """Equation 16 as it stands: a sum over the future of every step, cut at the first end. All (T, N) float64."""
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


def drawn(seed, shape):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for _ in range(3)]


def compared(seed, terminated, done, gamma, gae_lambda, form=gae):
    reward, value, next_value = drawn(seed, terminated.shape)
    expected = slow_gae(reward, value, next_value, terminated, done, gamma, gae_lambda)
    found = form(*(torch.from_numpy(x) for x in (reward, value, next_value, terminated, done)), gamma, gae_lambda)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-9)


def doubled(reward, value, next_value, terminated, done, gamma, gae_lambda):
    delta = reward + gamma * torch.where(terminated, 0.0, next_value) - value
    return _sum_backwards_doubling(delta, (~done).to(delta.dtype) * (gamma * gae_lambda))


@pytest.mark.parametrize("form", [gae, doubled])
def test_every_pattern_of_ends_of_four_steps(form):
    """All 3 ** 4 patterns of going on, terminating and being truncated, as the columns of one batch."""
    patterns = np.array(list(itertools.product(range(3), repeat=4))).T  # (4, 81)
    compared(0, patterns == 1, patterns > 0, 0.9, 0.8, form)


@pytest.mark.parametrize("form", [gae, doubled])
@given(st.integers(0, 10**6), st.integers(1, 17), st.integers(1, 4), st.floats(0, 0.9), st.floats(0, 1),
       st.floats(0, 1))
def test_equals_the_definition(form, seed, steps, num_envs, often, gamma, gae_lambda):
    share = [1 - often, often / 2, often / 2]
    ends = np.random.default_rng(seed).choice(3, (steps, num_envs), p=share)
    compared(seed, ends == 1, ends > 0, gamma, gae_lambda, form)


def test_lambda_1_gives_returns_less_values_and_lambda_0_the_one_step_error():
    reward, value, next_value = drawn(3, (6, 2))
    never = np.zeros((6, 2), bool)
    arguments = [torch.from_numpy(x) for x in (reward, value, np.vstack([value[1:], next_value[-1:]]), never, never)]
    returns = [sum(0.9**k * reward[t + k] for k in range(6 - t)) + 0.9**(6 - t) * next_value[-1] for t in range(6)]
    np.testing.assert_allclose(gae(*arguments, 0.9, 1.0).numpy(), np.array(returns) - value, rtol=1e-9)
    np.testing.assert_allclose(gae(*arguments, 0.9, 0.0).numpy(),
                               reward + 0.9 * arguments[2].numpy() - value, rtol=1e-9)


def test_a_time_limit_is_worth_what_follows_and_a_death_is_not():
    """V(final_obs) = 7 counts where the episode was cut, and nothing of the next episode counts in either."""
    flag = torch.tensor([[True], [False]])
    reward, value = torch.tensor([[1.0], [100.0]]), torch.tensor([[2.0], [50.0]])
    next_value = torch.tensor([[7.0], [0.0]])
    assert gae(reward, value, next_value, flag, flag, 0.5, 0.9)[0] == 1 - 2
    assert gae(reward, value, next_value, ~flag & flag, flag, 0.5, 0.9)[0] == 1 + 0.5 * 7 - 2


def test_a_filler_row_changes_nothing_before_it():
    """The row after an end may hold anything: the end cuts before it."""
    reward, value, next_value = (torch.randn(6, 1, generator=torch.Generator().manual_seed(i)) for i in range(3))
    done = torch.zeros(6, 1, dtype=torch.bool)
    done[2] = True
    wild = reward.clone()
    wild[3] = 1e6
    plain, with_filler = (gae(r, value, next_value, done, done, 0.99, 0.95) for r in (reward, wild))
    assert torch.equal(plain[:3], with_filler[:3]) and torch.equal(plain[4:], with_filler[4:])


def test_inputs_stay_as_they_are():
    delta, decay = torch.randn(8, 2), torch.rand(8, 2)
    kept = delta.clone(), decay.clone()
    for form in (_sum_backwards_on_cpu, _sum_backwards_doubling):
        form(delta, decay)
        assert torch.equal(delta, kept[0]) and torch.equal(decay, kept[1])
