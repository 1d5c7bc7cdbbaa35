"""The whole algorithm on probe environments, each of which can be learned only if one property of it holds."""

import numpy as np
import pytest
import torch

from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.on_torch.assemble import assemble
from proximo.on_torch.train import train

FIELDS = {"num_envs": 8, "num_steps": 32, "num_minibatches": 4, "learning_rate": 1e-2, "hidden_sizes": (16, 16),
          "anneal_lr": False, "vf_coef": 1.0, "clip_vloss": False}


def train_on(name, iterations, **fields):
    """Train on a probe. Returns the agent and the mean return of the last iteration's episodes."""
    cfg = Config(env_id=f"tests.support.probes:{name}-v0", **(FIELDS | fields))
    cfg = Config(**{**cfg.__dict__, "total_timesteps": iterations * cfg.batch_size})
    agents = []

    def make_agent(spec, cfg):
        agents.append(assemble(spec, cfg))
        return agents[0]

    *_, last = train(cfg, make_gym, make_agent)
    return agents[0], float(np.mean(last.finished.ret)) if len(last.finished.ret) else float("nan")


@torch.no_grad()
def value(agent, *obs):
    rows = torch.tensor(obs, dtype=torch.float32)
    return agent.value(rows, torch.zeros(len(rows), dtype=torch.bool), ()).tolist()


@pytest.mark.parametrize("norm_value", [False, True])
def test_constant_reward(norm_value):
    """The value network learns: V = 1. With norm_value, the variance of the returns becomes 0."""
    agent, _ = train_on("Constant", 15, norm_value=norm_value)
    assert value(agent, [0, 0]) == pytest.approx([1.0], abs=0.05)


def test_reward_that_depends_on_the_observation():
    """Gradients reach the first layer, and observations stay with their returns when rows are shuffled: V is the cue."""
    agent, _ = train_on("Observed", 25)
    assert value(agent, [1, 0], [-1, 0]) == pytest.approx([1.0, -1.0], abs=0.1)


def test_delayed_reward():
    """Rewards are discounted, and none is counted before the end of an episode that it followed: V = gamma, then 1."""
    agent, _ = train_on("Delayed", 25, gamma=0.5)
    assert value(agent, [0, 0], [0, 1]) == pytest.approx([0.5, 1.0], abs=0.08)


@pytest.mark.parametrize("fields", [{}, {"shared_network": True}, {"norm_adv": "batch"}, {"autoreset": "next-step"},
                                    {"norm_obs": True, "norm_reward": True}, {"gae_lambda": 1.0}, {"anneal_lr": True},
                                    {"norm_value": True}])
def test_action_that_depends_on_the_observation(fields):
    """The policy learns, with every option of learning: the mean return rises from 0 to 1."""
    assert train_on("Acting", 15, **fields)[1] > 0.9


@pytest.mark.parametrize("fields", [{}, {"norm_obs": True}, pytest.param({"recurrent": "gru", "memory_size": 16},
                                                                        marks=pytest.mark.long)])
def test_two_actions_that_depend_on_an_image(fields):
    """The policy learns both parts of the action from a part of the observation: the mean return rises from 0 to 1."""
    assert train_on("Looking", 25, learning_rate=3e-3, **fields)[1] > 0.7


def test_time_limit_is_worth_what_would_have_followed():
    """Reward 1 at every step, truncated after 5 steps: V = 1 / (1 - gamma) = 5. Most implementations learn less than 4
    here."""
    agent, _ = train_on("Truncated", 40, gamma=0.8)
    assert value(agent, [0, 0]) == pytest.approx([5.0], rel=0.08)


def test_time_limit_treated_as_a_termination():
    """--no-bootstrap-truncated, as in the papers: V is the mean over 5 steps of what is left, 2.26 at gamma 0.8."""
    agent, _ = train_on("Truncated", 25, gamma=0.8, bootstrap_truncated=False)
    expected = np.mean([sum(0.8**i for i in range(left)) for left in range(1, 6)])
    assert value(agent, [0, 0]) == pytest.approx([expected], rel=0.15)


@pytest.mark.parametrize("recurrent", ["lstm", "gru"])
def test_cue_that_must_be_remembered(recurrent):
    """The cue is shown at the first of four steps and needed at the last: a recurrent agent gets 1, any other policy at
    most 0 on average."""
    fields = {"num_envs": 16, "memory_size": 16, "num_minibatches": 2}
    assert train_on("Memory", 30, recurrent=recurrent, **fields)[1] > 0.9
    assert train_on("Memory", 8, **fields)[1] < 0.7


@pytest.mark.parametrize("name", ["Masked", "DictMasked"])
def test_forbidden_actions_are_never_taken(name):
    """The probe raises an error when one is taken. Every episode returns 4, with and without a recurrent layer."""
    for fields in ({}, {"recurrent": "lstm", "memory_size": 8}):
        assert train_on(name, 4, **fields)[1] == 4.0


@pytest.mark.parametrize("fields", [{}, {"distribution": "squashed"}, {"distribution": "beta"}, {"distribution": "gsde"},
                                    {"state_dependent_std": True}])
def test_an_action_on_the_bound_is_learned(fields):
    """The best action is the upper or the lower bound, which no distribution saturates before it is reached."""
    agent, mean_return = train_on("Bound", 45, **fields)
    obs = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    with torch.no_grad():
        mode = agent(obs, None, torch.zeros(2, dtype=torch.bool), ())[0].mode().clamp(1, 3).flatten().tolist()
    assert mode == pytest.approx([3.0, 1.0], abs=0.15) and mean_return > 0.85
