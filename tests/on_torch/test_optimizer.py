"""Adam on one flat vector against torch.optim.Adam with clip_grad_norm_."""

import copy

import pytest
import torch
from proximo.on_torch.optimizer import apply_gradient, flat_adam, flat_gradient
from torch import nn
from torch.nn.utils import clip_grad_norm_


def made():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


@pytest.mark.parametrize("max_grad_norm", [0.1, 1e9])
@pytest.mark.parametrize("eps", [1e-5, 1e-2])
def test_equals_torch_over_many_steps(max_grad_norm, eps):
    """Details 3 and 11, with a rate that is annealed; the count of steps is a float32, so the corrections of the first
    steps agree to 4 digits."""
    net = made().double()
    theirs = copy.deepcopy(net)
    adam, optimizer = flat_adam(net), torch.optim.Adam(theirs.parameters(), eps=eps)
    for step in range(20):
        x, rate = torch.randn(6, 4, dtype=torch.float64), 1e-2 * (1 - step / 20)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        theirs(x).square().sum().backward()
        expected = clip_grad_norm_(theirs.parameters(), max_grad_norm)
        optimizer.step()
        norm = apply_gradient(adam, flat_gradient(net(x).square().sum(), list(net.parameters())),
                              torch.tensor(rate, dtype=torch.float64), eps, max_grad_norm)
        assert float(norm) == pytest.approx(float(expected), rel=1e-4)
    for ours, other in zip(net.parameters(), theirs.parameters()):
        torch.testing.assert_close(ours, other, atol=1e-5, rtol=1e-4)


def test_parameters_are_views_of_the_vector():
    net = made()
    before = [p.clone() for p in net.parameters()]
    adam = flat_adam(net)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before))
    adam.weights.fill_(3.0)
    assert all((p == 3).all() for p in net.parameters())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nothing_moves_from_a_bad_gradient_on(bad):
    adam = flat_adam(made())
    good, rate = torch.ones_like(adam.weights), torch.tensor(0.1)
    apply_gradient(adam, good, rate, 1e-5, 0.5)
    kept = [x.clone() for x in adam]
    for gradient in (torch.where(torch.arange(len(good)) == 7, bad, good), good):
        apply_gradient(adam, gradient, rate, 1e-5, 0.5)
        assert all(torch.equal(now, before) for now, before in zip(adam[:4], kept)) and not adam.ok


def test_a_parameter_the_loss_does_not_reach_has_a_zero_gradient():
    net = made()
    gradient = flat_gradient(net[0].weight.sum(), list(net.parameters()))
    assert gradient[:32].eq(1).all() and gradient[32:].eq(0).all()
