"""ppo_loss against a slow definition in float64 numpy, row by row, over every pattern of valid rows, and its gradients
against finite differences."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proximo.config import Config

CFG = Config()
NAMES = ("logprob", "old_logprob", "value", "old_value", "advantage", "ret", "entropy")
OF_THE_NETWORK = ("logprob", "value", "entropy")  # what depends on the weights


def slow_loss(rows, cfg):
    """Compute equations 7 and 9, one valid row at a time. Returns the loss and its statistics."""
    parts = {"policy_loss": [], "value_loss": [], "entropy": [], "old_approx_kl": [], "approx_kl": [], "clipfrac": []}
    clip = rows["clip_coef"]
    for i in np.flatnonzero(rows["valid"]):
        logprob, old_logprob, value, old_value, advantage, ret, entropy = (rows[name].flat[i] for name in NAMES)
        ratio = np.exp(logprob - old_logprob)
        parts["policy_loss"].append(-min(advantage * ratio, advantage * np.clip(ratio, 1 - clip, 1 + clip)))
        errors = [(value - ret) ** 2]
        if cfg.clip_vloss:
            errors.append((old_value + np.clip(value - old_value, -clip, clip) - ret) ** 2)
        parts["value_loss"].append(0.5 * max(errors))
        parts["entropy"].append(entropy)
        parts["old_approx_kl"].append(old_logprob - logprob)
        parts["approx_kl"].append(ratio - 1 - (logprob - old_logprob))
        parts["clipfrac"].append(float(abs(ratio - 1) > clip))
    means = {name: float(np.mean(part)) if part else 0.0 for name, part in parts.items()}
    loss = means["policy_loss"] - rows["ent_coef"] * means["entropy"] + cfg.vf_coef * means["value_loss"]
    return loss, means


def make_rows(seed, valid, clip_coef=0.2, ent_coef=0.01):
    """Draw rows of the shape of `valid`, by the names of LossInputs."""
    rng = np.random.default_rng(seed)
    rows = {name: rng.standard_normal(valid.shape) * (0.3 if "logprob" in name else 1.0) for name in NAMES}
    return rows | {"valid": valid, "count": np.float64(max(valid.sum(), 1)), "clip_coef": np.float64(clip_coef),
                   "ent_coef": np.float64(ent_coef)}


def select_rows(rows, part):
    """Select rows; count and coefficients stay those of all of them."""
    return {name: x if x.ndim == 0 else x[part] for name, x in rows.items()}


@given(st.integers(0, 10**6), st.lists(st.booleans(), min_size=24, max_size=24), st.sampled_from([1, 24]),
       st.booleans(), st.floats(0.01, 0.5), st.floats(0, 1), st.floats(0, 2), st.booleans())
def test_equals_the_definition(framework, seed, valid, size, clip_vloss, clip_coef, ent_coef, vf_coef, recurrent):
    cfg = replace(CFG, clip_vloss=clip_vloss, vf_coef=vf_coef)
    valid = np.array(valid[:size]).reshape((-1, 1) if recurrent else (-1,))  # (T, n) of a recurrent agent, or (B,)
    rows = make_rows(seed, valid, clip_coef, ent_coef)
    expected, means = slow_loss(rows, cfg)
    for name in NAMES:  # what rows that are not valid hold must not matter, even if it is not finite
        rows[name] = np.where(valid, rows[name], np.nan)
    loss, stats = framework.loss(rows, cfg)
    assert loss == pytest.approx(expected, abs=1e-12)
    assert stats == pytest.approx(means, abs=1e-12)


@pytest.mark.parametrize("clip_vloss", [True, False])
def test_gradients_equal_finite_differences(framework, clip_vloss):
    """Central differences of the slow definition, for every row and everything that depends on the weights."""
    cfg, valid = replace(CFG, clip_vloss=clip_vloss), np.arange(9) % 4 != 0
    rows = make_rows(1, valid)
    found = framework.loss_gradient(rows, OF_THE_NETWORK, cfg)
    for name, gradient in zip(OF_THE_NETWORK, found):
        for i, step in enumerate(1e-6 * np.eye(9)):
            higher, lower = (slow_loss(rows | {name: rows[name] + sign * step}, cfg)[0] for sign in (1, -1))
            assert gradient[i] == pytest.approx((higher - lower) / 2e-6, abs=1e-7), (name, i)


def test_gradient_stops_where_the_ratio_has_left_the_interval(framework):
    """Detail 8: zero for a good action that became more likely than 1 + clip, and for a bad one that became less likely
    than 1 - clip. Not zero in the two opposite cases."""
    rows = dict.fromkeys(NAMES, np.zeros(4)) | {"valid": np.ones(4, bool), "count": np.float64(4),
                                                "clip_coef": np.float64(0.2), "ent_coef": np.float64(0)}
    rows |= {"logprob": np.array([0.5, -0.5, 0.5, -0.5]), "advantage": np.array([1.0, -1.0, -1.0, 1.0])}
    gradient, = framework.loss_gradient(rows, ("logprob",), CFG)
    assert (gradient == 0).tolist() == [True, True, False, False] and framework.loss(rows, CFG)[1]["clipfrac"] == 1


def test_rows_that_are_not_valid_have_no_gradient(framework):
    """They are masked by `where` and not by a product: a row whose error overflows leaves no NaN."""
    rows = dict.fromkeys(NAMES, np.zeros(2)) | {"valid": np.array([True, False]), "count": np.float64(1),
                                                "clip_coef": np.float64(0.2), "ent_coef": np.float64(0), "value": np.array([1.0, 1e200])}
    gradient, = framework.loss_gradient(rows, ("value",), replace(CFG, clip_vloss=False))
    assert gradient.tolist() == [0.5, 0.0]


def test_shares_of_several_processes_add_up(framework):
    """`count` is over all ranks: the losses of the parts of a batch add up to the loss of the whole batch."""
    rows = make_rows(2, np.array([True, False, True, True, False, True, True, True]))
    parts = [framework.loss(select_rows(rows, part), CFG)[0] for part in (slice(4), slice(4, 8))]
    assert sum(parts) == pytest.approx(framework.loss(rows, CFG)[0])
