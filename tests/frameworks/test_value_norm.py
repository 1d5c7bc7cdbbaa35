"""Normalised values: moments of returns against numpy's of all of them, and what the value function returns."""

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.config import Config
from proximo.envs.arrays.moments import MOST_COUNTED
from tests.support.spec import Spec

CFG = Config(hidden_sizes=(8, 8), norm_value=True)
SPEC = Spec((3,), np.dtype(np.float32), spaces.Discrete(5))


def moments(framework, agent):
    """Return mean, variance and count of the returns that an agent was given."""
    weights = framework.weights(agent)
    return [weights[f"critic.return_{name}"] for name in ("mean", "var", "count")]


def test_moments_are_those_of_all_valid_returns(framework):
    """Returns with a mean far above their deviation, of rollouts with filler rows and of one with nothing else."""
    agent, rng = framework.make_agent(SPEC, CFG), np.random.default_rng(1)
    given = []
    for number, offset in enumerate((1e4, 1e4, -3e4)):
        ret, valid = offset + rng.standard_normal((16, 4)), rng.random((16, 4)) < (0.7 if number != 1 else 0.0)
        framework.count_returns(agent, np.where(valid, ret, 1e9), valid)
        given.append(ret[valid])
    mean, var, count = moments(framework, agent)
    every = np.concatenate(given)
    assert count == pytest.approx(len(every), rel=1e-5)
    assert mean == pytest.approx(every.mean(), rel=1e-5) and var == pytest.approx(every.var(), rel=1e-4)


def test_moments_of_few_returns_among_filler_rows(framework):
    """One and two valid rows, with a deviation of 1e-3: fillers add nothing to it."""
    for given in ([5.0], [5.001, 4.999]):
        agent, valid = framework.make_agent(SPEC, CFG), np.arange(8)[:, None] < len(given)
        framework.count_returns(agent, np.where(valid, np.resize(given, (8, 1)), 1e9), valid)
        mean, var, count = moments(framework, agent)
        assert (mean, count) == pytest.approx((5.0, len(given)), rel=1e-6)
        assert var == pytest.approx(np.var(given), abs=3e-7)


def test_first_returns_replace_the_initial_moments(framework):
    """Small and large ones: the variance of the first rollout has no trace of the initial 1."""
    for scale in (1e-3, 1e6):
        agent, ret = framework.make_agent(SPEC, CFG), scale * np.random.default_rng(2).standard_normal((128, 4))
        framework.count_returns(agent, ret, np.ones(ret.shape, bool))
        assert moments(framework, agent)[1] == pytest.approx(ret.var(), rel=1e-3)


def test_values_before_the_first_returns_are_those_of_mean_0_and_deviation_1(framework):
    obs, first, found = np.random.default_rng(3).standard_normal((6, 3)), np.ones(6, bool), []
    for given in ([], [[-1.0, 1.0]]):
        agent = framework.make_agent(SPEC, CFG)
        if given:
            framework.count_returns(agent, np.array(given), np.ones((1, 2), bool))
        found.append(np.asarray(agent.value(obs, first, agent.initial_state(6))))
    assert np.ptp(found[0]) > 1e-3
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_old_returns_lose_weight_beyond_the_count_of_float32(framework):
    """After 2**23 returns, new ones have a share of at least 1 / 2**23 each."""
    agent, ones = framework.make_agent(SPEC, CFG), np.ones((4096, 1024), bool)
    for _ in range(4):
        framework.count_returns(agent, np.zeros(ones.shape), ones)
    framework.count_returns(agent, np.ones(ones.shape), ones)
    assert moments(framework, agent)[0] == pytest.approx(ones.size / (MOST_COUNTED + ones.size))


@pytest.mark.parametrize("change", [{}, {"shared_network": True}, {"recurrent": "gru", "memory_size": 8}])
def test_values_have_the_scale_of_the_returns(framework, change):
    """The same network with the moments of returns x and of 100 x + 7: values v and 100 v + 7, for every agent."""
    cfg, obs = Config(hidden_sizes=(8, 8), norm_value=True, **change), np.random.default_rng(3).standard_normal((6, 3))
    ret, first = np.random.default_rng(4).standard_normal((64, 4)), np.ones(6, bool)
    found = []
    for returns in (ret, 100 * ret + 7):
        agent = framework.make_agent(SPEC, cfg)
        framework.count_returns(agent, returns, np.ones(ret.shape, bool))
        found.append(np.asarray(agent.value(obs, first, agent.initial_state(6))))
    assert np.ptp(found[0]) > 1e-3
    np.testing.assert_allclose(found[1], 100 * found[0] + 7, rtol=1e-3)


@pytest.mark.parametrize("ret", [np.array([[-7.0, 5.0, 1.0]]), np.full((64, 4), 5.0), np.zeros((64, 4))])
def test_a_loss_reads_standard_deviations_from_the_mean(framework, ret):
    """Against numpy's moments of the returns. Where they are all equal, everything stays finite."""
    agent, x = framework.make_agent(SPEC, CFG), np.array([-3.0, 5.0, 80.0])
    framework.count_returns(agent, ret, np.ones(ret.shape, bool))
    normalized = framework.to_numpy(agent.raw.critic.normalize(framework.to_array(x)))
    if ret.std() > 0:
        np.testing.assert_allclose(normalized, (x - ret.mean()) / ret.std(), rtol=1e-6)
    obs, first = np.random.default_rng(3).standard_normal((6, 3)), np.ones(6, bool)
    value = np.asarray(agent.value(obs, first, agent.initial_state(6)))
    assert np.isfinite(normalized).all() and np.isfinite(value).all() and abs(value - ret.mean()).max() < 10 * ret.std() + 1e-2


@pytest.mark.parametrize(("asked", "held"), [(True, False), (False, True)])
def test_an_agent_has_moments_exactly_if_they_are_asked_for(framework, asked, held):
    """Otherwise values would not be normalised, or by moments that never change."""
    assemble = import_module(f"proximo.on_{framework.name}.assemble").assemble
    cfg = Config(norm_value=asked, framework=framework.name, num_steps=8, total_timesteps=32)
    runs = proximo.iterations(cfg, make_agent=lambda spec, cfg: assemble(spec, replace(cfg, norm_value=held)))
    with framework.float32(), pytest.raises(proximo.UsageError, match="NormalizedCritic") as error:
        next(runs)
    assert (f"this one has 0. Put the network of the value function into one (proximo.on_{framework.name}.value_norm)"
            in str(error.value)) == asked


def test_an_agent_with_two_of_them_is_refused(framework):
    """The loss and the moments would be those of one."""
    folder = f"proximo.on_{framework.name}"
    assemble, critic = import_module(f"{folder}.assemble").assemble, import_module(f"{folder}.value_norm").NormalizedCritic

    def make_agent(spec, cfg):
        agent = assemble(spec, cfg)
        agent.other = critic(agent.critic)
        return agent

    cfg = Config(norm_value=True, framework=framework.name, num_steps=8, total_timesteps=32)
    with framework.float32(), pytest.raises(proximo.UsageError, match="one NormalizedCritic, and this one has 2"):
        next(proximo.iterations(cfg, make_agent=make_agent))
