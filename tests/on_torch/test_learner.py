"""The update against a slow one written with torch.optim.Adam, clip_grad_norm_ and torch.distributions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from proximo.on_torch.optimizer import flat_adam
from torch.nn.utils import clip_grad_norm_

from proximo.config import Config
from proximo.on_torch.agent import SeparateAgent
from proximo.on_torch.distributed import average
from proximo.on_torch.distributions import CategoricalHead
from proximo.on_torch.learner import draw, explained_variance, flat_batch, make_learner, normalized_advantage, update
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.networks import mlp
from proximo.on_torch.rollout import Rollout
from proximo.processes import ALONE

T, N, OBS, ACTIONS = 16, 4, 3, 5
CFG = Config(num_envs=N, num_steps=T, total_timesteps=10_000)


def make_agent():
    torch.manual_seed(3)
    return SeparateAgent(mlp([OBS, 8, 1], 1.0), CategoricalHead(mlp([OBS, 8, ACTIONS], 0.5), ACTIONS))


def make_rollout(valid=None):
    torch.manual_seed(5)
    flags = torch.zeros(T, N, dtype=torch.bool)
    return Rollout(torch.randn(T, N, OBS), flags, None, torch.randint(ACTIONS, (T, N)), -torch.rand(T, N) - 1,
                   torch.randn(T, N), torch.randn(T, N), torch.randn(T, N), flags, flags,
                   torch.ones(T, N, dtype=torch.bool) if valid is None else valid)


def learned(cfg, rollout, advantage, ret):
    agent = make_agent()
    adam = flat_adam(agent)
    learner = make_learner(agent, adam, ppo_loss, cfg)
    draws = draw(cfg, agent, (T, N), np.random.default_rng(0), torch.Generator(), torch.device("cpu"))
    normalized, count = normalized_advantage(advantage, rollout.valid, draws.minibatch, False, cfg, average(ALONE))
    stats = update(learner, flat_batch(rollout, ret, (), False), normalized, count, draws, 1e-2, cfg.clip_coef, cfg,
                   average(ALONE))
    return agent, adam, stats, draws


def reference(cfg, rollout, advantage, ret, draws):
    """The textbook loop over the same minibatches, in float64, on the valid rows only."""
    agent = make_agent().double()
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-2, eps=cfg.adam_eps)
    flat = {name: x.flatten(0, 1) for name, x in rollout._asdict().items() if x is not None}
    advantage, ret, kls = advantage.flatten().double(), ret.flatten().double(), []
    if cfg.norm_adv == "batch":
        kept = advantage[flat["valid"]]
        advantage = (advantage - kept.mean()) / (kept.std(correction=0) + 1e-8)
    for epoch in draws.minibatch:
        for index in epoch:
            index = index[flat["valid"][index]]
            dist = torch.distributions.Categorical(logits=agent.head.network(flat["obs"][index].double()))
            value = agent.critic(flat["obs"][index].double()).squeeze(-1)
            logratio = dist.log_prob(flat["action"][index]) - flat["logprob"][index].double()
            adv = advantage[index]
            if cfg.norm_adv == "minibatch":
                adv = (adv - adv.mean()) / (adv.std(correction=0) + 1e-8)
            ratio = logratio.exp()
            policy = torch.max(-adv * ratio, -adv * ratio.clamp(1 - cfg.clip_coef, 1 + cfg.clip_coef)).mean()
            error, old = (value - ret[index]) ** 2, flat["value"][index].double()
            if cfg.clip_vloss:
                moved = old + (value - old).clamp(-cfg.clip_coef, cfg.clip_coef)
                error = torch.max(error, (moved - ret[index]) ** 2)
            loss = policy + cfg.vf_coef * 0.5 * error.mean() - cfg.ent_coef * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            clip_grad_norm_(agent.parameters(), cfg.max_grad_norm)
            optimizer.step()
            kls.append(float((ratio - 1 - logratio).mean()))
    return agent, kls


@pytest.mark.parametrize("change", [{}, {"norm_adv": "batch"}, {"norm_adv": "none"}, {"clip_vloss": False},
                                    {"max_grad_norm": 1e9}, {"ent_coef": 0.5}, {"adam_eps": 1e-2}])
@pytest.mark.parametrize("fillers", [0, 9])
def test_update_equals_the_textbook_loop(change, fillers):
    cfg = replace(CFG, **change)
    valid = torch.ones(T, N, dtype=torch.bool)
    valid.view(-1)[torch.randperm(T * N, generator=torch.Generator().manual_seed(1))[:fillers]] = False
    rollout = make_rollout(valid)
    advantage = torch.randn(T, N, generator=torch.Generator().manual_seed(2)) * 3 + 1
    advantage = torch.where(valid, advantage, 1e6)  # what a filler row holds must not matter
    ret = torch.where(valid, rollout.value + advantage, -1e6)
    agent, adam, stats, draws = learned(cfg, rollout, advantage, ret)
    expected, kls = reference(cfg, rollout, advantage, ret, draws)
    for ours, theirs in zip(agent.parameters(), expected.parameters()):
        torch.testing.assert_close(ours.double(), theirs, atol=2e-5, rtol=2e-4)
    assert stats["approx_kl"] == pytest.approx(np.mean(kls), abs=1e-5)
    assert float(adam.step) == cfg.update_epochs * cfg.num_minibatches


def test_target_kl_stops_before_the_next_epoch():
    rollout, advantage = make_rollout(), torch.randn(T, N)
    _, adam, _, _ = learned(replace(CFG, target_kl=1e-9), rollout, advantage, advantage)
    assert float(adam.step) == CFG.num_minibatches


def test_a_gradient_that_is_not_finite_moves_nothing():
    rollout, advantage = make_rollout(), torch.randn(T, N)
    ret = advantage.clone()
    ret[3, 2] = float("nan")
    agent, adam, _, _ = learned(replace(CFG, update_epochs=1, num_minibatches=1), rollout, advantage, ret)
    assert not bool(adam.ok)
    for ours, before in zip(agent.parameters(), make_agent().parameters()):
        assert torch.equal(ours, before)


def test_no_valid_row_gives_a_zero_loss():
    rollout = make_rollout(torch.zeros(T, N, dtype=torch.bool))
    _, adam, stats, _ = learned(CFG, rollout, torch.full((T, N), 1e6), torch.full((T, N), 1e6))
    assert bool(adam.ok) and all(value == 0 for value in stats.values())


def test_explained_variance_is_that_of_the_valid_rows():
    value, ret = torch.randn(T, N), torch.randn(T, N)
    valid = torch.rand(T, N) > 0.3
    a, b = value[valid].double(), ret[valid].double()
    expected = float(1 - (b - a).var(correction=0) / b.var(correction=0))
    assert explained_variance(value, torch.where(valid, ret, 1e5), valid, average(ALONE)) == pytest.approx(expected)
