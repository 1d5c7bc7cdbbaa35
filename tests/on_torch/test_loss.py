"""ppo_loss against a slow definition in float64 numpy, row by row, over every pattern of valid rows, and its gradients
against finite differences."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proximo.config import Config
from proximo.on_torch.loss import ppo_loss

CFG = Config()
NAMES = ("logprob", "old_logprob", "value", "old_value", "advantage", "ret", "entropy")


def slow_loss(rows, valid, clip_coef, cfg):
    """Equations 7 and 9, one valid row at a time."""
    parts = {"policy_loss": [], "value_loss": [], "entropy": [], "old_approx_kl": [], "approx_kl": [], "clipfrac": []}
    for i in np.flatnonzero(valid):
        logprob, old_logprob, value, old_value, advantage, ret, entropy = (rows[name].flat[i] for name in NAMES)
        ratio = np.exp(logprob - old_logprob)
        parts["policy_loss"].append(-min(advantage * ratio, advantage * np.clip(ratio, 1 - clip_coef, 1 + clip_coef)))
        errors = [(value - ret) ** 2]
        if cfg.clip_vloss:
            errors.append((old_value + np.clip(value - old_value, -clip_coef, clip_coef) - ret) ** 2)
        parts["value_loss"].append(0.5 * max(errors))
        parts["entropy"].append(entropy)
        parts["old_approx_kl"].append(old_logprob - logprob)
        parts["approx_kl"].append(ratio - 1 - (logprob - old_logprob))
        parts["clipfrac"].append(float(abs(ratio - 1) > clip_coef))
    means = {name: float(np.mean(part)) if part else 0.0 for name, part in parts.items()}
    loss = means["policy_loss"] - cfg.ent_coef * means["entropy"] + cfg.vf_coef * means["value_loss"]
    return loss, means


def drawn(seed, shape):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape) * (0.3 if "logprob" in name else 1.0) for name in NAMES}


def torch_loss(rows, valid, clip_coef, cfg):
    count = torch.tensor(max(valid.sum(), 1), dtype=torch.float64)
    return ppo_loss(*(torch.as_tensor(rows[name]) for name in NAMES), torch.from_numpy(valid), count,
                    torch.tensor(clip_coef, dtype=torch.float64), cfg)


@given(st.integers(0, 10**6), st.lists(st.booleans(), min_size=1, max_size=24), st.booleans(), st.floats(0.01, 0.5),
       st.floats(0, 1), st.floats(0, 2), st.booleans())
def test_equals_the_definition(seed, valid, clip_vloss, clip_coef, ent_coef, vf_coef, recurrent):
    cfg = replace(CFG, clip_vloss=clip_vloss, ent_coef=ent_coef, vf_coef=vf_coef)
    valid = np.array(valid).reshape(-1, 1) if recurrent else np.array(valid)  # (T, n) with memory, (B,) without
    rows = drawn(seed, valid.shape)
    expected, means = slow_loss(rows, valid, clip_coef, cfg)
    for name in rows:  # what rows that are not valid hold must not matter, even if it is not finite
        rows[name] = np.where(valid, rows[name], np.nan)
    loss, stats = torch_loss(rows, valid, clip_coef, cfg)
    assert float(loss) == pytest.approx(expected, abs=1e-12)
    assert {name: float(x) for name, x in stats.items()} == pytest.approx(means, abs=1e-12)


@pytest.mark.parametrize("clip_vloss", [True, False])
def test_gradients_equal_finite_differences(clip_vloss):
    rows, valid = drawn(1, (9,)), np.arange(9) % 4 != 0
    inputs = [torch.tensor(rows[name], requires_grad=name in ("logprob", "value", "entropy")) for name in NAMES]

    def loss(*tensors):
        return ppo_loss(*tensors, torch.from_numpy(valid), torch.tensor(6.0), torch.tensor(0.2),
                        replace(CFG, clip_vloss=clip_vloss))[0]

    assert torch.autograd.gradcheck(loss, inputs)


def test_gradient_stops_where_the_ratio_has_left_the_interval():
    """Detail 8: a good action made likelier beyond 1 + clip, a bad one less likely beyond 1 - clip; not the others."""
    logprob = torch.tensor([0.5, -0.5, 0.5, -0.5], requires_grad=True)
    zeros, advantage = torch.zeros(4), torch.tensor([1.0, -1.0, -1.0, 1.0])
    loss, stats = ppo_loss(logprob, zeros, zeros, zeros, advantage, zeros, zeros, torch.ones(4, dtype=torch.bool),
                           torch.tensor(4.0), torch.tensor(0.2), CFG)
    gradient, = torch.autograd.grad(loss, logprob)
    assert (gradient == 0).tolist() == [True, True, False, False] and float(stats["clipfrac"]) == 1


def test_rows_that_are_not_valid_have_no_gradient():
    """Masked by where, never by product: a row whose error overflows leaves no NaN."""
    value = torch.tensor([1.0, 1e30], requires_grad=True)
    zeros, valid = torch.zeros(2), torch.tensor([True, False])
    loss, _ = ppo_loss(zeros, zeros, value, zeros, zeros, zeros, zeros, valid, torch.tensor(1.0), torch.tensor(0.2),
                       replace(CFG, clip_vloss=False))
    assert torch.autograd.grad(loss, value)[0].tolist() == [0.5, 0.0]


def test_shares_of_several_processes_add_up():
    """`count` is of all ranks: the parts of a split batch sum to the whole's loss."""
    rows, valid = drawn(2, (8,)), np.array([True, False, True, True, False, True, True, True])
    count = torch.tensor(6.0, dtype=torch.float64)
    parts = [ppo_loss(*(torch.as_tensor(rows[name][half]) for name in NAMES), torch.from_numpy(valid[half]), count,
                      torch.tensor(0.2, dtype=torch.float64), CFG)[0] for half in (slice(4), slice(4, 8))]
    assert float(sum(parts)) == pytest.approx(float(torch_loss(rows, valid, 0.2, CFG)[0]))
