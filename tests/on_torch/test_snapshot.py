"""What a snapshot restores."""

import numpy as np
import pytest

import proximo
from proximo.on_torch.assemble import assemble

SMALL = {"num_envs": 2, "num_steps": 16, "num_minibatches": 2, "anneal_lr": False, "hidden_sizes": (8,)}


def with_frozen_policy(spec, cfg):
    agent = assemble(spec, cfg)
    agent.head.requires_grad_(False)
    return agent


@pytest.mark.parametrize("desired_kl", [None, 0.01])
def test_weights_that_are_frozen_at_a_resume_stay(desired_kl):
    """The averages of Adam that their earlier gradients have left do not move them; the others learn."""
    begun = {**SMALL, "desired_kl": desired_kl}
    for it in proximo.iterations("ppo", **begun, total_timesteps=64):
        state, before = it.snapshot(), it.weights()
    for it in proximo.iterations("ppo", **begun, total_timesteps=128, state=state, make_agent=with_frozen_policy):
        after = it.weights()
    assert any(name.startswith("head.") for name in after)
    for name, x in after.items():
        assert np.array_equal(x, before[name]) == name.startswith("head."), name
