"""Distributions of continuous actions, in float64: densities against scipy and integrals, samples against densities,
finiteness at the bounds, and the exploration of gSDE against its definition."""

import numpy as np
import pytest
from gymnasium import spaces
from scipy import stats

from proximo.config import Config
from proximo.errors import UsageError
from tests.support.spec import Spec

OBS = (3,), np.dtype(np.float32)
LOW, HIGH = np.array([-0.5, 10.0]), np.array([2.0, 10.5])
BOX = spaces.Box(LOW.astype(np.float32), HIGH.astype(np.float32))
WIDE = spaces.Box(-0.5, 2.0, (1,))
KINDS = {"gaussian": {"log_std_init": -0.7}, "squashed": {"distribution": "squashed", "log_std_init": 0.2},
         "beta": {"distribution": "beta"}, "gsde": {"distribution": "gsde", "log_std_init": -1.5},
         "state-dependent": {"state_dependent_std": True, "log_std_init": -0.5},
         "squashed, state-dependent": {"distribution": "squashed", "state_dependent_std": True, "log_std_init": -1.0}}
BOUNDED = [name for name, fields in KINDS.items() if fields.get("distribution") in ("squashed", "beta")]


@pytest.fixture(autouse=True)
def _float64(framework):
    with framework.float64():
        yield


def make_agent(framework, fields, space=WIDE):
    """Make an agent with weights that make its distribution depend on the observation."""
    return framework.make_agent(Spec(*OBS, space), Config(hidden_sizes=(8,), **fields), factor=60)


def distribution(agent, obs):
    return agent(obs, None, np.zeros(len(obs), bool), ())[0]


def density(agent, obs, bounded):
    """Return a fine grid of actions (n,) for one observation and the density there."""
    grid = np.linspace(-0.5, 2.0, 200_001)[1:-1] if bounded else np.linspace(-30, 30, 200_001)
    dist = distribution(agent, np.tile(obs, (len(grid), 1)))
    return grid, np.exp(dist.logprob(grid[:, None])), float(dist.entropy()[0])


@pytest.mark.parametrize("kind", KINDS)
def test_densities_integrate_to_1_and_entropies_are_their_integrals(framework, kind):
    """Two observations, for which the entropies differ where the deviation depends on the state."""
    agent, entropies = make_agent(framework, KINDS[kind]), []
    for obs in ([0.5, -1.0, 0.3], [-2.0, 0.7, 1.0]):
        grid, p, entropy = density(agent, obs, kind in BOUNDED)
        assert np.trapezoid(p, grid) == pytest.approx(1, abs=3e-3)
        assert entropy == pytest.approx(-np.trapezoid(p * np.log(np.maximum(p, 1e-300)), grid), abs=1e-2)
        entropies.append(entropy)
    assert (abs(entropies[0] - entropies[1]) > 1e-3) == (kind != "gaussian")


@pytest.mark.parametrize("kind", KINDS)
def test_samples_follow_the_density(framework, kind):
    """A Kolmogorov-Smirnov test of 20,000 samples against the integrated density."""
    agent, obs = make_agent(framework, KINDS[kind]), [0.5, -1.0, 0.3]
    grid, p, _ = density(agent, obs, kind in BOUNDED)
    cumulated = np.concatenate([[0], np.cumsum((p[1:] + p[:-1]) / 2 * np.diff(grid))])
    action = distribution(agent, np.tile(obs, (20_000, 1))).sample(agent.head.noise(3, 20_000))[:, 0]
    assert stats.kstest(action, lambda x: np.interp(x, grid, cumulated)).pvalue > 1e-3
    assert stats.kstest(action + 0.05, lambda x: np.interp(x, grid, cumulated)).pvalue < 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_has_the_numbers_of_its_rows(framework, kind):
    """Of shape (T, n), as a recurrent agent learns, against T * n rows."""
    agent, rng = make_agent(framework, KINDS[kind], BOX), np.random.default_rng(5)
    obs, action = rng.standard_normal((4, 3, 3)), LOW + (HIGH - LOW) * rng.uniform(0.1, 0.9, (4, 3, 2))
    first = np.zeros((4, 3), bool)
    dist, flat = agent(obs, None, first, ())[0], distribution(agent, obs.reshape(12, 3))
    np.testing.assert_allclose(dist.logprob(action), flat.logprob(action.reshape(12, 2)).reshape(4, 3), rtol=1e-9)
    np.testing.assert_allclose(dist.entropy(), flat.entropy().reshape(4, 3), rtol=1e-9)
    np.testing.assert_allclose(dist.mode(), flat.mode().reshape(4, 3, 2), rtol=1e-9)


def test_squashed_equals_the_change_of_variables(framework):
    """Against scipy: the normal density of u divided by the slope of low + (high - low) (1 + tanh u) / 2."""
    agent = make_agent(framework, {"distribution": "squashed", "log_std_init": -0.5}, BOX)
    rng = np.random.default_rng(0)
    dist, u = distribution(agent, rng.normal(size=(50, 3))), rng.normal(size=(50, 2))
    expected = stats.norm(framework.to_numpy(dist.raw.gaussian.mean), np.exp(-0.5)).logpdf(u) - np.log((HIGH - LOW) / 2 / np.cosh(u) ** 2)
    np.testing.assert_allclose(dist.logprob(LOW + (HIGH - LOW) * (1 + np.tanh(u)) / 2), expected.sum(-1), rtol=1e-6)


@pytest.mark.parametrize(("std", "limit"), [(0.1, 1e-3), (0.7, 1e-3), (2.7, 1e-3), (7.38, 0.015)])
def test_the_entropy_of_squashed_actions_is_their_integral_for_every_deviation(framework, std, limit):
    """Against an integral over u, for means up to three deviations; a Gauss-Hermite
    quadrature of 16 points is wrong by 0.25 for the last one. Its slope in the mean, which the entropy bonus follows, too."""
    agent, mean = make_agent(framework, {"distribution": "squashed", "log_std_init": float(np.log(std))}), np.linspace(0, 3 * std, 200)
    dist = distribution(agent, np.zeros((200, 3))).raw
    dist = dist._replace(gaussian=dist.gaussian._replace(mean=framework.to_array(mean[:, None])))
    z = np.linspace(-9, 9, 20_001)
    u = abs(mean[:, None] + std * z)
    slopes = np.trapezoid(stats.norm.pdf(z) * (np.log(2) - 2 * u - 2 * np.log1p(np.exp(-2 * u))), z)
    error = framework.to_numpy(dist.entropy()) - slopes - 0.5 * np.log(2 * np.pi * np.e * std**2) - np.log(2.5)
    assert abs(error).max() < limit and abs(np.gradient(error, mean)).max() < 2 * limit


def test_the_entropy_of_squashed_actions_far_from_the_middle_is_finite_and_the_same_at_both_bounds(framework):
    """Of means of 1,000 and -1,000, whose exp overflows: log(4 e^-2|u| (high - low) / 2) plus that of the normal."""
    dist = distribution(make_agent(framework, {"distribution": "squashed"}), np.zeros((2, 3))).raw
    dist = dist._replace(gaussian=dist.gaussian._replace(mean=framework.to_array(np.array([[1000.0], [-1000.0]]))))
    expected = 0.5 * np.log(2 * np.pi * np.e) + np.log(2.5) + np.log(2) - 2000
    np.testing.assert_allclose(framework.to_numpy(dist.entropy()), expected, rtol=1e-9)


def test_beta_equals_scipy(framework):
    """Log-density, entropy and mode; samples for a range of parameters by Kolmogorov-Smirnov tests."""
    agent = make_agent(framework, {"distribution": "beta"}, BOX)
    rng = np.random.default_rng(0)
    dist, x = distribution(agent, 3 * rng.normal(size=(20, 3))), rng.uniform(0.01, 0.99, (20, 2))
    a, b = (1 + framework.to_numpy(part) for part in (dist.raw.a, dist.raw.b))
    expected = stats.beta(a, b, LOW, HIGH - LOW)
    action = LOW + (HIGH - LOW) * x
    np.testing.assert_allclose(dist.logprob(action), expected.logpdf(action).sum(-1), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(dist.entropy(), expected.entropy().sum(-1), rtol=1e-6, atol=1e-9)
    assert (expected.logpdf(dist.mode()) >= expected.logpdf(action)).all()


@pytest.mark.parametrize(("a", "b"), [(1.0001, 1.0001), (1.5, 1.01), (3.0, 40.0), (800.0, 900.0)])
def test_gamma_variates_make_beta_variates(framework, a, b):
    """Kolmogorov-Smirnov tests of 20,000 samples of Beta(a, b), and no sample outside the bounds."""
    head = framework.make_head("BetaHead", np.array([2.0]), np.array([4.0]))
    outputs = np.tile([x - 1 + np.log(-np.expm1(1 - x)) for x in (a, b)], (20_000, 1))  # softplus of it is x - 1
    action = head(outputs).sample(head.noise(5, 20_000))[:, 0]
    assert stats.kstest(action, stats.beta(a, b, 2, 2).cdf).pvalue > 1e-3
    assert action.min() >= 2 and action.max() <= 4


@pytest.mark.parametrize("kind", BOUNDED)
def test_nothing_is_infinite_at_the_bounds(framework, kind):
    """Far outputs of the network give actions on the bounds; log-probabilities and gradients stay finite there."""
    agent = make_agent(framework, KINDS[kind], BOX)
    obs = np.array([[1e3, -1e3, 1e3], [-1e3, 1e3, -1e3], [0.1, 0.2, 0.3]])
    dist = distribution(agent, obs)
    noise = agent.head.noise(0, 3)
    for action in (dist.sample(noise), dist.mode(), np.tile(LOW, (3, 1)), np.tile(HIGH, (3, 1))):
        assert (action >= LOW - 1e-6).all() and (action <= HIGH + 1e-6).all()
        assert np.isfinite(dist.logprob(action)).all() and np.isfinite(dist.entropy()).all()

    def function(raw):
        found = raw(*framework.to_array((obs, None, np.zeros(3, bool), ())))[0]
        return (found.logprob(framework.to_array(np.tile(HIGH, (3, 1)))) + found.entropy()).sum()

    assert all(np.isfinite(x).all() for x in framework.weight_gradient(agent, function).values())


def test_gsde_explores_with_one_matrix_for_several_steps(framework):
    """Equations 6 to 8 of the paper: the noise is linear in the features, and its variance is features^2 @ std^2."""
    agent = make_agent(framework, {"distribution": "gsde", "log_std_init": -0.5}, BOX)
    dist = distribution(agent, np.random.default_rng(1).normal(size=(4, 3)))
    features, std = framework.to_numpy(dist.raw.features), np.exp(-0.5)
    noise = agent.head.noise(2, 4)
    assert noise.shape == (4, 8, 2)
    np.testing.assert_allclose(dist.sample(noise) - dist.mode(), std * np.einsum("nf,nfk->nk", features, noise))
    expected = stats.norm(dist.mode(), np.sqrt((features**2).sum(-1, keepdims=True) * std**2 + 1e-6))
    action = np.random.default_rng(2).normal(size=(4, 2))
    np.testing.assert_allclose(dist.logprob(action), expected.logpdf(action).sum(-1), rtol=1e-9)
    np.testing.assert_allclose(dist.entropy(), expected.entropy().sum(-1), rtol=1e-9)


@pytest.mark.parametrize(("every", "draws"), [(0, [0] * 7), (1, range(7)), (3, [0, 0, 0, 1, 1, 1, 2]), (9, [0] * 7)])
def test_gsde_draws_a_matrix_every_few_steps(framework, every, draws):
    """A matrix for each environment; the same one until the next draw."""
    head = make_agent(framework, {"distribution": "gsde", "sde_sample_freq": every}).head
    noise = head.noise(0, 7, 2)
    assert noise.shape == (7, 2, 8, 1) and len(np.unique(noise[:, :, 0, 0])) == 2 * len(set(draws))
    for t, draw in enumerate(draws):
        assert np.array_equal(noise[t], noise[list(draws).index(draw)])


def test_gsde_moves_no_features_through_its_variance(framework):
    """The entropy, which depends on the variance only, has no gradient below the last layer."""
    agent = make_agent(framework, {"distribution": "gsde"})

    def entropy(raw):
        return raw(*framework.to_array((np.ones((2, 3)), None, np.zeros(2, bool), ())))[0].entropy().sum()

    gradients = framework.weight_gradient(agent, entropy)
    assert {name for name, x in gradients.items() if x.any()} == {"head.logstd"}


def test_a_state_dependent_deviation_stays_in_its_range(framework):
    """exp(-5) to exp(2)."""
    for log_std_init, expected in ((-20.0, -5.0), (20.0, 2.0)):
        agent = make_agent(framework, {"state_dependent_std": True, "log_std_init": log_std_init})
        assert (framework.to_numpy(distribution(agent, np.ones((5, 3))).raw.logstd) == expected).all()


@pytest.mark.parametrize(("fields", "space", "sentence"), [
    ({"distribution": "squashed"}, spaces.Box(-1, np.inf, (2,)), "distribution=squashed needs finite bounds with low "
     "< high, a range that float32 holds, and more than 1,000 numbers of float32 "
     "between them. Component [0] of the actions of CartPole-v1 lies between -1 and inf (2 "),
    ({"distribution": "beta"}, spaces.Box(-np.inf, np.inf, (2,)), "distribution=beta needs finite bounds"),
    ({"distribution": "squashed"}, spaces.Box(np.float32([0, 1000]), np.float32([1e-30, 1000.01])), "distribution=squashed needs finite bounds "
     "with low < high, a range that float32 holds, and more than 1,000 numbers of "
     "float32 between them. Component [1] of the actions of CartPole-v1 lies between "
     "1000 and 1000.01. Change the bounds"),
    ({"distribution": "gsde"}, spaces.Discrete(2), "distribution=gsde has no effect: CartPole-v1 has no continuous "
     "actions. Leave distribution out."),
    ({"log_std_init": -1.0}, spaces.MultiBinary(2), "log_std_init=-1.0 has no effect"),
    ({"log_std_init": -1.0}, spaces.Dict(grip=spaces.Discrete(2), move=spaces.Box(-1, 1, (2,))), "log_std_init=-1.0 has no "
     "effect: the Box parts of Dict and Tuple actions are Gaussians with log_std_init=0. Leave log_std_init out."),
    ({"state_dependent_std": True}, spaces.MultiDiscrete([2, 3]), "state_dependent_std=True has no effect")])
def test_what_cannot_apply_to_the_actions_is_refused(framework, fields, space, sentence):
    with pytest.raises(UsageError) as refused:
        make_agent(framework, fields, space)
    assert str(refused.value).startswith(sentence)
