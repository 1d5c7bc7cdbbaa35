"""Networks of a program are called once before training; what would be learned wrongly, or not exactly, is refused."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import proximo
from proximo.errors import UsageError
from proximo.on_torch.agent import SharedAgent
from proximo.on_torch.distributions import CategoricalHead, GaussianHead, MultiCategoricalHead
from proximo.part_checks import problems_of_head

SMALL = {"env_id": "CartPole-v1", "num_envs": 4, "num_steps": 8, "total_timesteps": 64, "logger": "none"}


def agent_over(trunk, head=None, kind=SharedAgent):
    return lambda spec, cfg: kind(trunk(), nn.Linear(8, 1), head() if head else CategoricalHead(nn.Linear(8, 2), 2))


class InList(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 8), nn.Tanh()]
        self.extra = {"bias": nn.Parameter(torch.zeros(8))}
        self.frozen = [nn.Linear(4, 8).requires_grad_(False)]
        self.listed = nn.ModuleList([nn.Linear(4, 8)])
        self.seen = [self.listed[0]]

    def forward(self, x):
        return self.layers[1](self.layers[0](x)) + self.extra["bias"]


class Drops(nn.Linear):
    def forward(self, x):
        return torch.nn.functional.dropout(super().forward(x), 0.5, self.training)


class Draws(nn.Linear):
    def forward(self, x):
        return super().forward(x) + torch.rand(8)


class Halves(nn.Linear):
    def forward(self, x):
        x /= 2
        return super().forward(x)


def changed_act(change):
    class Agent(SharedAgent):
        def act(self, *given):
            return change(super().act(*given))
    return Agent


class WideValues(SharedAgent):
    def value(self, obs, first, state):
        return super().value(obs, first, state)[:, None]


@pytest.mark.parametrize(("make_agent", "sentence"), [
    (agent_over(InList), r"Layers in trunk\.layers, trunk\.extra are in a list, tuple or dict .* Use nn\.ModuleList"),
    (agent_over(lambda: Drops(4, 8)), "network draws random numbers"),
    (agent_over(lambda: Draws(4, 8)), "network draws random numbers"),
    (agent_over(lambda: Halves(4, 8)), "network changes the observations that it is given"),
    (agent_over(lambda: nn.Linear(5, 8)), r"The network raised RuntimeError: .*mat1 and mat2 .* shape \(8, 4\), as learning"),
    (agent_over(lambda: nn.Linear(4, 8), kind=changed_act(lambda acted: acted._replace(action=acted.action[:1]))),
     r"^The network acts by an array of shape \(1,\) .* shape \(4,\) and dtype int64"),
    (agent_over(lambda: nn.Linear(4, 8), kind=changed_act(lambda acted: acted._replace(action=acted.action[:, None]))),
     r"acts by an array of shape \(4, 1\)"),
    (agent_over(lambda: nn.Linear(4, 8), kind=changed_act(lambda acted: acted._replace(action=acted.action.float()))),
     "dtype torch.float32. Return one action per row"),
    (agent_over(lambda: nn.Linear(4, 8), kind=changed_act(lambda acted: acted._replace(action=[1, 2]))),
     r"acts by \[1, 2\]. Return one action per row, as an array"),
    (agent_over(lambda: nn.Linear(4, 8), kind=changed_act(tuple)), "acts by returning tuple. Return proximo.protocols.Acted"),
    (agent_over(lambda: nn.Linear(4, 8), kind=WideValues), r"computes value of shape \(4, 1\) for a step of shape \(4,\)"),
    (nn.Sequential(nn.Linear(4, 2)), r"^make_agent=torch.nn.modules.container.Sequential\(\.\.\.\) is a network, and a function "
                                     r"that makes one is needed. Pass \(spec, cfg\) -> the network"),
    (nn.Linear, r"^make_agent=Linear is a class, and Linear\(spec, cfg\) raised TypeError: .* Pass \(spec, cfg\) -> "),
    ([nn.Sequential(nn.ReLU())], r"^make_agent=\[Sequential\(\\n  \(0\): ReLU\(\)\\n\)\] is not a function. Pass \(spec"),
    (lambda spec: None, r"make_agent cannot be called with 2 arguments: .* Pass \(spec, cfg\) -> the network"),
])
def test_networks_that_would_be_learned_from_wrongly_are_refused(make_agent, sentence, tmp_path):
    with pytest.raises(UsageError, match=sentence):
        proximo.train("ppo", make_agent=make_agent, run_dir=tmp_path / "run", **SMALL)
    assert not list(Path(tmp_path).glob("run/*"))


def test_the_call_before_training_changes_no_running_statistics():
    """They count the minibatches of one iteration: 4 epochs of 4."""
    def make(spec, cfg):
        trunk = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 8))
        return SharedAgent(trunk, nn.Linear(8, 1), CategoricalHead(nn.Linear(8, 2), 2))

    made = []
    its = proximo.iterations("ppo", make_agent=lambda spec, cfg: made.append(make(spec, cfg)) or made[0], **SMALL)
    next(its)
    assert made[0].trunk[1].num_batches_tracked == 16
    its.close()


def test_batch_statistics_are_warned_of(caplog):
    def make(spec, cfg):
        return SharedAgent(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 8)), nn.Linear(8, 1), CategoricalHead(nn.Linear(8, 2), 2))

    with caplog.at_level("WARNING", "proximo"):
        next(proximo.iterations("ppo", make_agent=make, **SMALL))
    assert "The layers trunk.0 of the network normalise by the statistics of a minibatch" in caplog.text


@pytest.mark.parametrize(("head", "space", "sentence"), [
    (CategoricalHead(nn.Identity(), 5), spaces.Discrete(3), "has num_actions=5, and the actions are Discrete"),
    (CategoricalHead(nn.Identity(), 3), spaces.Box(-1, 1, (3,)), r"has action_shape=\(\), .*\n.*action_dtype=int64, .* floats"),
    (GaussianHead(nn.Identity(), 3), spaces.Discrete(3), r"action_shape=\(3,\), .*\n.*action_dtype=float32, .* whole numbers"),
    (MultiCategoricalHead(nn.Identity(), [4, 3]), spaces.MultiDiscrete([3, 4]), r"has nvec=\[4, 3\]"),
    (nn.Linear(4, 2), spaces.Discrete(2), "lacks action_shape, action_dtype, noise, learning_noise, perturbed of Head"),
])
def test_heads_for_other_actions_are_named(head, space, sentence):
    assert re.search(sentence, "\n".join(problems_of_head(head, space)))


@pytest.mark.parametrize(("head", "space"), [
    (CategoricalHead(nn.Identity(), 3), spaces.Discrete(3, start=1)),
    (GaussianHead(nn.Identity(), 6), spaces.Box(-1, 1, (2, 3))),
    (MultiCategoricalHead(nn.Identity(), [2, 2]), spaces.MultiBinary(2)),
    (MultiCategoricalHead(nn.Identity(), [3, 4]), spaces.MultiDiscrete(np.array([3, 4])))])
def test_heads_that_fit_pass(head, space):
    assert problems_of_head(head, space) == []


def test_a_loss_sees_sequences_where_the_agent_is_recurrent():
    """(T, n), as documented, also in the call that finds the names of its statistics."""
    from proximo.on_torch.loss import ppo_loss

    def loss(batch, cfg):
        steps, environments = batch.value.shape
        seen.add((steps, environments))
        return ppo_loss(batch, cfg)

    seen = set()
    next(proximo.iterations("ppo", recurrent="lstm", loss_fn=loss, **SMALL))
    assert seen == {(8, 1)}


def test_a_loss_with_other_arguments_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"loss_fn cannot be called with 2 arguments: .* Pass \(batch, cfg\)"):
        proximo.train("ppo", loss_fn=lambda batch: None, run_dir=tmp_path / "run", **SMALL)


class CustomMemory(nn.Module):
    """A GRU, and the faults that one can have: where its state is not set to 0, or is not the one that it is given."""

    def __init__(self, fault):
        super().__init__()
        self.cell, self.fault = nn.GRUCell(8, 8), fault

    def initial_state(self, num_envs, device="cpu"):
        return (torch.zeros(num_envs, 8, device=device),)

    def forward(self, x, first, state):
        acts, state = first.ndim == 1, state[0]
        if self.fault == "begins at zero" and not acts:
            state = torch.zeros_like(state)
        outputs = []
        for row, begins in zip(x[None] if acts else x, first[None] if acts else first):
            if self.fault != ("ignores first in a step" if acts else "ignores first in a sequence"):
                state = torch.where(begins[:, None], 0.0, state)
            state = self.cell(row, state)
            outputs.append(state)
        return outputs[0] if acts else torch.stack(outputs), (state,)


@pytest.mark.parametrize("num_envs", [1, 4])
@pytest.mark.parametrize("fault", ["", "begins at zero", "ignores first in a step", "ignores first in a sequence"])
def test_a_recurrent_network_that_learns_from_other_states_than_it_acted_on_is_warned_of(fault, num_envs, caplog):
    def make_agent(spec, cfg):
        return SharedAgent(nn.Linear(4, 8), nn.Linear(8, 1), CategoricalHead(nn.Linear(8, 2), 2), CustomMemory(fault))

    proximo.errors.warn_once.cache_clear()
    next(proximo.iterations("ppo", make_agent=make_agent, **SMALL | {"num_envs": num_envs, "num_minibatches": 1}))
    assert caplog.text.count("The ratio of old and new probabilities is therefore not 1") == bool(fault)
