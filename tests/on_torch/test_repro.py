"""The update that is computed again after a failure, against the one of the same iteration."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from proximo.config import Config
from proximo.on_torch import repro
from proximo.on_torch.assemble import assemble
from proximo.types import Rollout
from tests.support.spec import Spec


@pytest.mark.parametrize("iteration", [1, 6])
def test_epsilon_is_that_of_the_iteration(iteration, monkeypatch):
    """With --anneal-clip: what the loss function gets."""
    cfg, given = Config(anneal_clip="linear", num_envs=1, num_steps=4, total_timesteps=40, num_minibatches=1), []
    loss = repro.ppo_loss
    monkeypatch.setattr(repro, "ppo_loss", lambda inputs, cfg: given.append(float(inputs.clip_coef)) or loss(inputs, cfg))
    agent = assemble(Spec((3,), np.dtype(np.float32), spaces.Discrete(2)), cfg)
    number, flag = torch.ones(4, 1), torch.zeros(4, 1, dtype=torch.bool)
    rollout = Rollout(obs=torch.ones(4, 1, 3), first=flag, mask=None, action=flag.long(), logprob=-number, value=number,
                      next_value=number, reward=number, terminated=flag, done=flag, valid=~flag)
    names = [name for name, _, _ in repro.quantities(agent, rollout, (), iteration, cfg)]
    assert "loss" in names and given == pytest.approx([cfg.clip_coef_at(iteration)])


def test_rows_that_are_not_valid_are_not_looked_at():
    """A filler row with other numbers: neither a fault nor part of the ranges."""
    cfg = Config(num_envs=1, num_steps=4, total_timesteps=40, num_minibatches=1)
    agent = assemble(Spec((3,), np.dtype(np.float32), spaces.Discrete(2)), cfg)
    number, flag = torch.ones(4, 1), torch.zeros(4, 1, dtype=torch.bool)
    filler = torch.tensor([[False], [True], [False], [False]])
    wild = torch.where(filler, torch.nan, number)
    rollout = Rollout(obs=torch.ones(4, 1, 3), first=flag, mask=None, action=flag.long(), logprob=-number, value=wild,
                      next_value=wild, reward=wild, terminated=flag, done=flag, valid=~filler)
    agent.critic.requires_grad_(False)  # frozen weights have no gradient
    found = repro.evidence(agent, None, rollout, (), 1)
    lines = list(repro.explain(agent, found, cfg))
    assert all(ok for ok, _ in lines) and lines[-1][1].startswith("gradient")
    text = "\n".join(line for _, line in lines)
    assert "gradient: head" in text and "gradient: critic" not in text
    assert "rollout: reward (4, 1): 1 to 1" in text and "rollout: logprob (4, 1): -1 to -1" in text
    assert "network: log-probability (4,): -0.6" in text and "to 0\n" not in text.split("weights")[0]
