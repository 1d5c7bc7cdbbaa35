"""A trained agent that acts: what it computes, against a call of its whole network."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from proximo.catalog import parts_of
from proximo.on_torch.agent import SeparateAgent
from tests.support.models import random_model

OBS = spaces.Box(-1, 1, (4,), np.float32)


class Squared(SeparateAgent):
    """Acts by the square of the observation."""

    def forward(self, obs, mask, first, state):
        return super().forward(obs.square(), mask, first, state)


def squared(spec, cfg):
    made = parts_of("ppo", "torch").make_agent(spec, cfg)
    return Squared(made.critic, made.head)


def seen_by_critic(model):
    """Return a list that grows with every call of the value function."""
    seen = []
    model.module.critic.register_forward_hook(lambda *given: seen.append(1))
    return seen


@pytest.mark.parametrize("fields", [{}, {"recurrent": "lstm"}, {"shared_network": True}])
def test_acting_computes_no_value(fields):
    model = random_model(spaces.Discrete(3), OBS, **fields)
    seen, agent = seen_by_critic(model), model.module
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    chosen = model.act(obs, deterministic=True)
    model.act(obs)
    assert not seen
    with torch.no_grad():
        dist, value, _ = agent(torch.from_numpy(obs), None, torch.ones(50, dtype=torch.bool), agent.initial_state(50))
    model.reset()
    assert len(seen) == 1 and np.array_equal(dist.mode(), chosen) and np.array_equal(value, model.value(obs))


def test_a_network_with_its_own_forward_acts_by_it():
    model = random_model(spaces.Discrete(3), OBS, make_agent=squared)
    seen, usual = seen_by_critic(model), model.module.head
    obs = np.random.default_rng(0).uniform(-2, 2, size=(200, 4)).astype(np.float32)
    with torch.no_grad():
        expected, other = (usual(torch.from_numpy(x), None).mode().numpy() for x in (obs**2, obs))
    assert np.array_equal(model.act(obs, deterministic=True), expected) and not np.array_equal(expected, other)
    assert len(seen) == 1
