"""The learner's parts that only torch has; tests/frameworks/test_learner.py and test_adam.py test what JAX has too."""

import numpy as np
import pytest
import torch
from torch import nn

from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.errors import UsageError
from proximo.on_torch.agent import SeparateAgent
from proximo.on_torch.distributions import CategoricalHead, Gaussian, GaussianHead
from proximo.on_torch.learner import flat_adam, make_batch, make_gradient, minibatch_indices, split_minibatches
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.mlp import MLP
from proximo.on_torch.train import train
from proximo.types import Coefficients, Minibatches, Rollout


def make_agent():
    torch.manual_seed(0)
    return SeparateAgent(MLP([3, 8, 1], 1.0), CategoricalHead(MLP([3, 8, 5], 0.5), 5))


def test_parameters_are_views_of_one_vector():
    """Names, shapes and values stay, in the order of parameters()."""
    agent = make_agent()
    before = [p.clone() for p in agent.parameters()]
    adam = flat_adam(agent)
    assert torch.equal(adam.weights, torch.cat([p.flatten() for p in before]))
    assert all(torch.equal(p, q) for p, q in zip(agent.parameters(), before, strict=True))
    adam.weights.fill_(3.0)
    assert all((p == 3).all() for p in agent.parameters())


def test_a_parameter_that_the_loss_does_not_reach_has_a_zero_gradient():
    """An extra parameter, at the end of the vector; every other one has a gradient."""
    agent, x, no = make_agent(), torch.randn(4, 2), torch.zeros(4, 2, dtype=torch.bool)
    agent.extra = nn.Parameter(torch.ones(7))
    rollout = Rollout(obs=torch.randn(4, 2, 3), first=no, mask=None, action=torch.zeros(4, 2).long(), logprob=x,
                      value=x, next_value=x, reward=x, terminated=no, done=no, valid=~no)
    gradient, _ = make_gradient(agent, ppo_loss, Config())(
        make_batch(rollout, x, (), False),
        Minibatches(index=torch.arange(8), advantage=x.flatten(), count=torch.tensor(8.0), noise=None),
        Coefficients(torch.tensor(10.0), torch.tensor(0.01)))
    parts = dict(zip(dict(agent.named_parameters()), gradient.split([p.numel() for p in agent.parameters()])))
    assert (parts.pop("extra") == 0).all() and all((part != 0).any() for part in parts.values())


@pytest.mark.parametrize("noise", [None, torch.randn(2, 3, 4, 5)])
def test_minibatches_are_those_of_their_epoch_and_place(noise):
    """Two epochs of three minibatches of four rows, one epoch after the other."""
    every = Minibatches(index=torch.randperm(24).view(2, 3, 4), advantage=torch.randn(2, 3, 4), count=torch.rand(2, 3), noise=noise)
    each = split_minibatches(every)
    assert len(each) == 6
    for e in range(2):
        for m in range(3):
            for found, wanted in zip(each[3 * e + m], every, strict=True):
                assert found is wanted if wanted is None else torch.equal(found, wanted[e, m])


def test_every_epoch_covers_all_rows_in_a_new_order():
    """Detail 6: rows of the batch, or whole environments for a recurrent agent."""
    cfg = Config(num_envs=4, num_steps=16, num_minibatches=4, update_epochs=3)
    for recurrent, rows in ((False, 64), (True, 4)):
        index = minibatch_indices(cfg, (16, 4), recurrent, np.random.default_rng(0))
        assert index.shape == (3, 4, rows // 4)
        assert np.array_equal(np.sort(index.flatten(1)), np.tile(np.arange(rows), (3, 1)))
        assert len(np.unique(index.flatten(1), axis=0)) > 1


@pytest.mark.parametrize(("right_in_rollouts", "words"), [
    (False, r"\(8, 1, 1\) for a rollout of shape \(8, 1\)"), (True, r"\(4, 1\) for rows of shape \(4,\)")])
def test_one_number_per_row_or_a_refusal(right_in_rollouts, words):
    """Log-probabilities of shape (B, 1), of a head that does not add its components, would broadcast to (B, B)."""
    class Apart(Gaussian):
        def logprob(self, action):
            return torch.distributions.Normal(self.mean, self.logstd.exp()).log_prob(action)

    class Head(GaussianHead):
        def forward(self, features, mask=None):
            return Apart(*super().forward(features, mask))

    def make(spec, cfg):
        agent = SeparateAgent(nn.Linear(3, 1), Head(nn.Linear(3, 1), 1))
        if right_in_rollouts:
            agent.evaluate = lambda obs, mask, action: (torch.zeros(8, 1), torch.zeros(9, 1))
        return agent

    cfg = Config(env_id="Pendulum-v1", num_envs=1, num_steps=8, num_minibatches=2, total_timesteps=8)
    with pytest.raises(UsageError, match=f"logprob of shape {words}. Return one number per"):
        next(train(cfg, make_gym, make))
