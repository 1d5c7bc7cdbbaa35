"""Heads against torch.distributions and scipy; sampling against the probabilities; masks."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from proximo.on_torch.distributions import CategoricalHead, GaussianHead, MultiCategoricalHead, RPOHead


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def logits_of(seed, *shape):
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64) * 2


@given(st.integers(0, 1000), st.integers(1, 7), st.sampled_from([(), (3,), (2, 3)]))
def test_categorical_equals_torch(seed, choices, lead):
    logits = logits_of(seed, *lead, choices)
    ours, theirs = CategoricalHead(nn.Identity(), choices)(logits, None), torch.distributions.Categorical(logits=logits)
    action = theirs.sample()
    torch.testing.assert_close(ours.logprob(action), theirs.log_prob(action))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    assert torch.equal(ours.mode(), logits.argmax(-1)) and ours.perturbed(None) is ours


@given(st.integers(0, 1000), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.sampled_from([(), (3,), (2, 3)]))
def test_multi_categorical_adds_up_independent_parts(seed, nvec, lead):
    """Detail 37, against torch's Categorical of each component."""
    logits = logits_of(seed, *lead, sum(nvec))
    ours = MultiCategoricalHead(nn.Identity(), nvec)(logits, None)
    theirs = [torch.distributions.Categorical(logits=part) for part in logits.split(nvec, -1)]
    action = torch.stack([dist.sample() for dist in theirs], -1)
    expected = sum(dist.log_prob(action[..., i]) for i, dist in enumerate(theirs))
    torch.testing.assert_close(ours.logprob(action), expected)
    torch.testing.assert_close(ours.entropy(), sum(dist.entropy() for dist in theirs))
    assert ours.mode().shape == (*lead, len(nvec))


@given(st.integers(0, 1000), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_masked_choices_have_no_part(seed, nvec, data):
    """Detail A4, against the distribution over the allowed choices alone: probabilities, entropy and mode."""
    allowed = [np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n).filter(any))) for n in nvec]
    logits, mask = logits_of(seed, sum(nvec)), torch.from_numpy(np.concatenate(allowed))
    head = MultiCategoricalHead(nn.Identity(), nvec)
    ours = head(logits, mask)
    entropy = 0.0
    for part, ok, found in zip(logits.split(nvec), allowed, ours.parts):
        probability = np.zeros(len(ok))
        probability[ok] = np.exp(part.numpy()[ok])
        probability /= probability.sum()
        np.testing.assert_allclose(found.logp.exp().numpy(), probability, atol=1e-12)
        entropy += stats.entropy(probability)
    assert float(ours.entropy()) == pytest.approx(entropy, abs=1e-9)
    for action in (ours.mode(), *ours.sample(head.noise(generator(seed), 200)[:, None])[:, 0]):
        assert all(ok[choice] for ok, choice in zip(allowed, action))


def test_masked_choices_get_no_gradient():
    logits = torch.randn(4, 5, generator=generator(), requires_grad=True)
    mask = torch.tensor([True, False, True, True, False]).expand(4, 5)
    dist = CategoricalHead(nn.Identity(), 5)(logits, mask)
    gradient, = torch.autograd.grad((dist.entropy() + dist.logprob(torch.tensor([0, 2, 3, 0]))).sum(), logits)
    assert torch.isfinite(gradient).all() and (gradient[:, [1, 4]] == 0).all() and (gradient[:, 0] != 0).all()


def test_sampling_follows_the_probabilities():
    """A chi-squared test of 40,000 draws; it fails for probabilities that are off by 2 percent."""
    probability = np.array([0.5, 0.3, 0.15, 0.05])
    head = CategoricalHead(nn.Identity(), 4)
    dist = head(torch.from_numpy(np.log(probability)).float().expand(40_000, 4), None)
    counts = torch.bincount(dist.sample(head.noise(generator(1), 40_000)), minlength=4).numpy()
    assert stats.chisquare(counts, probability * 40_000).pvalue > 1e-3
    wrong = np.array([0.52, 0.28, 0.15, 0.05])
    assert stats.chisquare(counts, wrong * 40_000).pvalue < 1e-3


def test_components_are_drawn_independently():
    head = MultiCategoricalHead(nn.Identity(), [2, 2])
    action = head(torch.zeros(20_000, 4), None).sample(head.noise(generator(2), 20_000)).numpy()
    assert abs(np.corrcoef(action.T)[0, 1]) < 0.03


def test_gaussian_equals_scipy_and_its_samples_follow_it():
    head = GaussianHead(nn.Identity(), 2)
    with torch.no_grad():
        head.logstd.copy_(torch.tensor([0.5, -1.0]))
    mean = torch.tensor([1.0, -2.0])
    dist = head(mean.expand(5000, 2), None)
    action, deviation = dist.sample(head.noise(generator(3), 5000)), np.exp([0.5, -1.0])
    expected = stats.norm(mean.numpy(), deviation).logpdf(action.detach().numpy()).sum(-1)
    np.testing.assert_allclose(dist.logprob(action).detach().numpy(), expected, rtol=1e-4, atol=1e-4)
    assert float(dist.entropy()[0].detach()) == pytest.approx(stats.norm(0, deviation).entropy().sum(), rel=1e-5)
    assert dist.entropy().shape == (5000,) and torch.equal(dist.mode()[0], mean)
    for i in range(2):
        assert stats.kstest(action[:, i].detach().numpy(), stats.norm(mean[i], deviation[i]).cdf).pvalue > 1e-3


def test_gaussian_deviation_begins_at_1_and_learns():
    """Detail 24: a free vector of logarithms, zero at first."""
    head = GaussianHead(nn.Linear(3, 2), 2)
    assert torch.equal(head.logstd, torch.zeros(2)) and head.logstd.requires_grad
    assert head.learning_noise(generator(), 8) is None


def test_rpo_shifts_the_mean_when_learning_only():
    """Against the definition: log-probabilities under a normal whose mean is moved by a uniform draw."""
    head = RPOHead(nn.Identity(), 2, 0.5)
    mean, action = torch.zeros(1000, 2), torch.randn(1000, 2, generator=generator(4))
    noise = head.learning_noise(generator(5), 1000)
    assert stats.kstest(noise.flatten().numpy(), stats.uniform(-0.5, 1.0).cdf).pvalue > 1e-3
    dist = head(mean, None)
    expected = torch.distributions.Normal(noise, 1.0).log_prob(action).sum(-1)
    torch.testing.assert_close(dist.perturbed(noise).logprob(action), expected)
    torch.testing.assert_close(dist.logprob(action), torch.distributions.Normal(mean, 1.0).log_prob(action).sum(-1))
    assert dist.perturbed(None) is dist and torch.equal(dist.perturbed(noise).entropy(), dist.entropy())
