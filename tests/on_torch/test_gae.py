"""The form of gae for devices against the loop for the CPU, which tests/frameworks/test_gae.py compares with the
definition."""

import itertools
from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.on_torch.assemble import assemble
from proximo.on_torch.gae import _sum_backwards_doubling, _sum_backwards_on_cpu, gae
from proximo.on_torch.setup import set_up
from proximo.on_torch.train import train


def check(ends, seed, decay):
    """Compare both forms for errors drawn from a seed and (T, N) flags of ends."""
    delta = torch.randn(ends.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    decays = torch.from_numpy(np.where(ends, 0.0, decay))
    torch.testing.assert_close(_sum_backwards_doubling(delta, decays), _sum_backwards_on_cpu(delta, decays), rtol=1e-9,
                               atol=1e-9)


def test_every_pattern_of_ends_of_five_steps():
    check(np.array(list(itertools.product((False, True), repeat=5))).T, 0, 0.9)


@given(st.integers(0, 10**6), st.integers(1, 33), st.integers(1, 4), st.floats(0, 0.9), st.floats(0, 1))
def test_doubling_equals_the_loop(seed, steps, num_envs, often, decay):
    check(np.random.default_rng(seed).random((steps, num_envs)) < often, seed, decay)


def test_the_arguments_are_not_changed():
    delta, decay = torch.randn(8, 2), torch.rand(8, 2)
    before = delta.clone(), decay.clone()
    for form in (_sum_backwards_on_cpu, _sum_backwards_doubling):
        form(delta, decay)
        assert torch.equal(delta, before[0]) and torch.equal(decay, before[1])


def test_one_environment_needs_no_axis():
    """Views of the rows of a vector were copies: the sum stayed that of single steps."""
    reward, no = torch.arange(1.0, 6.0), torch.zeros(5, dtype=torch.bool)
    zero = torch.zeros(5)
    assert gae(reward, zero, zero, no, no, 1.0, 1.0).tolist() == [15.0, 14.0, 12.0, 9.0, 5.0]


def test_training_uses_the_estimator_of_the_setup():
    """Returns minus values, which a loop adds up, against gae_lambda=1; episodes are cut at 20 steps, and bootstrapped."""
    cfg = Config(env_kwargs={"max_episode_steps": 20}, total_timesteps=2048, gamma=0.9)

    def monte_carlo(rollout, cfg):
        following, total = torch.where(rollout.terminated, 0.0, rollout.next_value), rollout.next_value[-1]
        returns = []
        for reward, after, done in reversed(list(zip(rollout.reward, following, rollout.done))):
            total = reward + cfg.gamma * torch.where(done, after, total)
            returns.append(total)
        return torch.stack(returns[::-1]) - rollout.value

    def weights(cfg, estimate=None):
        def set_up_with(*arguments):
            setup = set_up(*arguments)
            return setup._replace(estimate=estimate) if estimate else setup

        *_, last = (it.weights() for it in train(cfg, make_gym, assemble, set_up=set_up_with))
        return last

    found, expected = weights(cfg, monte_carlo), weights(replace(cfg, gae_lambda=1.0))
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, rtol=0, atol=2e-5, err_msg=name)
    assert any(np.abs(x - found[name]).max() > 1e-4 for name, x in weights(cfg).items())
