"""The update against a textbook loop with torch.optim.Adam, clip_grad_norm_ and torch.distributions, and its parts
against their definitions."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.nn.functional import linear
from torch.nn.utils import clip_grad_norm_

from proximo.config import Config
from proximo.types import Batch, Rollout
from tests.support.spec import Spec

T, N, OBS, ACTIONS = 16, 4, 3, 5
CFG = Config(learning_rate=1e-2, num_envs=N, num_steps=T, total_timesteps=10_000, hidden_sizes=(8, 8))
SPEC = Spec((OBS,), np.dtype(np.float32), spaces.Discrete(ACTIONS))


def make_rollout(fillers=0):
    """Draw a rollout with a number of filler rows."""
    rng, flags = np.random.default_rng(5), np.zeros((T, N), bool)
    valid = np.ones(T * N, bool)
    valid[rng.permutation(T * N)[:fillers]] = False
    value, next_value, reward = rng.standard_normal((3, T, N))
    return Rollout(obs=rng.standard_normal((T, N, OBS)), first=flags, mask=None,
                   action=rng.integers(ACTIONS, size=(T, N)), logprob=-rng.random((T, N)) - 1, value=value,
                   next_value=next_value, reward=reward, terminated=flags, done=flags, valid=valid.reshape(T, N))


def make_index(cfg, seed=0):
    """Shuffle the rows once per epoch. Returns (E, M, B)."""
    rng = np.random.default_rng(seed)
    index = np.stack([rng.permutation(T * N) for _ in range(cfg.update_epochs)])
    return index.reshape(cfg.update_epochs, cfg.num_minibatches, -1)


def reference_network(weights, part, obs):
    """Compute two tanh layers and a linear one from weights by name."""
    for i in range(3):
        obs = linear(obs, weights[f"{part}.layers.{i}.weight"], weights[f"{part}.layers.{i}.bias"])
        obs = torch.tanh(obs) if i < 2 else obs
    return obs


def normalize(x):
    return (x - x.mean()) / (x.std(correction=0) + 1e-8)


def adapt_rate(group, approx_kl, desired):
    """The rule of skrl and rsl_rl: a learning rate that keeps approx_kl near the desired one, within 1e-6 and 1e-2."""
    if approx_kl > 2 * desired:
        group["lr"] = max(group["lr"] / 1.5, 1e-6)
    elif approx_kl < desired / 2:
        group["lr"] = min(group["lr"] * 1.5, 1e-2)


def reference_update(weights, rollout, advantage, ret, index, cfg):
    """Run the textbook loop over the same minibatches, on the valid rows only.

    Returns:
        The weights by name, and approx_kl of each minibatch, NaN where one has no valid row: nothing is learned from it.
    """
    weights = {name: torch.nn.Parameter(torch.tensor(x)) for name, x in weights.items()}
    optimizer, kls = torch.optim.Adam(weights.values(), lr=1e-2, eps=cfg.adam_eps), []
    rows = {name: torch.from_numpy(x).flatten(0, 1) for name, x in rollout._asdict().items() if x is not None}
    advantage, ret, clip = torch.from_numpy(advantage).flatten(), torch.from_numpy(ret).flatten(), cfg.clip_coef
    if cfg.norm_adv == "batch":
        advantage = torch.where(rows["valid"], advantage, 0.0).masked_scatter(
            rows["valid"], normalize(advantage[rows["valid"]]))
    for i in torch.from_numpy(index).flatten(0, 1):
        epoch_kl = np.nanmean(kls[-cfg.num_minibatches:]) if kls and len(kls) % cfg.num_minibatches == 0 else None
        if cfg.target_kl and epoch_kl is not None and epoch_kl > cfg.target_kl:
            break
        if cfg.desired_kl and epoch_kl is not None:
            adapt_rate(optimizer.param_groups[0], epoch_kl, cfg.desired_kl)
        i = i[rows["valid"][i]]
        if not len(i):
            kls.append(np.nan)
            continue
        dist = torch.distributions.Categorical(logits=reference_network(weights, "head.network", rows["obs"][i]))
        value = reference_network(weights, "critic.network" if cfg.norm_value else "critic", rows["obs"][i]).squeeze(-1)
        logratio = dist.log_prob(rows["action"][i]) - rows["logprob"][i]
        adv = normalize(advantage[i]) if cfg.norm_adv == "minibatch" else advantage[i]
        ratio = logratio.exp()
        policy = torch.max(-adv * ratio, -adv * ratio.clamp(1 - clip, 1 + clip)).mean()
        old, target = rows["value"][i], ret[i]
        if cfg.norm_value:
            mean, std = weights["critic.return_mean"].detach(), weights["critic.return_var"].detach().sqrt()
            old, target = (old - mean) / std, (target - mean) / std
        error = (value - target) ** 2
        if cfg.clip_vloss:
            error = torch.max(error, (old + (value - old).clamp(-clip, clip) - target) ** 2)
        loss = policy + cfg.vf_coef * 0.5 * error.mean() - cfg.ent_coef * dist.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(weights.values(), cfg.max_grad_norm)
        optimizer.step()
        kls.append(float((ratio - 1 - logratio).mean().detach()))
    return {name: p.detach().numpy() for name, p in weights.items()}, kls


@pytest.mark.parametrize("change", [
    {}, {"norm_adv": "batch", "clip_vloss": False, "ent_coef": 0.5},
    {"norm_adv": "none", "max_grad_norm": 1e9, "adam_eps": 1e-2}, {"desired_kl": 1e-3}, {"desired_kl": 0.5},
    {"norm_value": True}, {"norm_value": True, "clip_vloss": False, "target_kl": 0.064}])
def test_update_equals_the_textbook_loop(framework, change):
    """Details 6 and 7 among others, without filler rows and with them. What filler rows hold must not matter.

    With 59 of 64, some minibatches have no valid row. With target_kl and no filler rows, three epochs of four run.
    """
    cfg = replace(CFG, **change)
    for fillers in (0, 9, 59):
        agent, rollout, index = framework.make_agent(SPEC, cfg, factor=30), make_rollout(fillers), make_index(cfg)
        if cfg.norm_value:
            framework.count_returns(agent, np.array([[-7.0, 5.0]]), np.ones((1, 2), bool))
        before = framework.weights(agent)
        advantage = np.random.default_rng(2).standard_normal((T, N)) * 3 + 1
        advantage = np.where(rollout.valid, advantage, 1e6)
        ret = np.where(rollout.valid, rollout.value + advantage, -1e6)
        weights, stats, minibatches, ok = framework.update(agent, rollout, advantage, ret, index, 1e-2, cfg)
        expected, kls = reference_update(before, rollout, advantage, ret, index, cfg)
        empty = np.isnan(kls).reshape(-1, cfg.num_minibatches)
        assert ok and minibatches == empty.size - empty.sum() and empty.any() == (fillers == 59)
        means = [np.nanmean(epoch) for epoch in np.reshape(kls, empty.shape)]
        assert stats["approx_kl"] == pytest.approx(np.mean(means), abs=1e-5)
        for name, x in expected.items():
            np.testing.assert_allclose(weights[name], x, atol=2e-6, rtol=2e-5, err_msg=name)
            assert "return_" in name or (np.abs(x - before[name]) > 1e-3).any()


def run_update(framework, cfg, ret=None, fillers=0):
    """Run one update with drawn advantages. Returns the weights before it and what Adapter.update returns."""
    agent, advantage = framework.make_agent(SPEC, cfg), np.random.default_rng(3).standard_normal((T, N))
    before = framework.weights(agent)
    ret = advantage if ret is None else ret
    return before, *framework.update(agent, make_rollout(fillers), advantage, ret, make_index(cfg), 1e-2, cfg)


def test_target_kl_stops_before_the_next_epoch(framework):
    """Detail A3: the first epoch runs, the second does not."""
    _, _, _, minibatches, _ = run_update(framework, replace(CFG, target_kl=1e-9))
    assert minibatches == CFG.num_minibatches


@pytest.mark.parametrize(("scale", "approx_kl", "expected"), [
    (1.0, 0.0201, 1 / 1.5), (1.0, 0.0199, 1.0), (1.0, 0.0051, 1.0), (1.0, 0.0049, 1.5), (1.0, math.nan, 1.0),
    (80.0, 0.0, 100.0), (0.011, 1.0, 0.01)])
def test_the_learning_rate_follows_approx_kl_within_its_limits(framework, scale, approx_kl, expected):
    """Against the rule of skrl and rsl_rl, with a learning rate of 1e-4 and a desired approx_kl of 0.01."""
    cfg = Config(learning_rate=1e-4, desired_kl=0.01)
    scale, approx_kl = framework.to_array((np.float32(scale), np.float32(approx_kl)))
    assert float(cfg.adapted_scale(scale, approx_kl)) == pytest.approx(expected)
    assert cfg.adapted_scale(scale, approx_kl) is not scale and Config().adapted_scale(scale, approx_kl) is scale


def test_a_gradient_that_is_not_finite_changes_nothing(framework):
    """Rows without a finite return in every minibatch."""
    ret = np.where(np.arange(N) == 2, np.nan, np.zeros((T, N)))
    before, weights, _, minibatches, ok = run_update(framework, CFG, ret)
    assert not ok and minibatches == 0
    assert all(np.array_equal(weights[name], x) for name, x in before.items())


def test_nothing_is_learned_without_a_valid_row(framework):
    """Also with an adaptive learning rate. The means are those of no minibatch."""
    before, weights, stats, minibatches, ok = run_update(framework, replace(CFG, desired_kl=0.1), np.full((T, N), 1e6),
                                                         fillers=T * N)
    assert ok and minibatches == 0 and all(math.isnan(value) for value in stats.values())
    assert all(np.array_equal(weights[name], x) for name, x in before.items())


@pytest.mark.parametrize("norm_adv", ["minibatch", "batch", "none"])
@pytest.mark.parametrize("recurrent", [False, True])
def test_advantages_are_normalised_over_valid_rows(framework, norm_adv, recurrent):
    """Detail 7, against mean and deviation (ddof 0) of the valid rows of each minibatch, or of the batch."""
    cfg, rng = replace(CFG, norm_adv=norm_adv, num_minibatches=2), np.random.default_rng(4)
    valid, advantage = make_rollout(20).valid, 3 * rng.standard_normal((T, N)) + 1
    rows = N if recurrent else T * N
    index = np.stack([rng.permutation(rows) for _ in range(cfg.update_epochs)]).reshape(cfg.update_epochs, 2, -1)
    found, count = framework.minibatch_advantages(np.where(valid, advantage, 1e6), valid, index, recurrent, cfg)
    for e, m in np.ndindex(cfg.update_epochs, 2):
        adv, ok = ((x[:, index[e, m]] if recurrent else x.flatten()[index[e, m]]) for x in (advantage, valid))
        of = {"minibatch": adv[ok], "batch": advantage[valid], "none": np.array([-1.0, 1.0])}[norm_adv]
        np.testing.assert_allclose(found[e, m][ok], (adv[ok] - of.mean()) / of.std(), rtol=1e-5, atol=1e-6)
        assert count[e, m] == ok.sum()


def test_minibatches_of_a_recurrent_agent_are_whole_environments(framework):
    """Detail 35: a minibatch holds all steps of some environments, with the state that each began with."""
    cell = np.arange(T)[:, None] * 100 + np.arange(N)  # (T, N)

    def make_batch(x, first, state):
        return Batch(obs=x, mask=None, first=first, state=state, action=x, logprob=x, value=x, ret=x, valid=x)

    part = framework.select_minibatch(make_batch(cell, cell, (np.arange(N)[:, None],)), np.array([2, 0]), True)
    assert np.array_equal(part.obs, cell[:, [2, 0]]) and np.array_equal(part.first, cell[:, [2, 0]])
    assert part.state[0].flatten().tolist() == [2, 0] and part.mask is None
    rows = framework.select_minibatch(make_batch(cell.flatten(), None, ()), np.array([5, 1]), False)
    assert rows.action.tolist() == [101, 1]


def test_explained_variance_is_that_of_the_valid_rows(framework):
    """Detail 12; NaN where all returns are equal, and where there is one or none."""
    rng, valid = np.random.default_rng(6), make_rollout(20).valid
    value, ret = rng.standard_normal((2, T, N))
    expected = 1 - (ret - value)[valid].var() / ret[valid].var()
    assert float(framework.explained_variance(value, np.where(valid, ret, 1e5), valid)) == pytest.approx(expected)
    assert np.isnan(framework.explained_variance(value, np.ones((T, N)), valid))
    for few in (1, 0):
        assert np.isnan(framework.explained_variance(value, ret, np.arange(T * N).reshape(T, N) < few))


@pytest.mark.parametrize("rows", [2, 1000, 1536, 100_000])
def test_explained_variance_of_equal_returns_is_nan_in_float32(framework, rows):
    """The mean of equal numbers is rounded: it may differ from them. Returns that differ little are told from them."""
    value, valid = np.linspace(0, 1, rows, dtype=np.float32)[:, None], np.ones((rows, 1), bool)
    with framework.float32():
        for number in np.random.default_rng(0).uniform(-50, 50, 30).astype(np.float32):
            equal = np.full((rows, 1), number)
            assert np.isnan(framework.explained_variance(value, equal, valid)), number
            assert np.isfinite(framework.explained_variance(value, equal + 1e-4 * number * value, valid)), number
