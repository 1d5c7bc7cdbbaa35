"""Heads and distributions against torch.distributions and scipy; sampling against the probabilities; masks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

# leading axes, and one number of choices or several: few shapes, because JAX compiles each
ONE_CHOICE = st.sampled_from([((3,), 1), ((), 2), ((2, 3), 5)])
CHOICES = st.sampled_from([((3,), [1]), ((), [3, 2]), ((2, 3), [2, 5, 1]), ((3,), [4, 4, 2, 3])])


def make_logits(seed, *shape):
    return 2 * np.random.default_rng(seed).standard_normal(shape)


@given(st.integers(0, 1000), ONE_CHOICE)
def test_categorical_equals_torch(framework, seed, shape):
    lead, choices = shape
    logits = make_logits(seed, *lead, choices)
    dist = framework.make_head("CategoricalHead", choices)(logits)
    expected = torch.distributions.Categorical(logits=torch.from_numpy(logits))
    action = np.random.default_rng(seed).integers(choices, size=lead)
    np.testing.assert_allclose(dist.logprob(action), expected.log_prob(torch.tensor(action)), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(dist.entropy(), expected.entropy(), rtol=1e-7, atol=1e-7)
    assert np.array_equal(dist.mode(), logits.argmax(-1))


@given(st.integers(0, 1000), CHOICES)
def test_multi_categorical_adds_up_independent_parts(framework, seed, shape):
    """Detail 37, against torch's Categorical of each component."""
    lead, nvec = shape
    logits = make_logits(seed, *lead, sum(nvec))
    dist = framework.make_head("MultiCategoricalHead", nvec)(logits)
    parts = [torch.distributions.Categorical(logits=part) for part in torch.from_numpy(logits).split(nvec, -1)]
    action = np.random.default_rng(seed).integers(nvec, size=(*lead, len(nvec)))
    expected = sum(part.log_prob(torch.tensor(action[..., i])) for i, part in enumerate(parts))
    np.testing.assert_allclose(dist.logprob(action), expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(dist.entropy(), sum(part.entropy() for part in parts), rtol=1e-7, atol=1e-7)
    assert np.array_equal(dist.mode(), np.stack([part.logits.argmax(-1) for part in parts], -1))


@settings(max_examples=30)
@given(st.integers(0, 1000), st.sampled_from([[1], [3, 2], [2, 5, 1]]), st.data())
def test_masked_choices_have_no_part(framework, seed, nvec, data):
    """Detail A4, against the distribution over the allowed choices only: log-probabilities, entropy, mode, samples."""
    allowed = [np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n).filter(any))) for n in nvec]
    logits = make_logits(seed, sum(nvec))
    head = framework.make_head("MultiCategoricalHead", nvec)
    dist, parts = head(logits, np.concatenate(allowed)), np.split(logits, np.cumsum(nvec)[:-1])
    probabilities = [np.where(ok, special.softmax(np.where(ok, part, -np.inf)), 0) for ok, part in zip(allowed, parts)]
    assert float(dist.entropy()) == pytest.approx(sum(map(stats.entropy, probabilities)), abs=1e-9)
    samples = head(np.tile(logits, (200, 1)), np.tile(np.concatenate(allowed), (200, 1))).sample(head.noise(seed, 200))
    for action in (dist.mode(), *samples):
        assert all(ok[choice] for ok, choice in zip(allowed, action))
    expected = sum(np.log(p[choice]) for p, choice in zip(probabilities, samples[0]))
    assert float(dist.logprob(samples[0])) == pytest.approx(expected, abs=1e-7)
    forbidden = np.array([(~ok).argmax() for ok in allowed])  # the first forbidden choice of each component, or 0
    assert all(ok.all() for ok in allowed) or dist.logprob(forbidden) < -1e7


def test_masked_choices_get_no_gradient(framework):
    head, mask = framework.make_head("CategoricalHead", 5), np.tile([True, False, True, True, False], (4, 1))
    mask, action = framework.to_array((mask, np.array([0, 2, 3, 0])))

    def function(logits):
        dist = head.raw(logits, mask)
        return (dist.entropy() + dist.logprob(action)).sum()

    gradient, = framework.gradient(function, make_logits(0, 4, 5))
    assert np.isfinite(gradient).all() and (gradient[:, [1, 4]] == 0).all() and (gradient[:, 0] != 0).all()


def test_sampling_follows_the_probabilities(framework):
    """A chi-squared test of 40,000 samples. It fails for probabilities that are off by 2 percent."""
    probability = np.array([0.5, 0.3, 0.15, 0.05])
    head = framework.make_head("CategoricalHead", 4)
    action = head(np.tile(np.log(probability), (40_000, 1))).sample(head.noise(1, 40_000))
    counts = np.bincount(action, minlength=4)
    assert stats.chisquare(counts, probability * 40_000).pvalue > 1e-3
    wrong = np.array([0.52, 0.28, 0.15, 0.05])
    assert stats.chisquare(counts, wrong * 40_000).pvalue < 1e-3


def test_components_are_sampled_independently_by_their_probabilities(framework):
    """A chi-squared test of 20,000 samples against the products of the probabilities of both components."""
    one, other = np.array([0.5, 0.3, 0.2]), np.array([0.9, 0.1])
    head = framework.make_head("MultiCategoricalHead", [3, 2])
    action = head(np.tile(np.log(np.concatenate([one, other])), (20_000, 1))).sample(head.noise(2, 20_000))
    counts = np.bincount(2 * action[:, 0] + action[:, 1], minlength=6)
    assert stats.chisquare(counts, np.outer(one, other).ravel() * 20_000).pvalue > 1e-3


def test_gaussian_equals_scipy_and_its_samples_follow_it(framework):
    """Details 23 and 25: log-density, entropy and mode, and Kolmogorov-Smirnov tests of 5,000 samples."""
    head, logstd, mean = framework.make_head("GaussianHead", 2), np.array([0.5, -1.0]), np.array([1.0, -2.0])
    framework.set_logstd(head, logstd)
    dist, expected = head(np.tile(mean, (5000, 1))), stats.norm(mean, np.exp(logstd))
    action = dist.sample(head.noise(3, 5000))
    np.testing.assert_allclose(dist.logprob(action), expected.logpdf(action).sum(-1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(dist.entropy(), np.full(5000, expected.entropy().sum()), rtol=1e-5)
    assert np.array_equal(dist.mode(), np.tile(mean, (5000, 1)))
    for i in range(2):
        assert stats.kstest(action[:, i], stats.norm(mean[i], np.exp(logstd[i])).cdf).pvalue > 1e-3


def test_gaussian_deviation_starts_at_1_and_learns(framework):
    """Detail 24: the logarithm of the deviation is a vector of weights that starts at 0."""
    head = framework.make_head("GaussianHead", 2)
    assert stats.kstest(head(np.zeros((5000, 2))).sample(head.noise(0, 5000))[:, 0], stats.norm().cdf).pvalue > 1e-3
    dist = head(np.zeros((8, 2)))
    assert head.learning_noise(0, 8) is None and head.perturbed(dist, None).raw is dist.raw
    gradient = framework.logstd_gradient(head, np.zeros((1, 2)), np.array([[0.5, 2.0]]))
    np.testing.assert_allclose(gradient, [0.5**2 - 1, 2.0**2 - 1])  # d/ds of -exp(-2s) x^2 / 2 - s, at s = 0


def test_rpo_perturbs_the_mean_when_learning_only(framework):
    """Against the definition: log-densities of a normal distribution whose mean is moved by a uniform draw."""
    head, mean = framework.make_head("RPOHead", 2, 0.5), np.zeros((1000, 2))
    action, noise = np.random.default_rng(4).standard_normal((1000, 2)), head.learning_noise(5, 1000)
    assert stats.kstest(noise.flatten(), stats.uniform(-0.5, 1.0).cdf).pvalue > 1e-3
    dist = head(mean)
    np.testing.assert_allclose(head.perturbed(dist, noise).logprob(action), stats.norm(noise).logpdf(action).sum(-1),
                               rtol=1e-6)
    np.testing.assert_allclose(dist.logprob(action), stats.norm(mean).logpdf(action).sum(-1), rtol=1e-6)
    assert np.array_equal(head.perturbed(dist, noise).entropy(), dist.entropy())
