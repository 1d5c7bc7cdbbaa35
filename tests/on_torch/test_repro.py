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
    names = [name for name, _ in repro.quantities(agent, rollout, (), iteration, cfg)]
    assert "loss" in names and given == pytest.approx([cfg.clip_coef_at(iteration)])
