"""Gradients against finite differences; densities against Stable-Baselines3."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from proximo.config import Config
from proximo.on_torch import bounded
from proximo.on_torch.assemble import assemble
from proximo.on_torch.bounded import Beta, Bounds, Squashed
from proximo.on_torch.distributions import Gaussian
from proximo.on_torch.gsde import ExploringGaussian
from tests.support.spec import Spec

KINDS = {"squashed": {"distribution": "squashed"}, "beta": {"distribution": "beta"}, "gsde": {"distribution": "gsde"},
         "state-dependent": {"state_dependent_std": True},
         "squashed, state-dependent": {"distribution": "squashed", "state_dependent_std": True}}


def test_the_mode_of_beta_is_a_number_where_both_parts_underflow():
    """Otherwise every bit is that of a / (a + b)."""
    parts, bounds = torch.rand(2, 1000, 1) * 10, Bounds(torch.tensor([-1.0]), torch.tensor([3.0]))
    assert torch.equal(Beta(*parts, bounds).mode(), bounds.from_unit(parts[0] / parts.sum(0)))
    assert Beta(torch.zeros(1), torch.zeros(1), bounds).mode() == 1


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_finite_differences(kind):
    """Of every weight of the head, in float64; with gSDE those of the last layer, since its features have none."""
    torch.manual_seed(3)
    spec = Spec((3,), np.dtype(np.float32), spaces.Box(-0.5, 2.0, (3,)))
    head = assemble(spec, Config(hidden_sizes=(4,), **KINDS[kind])).head.double()
    with torch.no_grad():
        for p in head.parameters():
            p.add_(0.5 * torch.randn(p.shape))
    obs, action = torch.randn(6, 3, dtype=torch.float64), torch.rand(6, 3, dtype=torch.float64) * 2.4 - 0.45

    def function():
        dist = head(obs, None)
        return (dist.logprob(action) + 0.7 * dist.entropy()).sum()

    checked = [p for name, p in head.named_parameters() if kind != "gsde" or name.startswith(("last", "logstd"))]
    for p, gradient in zip(checked, torch.autograd.grad(function(), checked), strict=True):
        expected = torch.zeros_like(p)
        with torch.no_grad():
            for index in np.ndindex(*p.shape):
                p[index] += 1e-6
                above = function()
                p[index] -= 2e-6
                expected[index] = (above - function()) / 2e-6
                p[index] += 1e-6
        torch.testing.assert_close(gradient, expected, atol=1e-6, rtol=1e-5)


def test_gsde_equals_stable_baselines3():
    """Log-probability, entropy and noise, for the same features, means, deviations and matrix."""
    reference = pytest.importorskip("stable_baselines3.common.distributions")
    torch.manual_seed(5)
    theirs = reference.StateDependentNoiseDistribution(2)
    theirs.proba_distribution_net(4)
    mean, features, logstd = torch.randn(6, 2), torch.randn(6, 4), torch.randn(4, 2)
    theirs.sample_weights(logstd, batch_size=6)
    theirs = theirs.proba_distribution(mean, logstd, features)
    ours, action = ExploringGaussian(mean=mean, features=features, logstd=logstd), torch.randn(6, 2)
    torch.testing.assert_close(ours.logprob(action), theirs.log_prob(action), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.entropy(), theirs.entropy(), atol=1e-5, rtol=1e-5)
    noise = theirs.exploration_matrices / logstd.exp()
    torch.testing.assert_close(ours.sample(noise), theirs.sample(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_squashed_equals_stable_baselines3(scale):
    """Log-probabilities on [-1, 1], where both recover the Gaussian's value from the action."""
    reference = pytest.importorskip("stable_baselines3.common.distributions")
    torch.manual_seed(6)
    mean, logstd = torch.randn(50, 2), torch.full((50, 2), scale).log()
    theirs = reference.SquashedDiagGaussianDistribution(2, epsilon=0.0).proba_distribution(mean, logstd)
    ours = Squashed(Gaussian(mean, logstd), Bounds(torch.full((2,), -1.0), torch.ones(2)))
    action = torch.tanh(mean + 0.5 * torch.randn(50, 2)).clamp(-0.99, 0.99)
    torch.testing.assert_close(ours.logprob(action), theirs.log_prob(action), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.mode(), theirs.mode())


def test_the_gradient_of_a_squashed_policy_near_a_bound():
    """E[A score] of the mean is 1 for A = (u - mean) / std. In float32, the actions of a mean of 6.5 lose little of it."""
    noise = torch.randn(100_000, 1, generator=torch.Generator().manual_seed(0))
    mean = torch.full((len(noise), 1), 6.5, requires_grad=True)
    dist = Squashed(Gaussian(mean, torch.zeros(1)), Bounds(-torch.ones(1), torch.ones(1)))
    (gradient,) = torch.autograd.grad((dist.logprob(dist.sample(noise).detach()) * noise[:, 0]).mean(), mean)
    assert gradient.sum().item() == pytest.approx(1, abs=0.05)


def test_both_frameworks_move_actions_away_from_the_bounds_by_the_same_part():
    """They train on the same actions."""
    jax = pytest.importorskip("proximo.on_jax.bounded", exc_type=ImportError)
    assert bounded.EDGE == jax.EDGE
