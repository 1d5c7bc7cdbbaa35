"""Clipping and Adam against torch.optim.Adam with clip_grad_norm_, in float64."""

import numpy as np
import pytest
import torch
from torch.nn.utils import clip_grad_norm_

SHAPES = {"a.weight": (4, 8), "a.bias": (8,), "b.scale": ()}
STEPS = 20
RATES = [1e-2 * (1 - step / STEPS) for step in range(STEPS)]  # annealed


def make_weights(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}


def reference_steps(weights, gradients, eps, max_grad_norm):
    """Return the weights after every step, and the norms of the gradients."""
    parameters = {name: torch.nn.Parameter(torch.tensor(x)) for name, x in weights.items()}
    optimizer, weights_after, norms = torch.optim.Adam(parameters.values(), eps=eps), [], []
    for gradient, rate in zip(gradients, RATES):
        for name, p in parameters.items():
            p.grad = torch.tensor(gradient[name])
        norms.append(float(clip_grad_norm_(parameters.values(), max_grad_norm)))
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        weights_after.append({name: p.detach().numpy().copy() for name, p in parameters.items()})
    return weights_after, norms


@pytest.mark.parametrize("max_grad_norm", [0.1, 1e9])
@pytest.mark.parametrize(("eps", "size"), [(1e-5, 1.0), (1e-2, 1.0), (1e-5, 1e-8)])
def test_equals_torch_over_many_steps(framework, max_grad_norm, eps, size):
    """Details 3 and 11, with an annealed rate, also for gradients much smaller than what the clipping adds to their norm."""
    weights = make_weights(0)
    gradients = [{name: np.asarray(size * x) for name, x in make_weights(seed).items()} for seed in range(1, 1 + STEPS)]
    expected, norms = reference_steps(weights, gradients, eps, max_grad_norm)
    records = framework.adam_steps(weights, gradients, RATES, eps, max_grad_norm)
    assert [record.norm for record in records] == pytest.approx(norms, rel=1e-9)
    assert records[-1].step == STEPS and records[-1].ok
    for record, theirs in zip(records, expected):
        for name in SHAPES:
            np.testing.assert_allclose(record.weights[name], theirs[name], atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nothing_changes_from_the_first_gradient_that_is_not_finite(framework, bad):
    """One bad number in one gradient, then good gradients again."""
    gradients = [make_weights(seed) for seed in range(1, 5)]
    gradients[1]["a.weight"][2, 3] = bad
    first, *later = framework.adam_steps(make_weights(0), gradients, RATES[:4], 1e-5, 0.5)
    assert first.ok and any((first.weights[name] != x).any() for name, x in make_weights(0).items())
    assert not np.isfinite(later[0].norm)
    for record in later:
        assert not record.ok and record.step == 1
        for now, before in zip(record[:3], first[:3]):
            assert all(np.array_equal(now[name], before[name]) for name in SHAPES)
