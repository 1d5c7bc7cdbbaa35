"""Gradients of log-probabilities and entropies against finite differences."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from proximo.config import Config
from proximo.on_torch.assemble import assemble
from tests.support.spec import Spec

KINDS = {"squashed": {"distribution": "squashed"}, "beta": {"distribution": "beta"}, "gsde": {"distribution": "gsde"},
         "state-dependent": {"state_dependent_std": True},
         "squashed, state-dependent": {"distribution": "squashed", "state_dependent_std": True}}


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_finite_differences(kind):
    """Of every weight of the head, in float64; with gSDE those of the last layer, since its features have none."""
    torch.manual_seed(3)
    spec = Spec((3,), np.dtype(np.float32), spaces.Box(-0.5, 2.0, (2,)))
    head = assemble(spec, Config(hidden_sizes=(4,), **KINDS[kind])).head.double()
    with torch.no_grad():
        for p in head.parameters():
            p.add_(0.5 * torch.randn(p.shape))
    obs, action = torch.randn(6, 3, dtype=torch.float64), torch.rand(6, 2, dtype=torch.float64) * 2.4 - 0.45

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
