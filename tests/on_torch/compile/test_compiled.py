"""The functions that --compile compiles, traced but not compiled, against the plain ones."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from proximo.config import Config
from proximo.on_torch.agent import SeparateAgent, SharedAgent
from proximo.on_torch.assemble import assemble, make_head
from proximo.on_torch.compile.aot import as_rows, functional
from proximo.on_torch.compile.aot_cache import describe_layout
from proximo.on_torch.compile.compiled import (
    Compiler,
    compile_act,
    compile_collect,
    compile_evaluation,
    pack_minibatch,
    unpack_gradient,
)
from proximo.on_torch.learner import apply_gradient, flat_adam, make_gradient
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.rollout import collect, make_policy
from proximo.types import Batch, Carry, Coefficients, Minibatches
from proximo.variants import RPO

ROWS = 12
COEFFICIENTS = Coefficients(torch.tensor(0.2), torch.tensor(0.01))


def make_case(masked, noisy):
    """Make a configuration, an agent, a batch of random rows and one minibatch of half of them."""
    torch.manual_seed(0)
    cfg = RPO(rpo_alpha=0.5) if noisy else Config()
    space = spaces.Box(-1, 1, (2,)) if noisy else spaces.Discrete(3)
    agent = assemble(SimpleNamespace(obs_shape=(4,), obs_dtype=np.dtype(np.float32), action_space=space,
                                     observation_space=None), cfg)
    action = torch.randn(ROWS, 2) if noisy else torch.randint(2, (ROWS,))
    mask = torch.tensor([[True, True, False]]).expand(ROWS, 3).contiguous() if masked else None
    batch = Batch(obs=torch.randn(ROWS, 4), mask=mask, first=None, state=(), action=action, logprob=-torch.rand(ROWS),
                  value=torch.randn(ROWS), ret=torch.randn(ROWS), valid=torch.rand(ROWS) > 0.2)
    size = ROWS // 2
    noise = torch.rand(size, 2) if noisy else None
    return cfg, agent, batch, Minibatches(index=torch.randperm(ROWS)[:size], advantage=torch.randn(size),
                                          count=torch.tensor(5.0), noise=noise)


@pytest.mark.parametrize(("masked", "noisy"), [(False, False), (True, False), (False, True)])
def test_the_gradient_as_a_function_of_weights_is_the_plain_one(masked, noisy):
    """Bit for bit, and not zero: the parameters that the loss depends on are those that are given."""
    cfg, agent, batch, minibatch = make_case(masked, noisy)
    adam = flat_adam(agent)
    gradient = make_gradient(agent, ppo_loss, cfg)
    expected, stats = gradient(batch, minibatch, COEFFICIENTS)
    weights = adam.weights.clone()
    adam.weights.zero_()  # only the weights that are passed may count
    found, others = functional(agent, unpack_gradient(gradient, batch, minibatch))(
        weights, *pack_minibatch(batch, minibatch, COEFFICIENTS))
    assert torch.equal(found, expected) and torch.equal(others, stats) and float(found.abs().max()) > 0


def test_frozen_parameters_have_a_zero_gradient_and_stay():
    """requires_grad = False on the critic: the plain function and the one of weights, before and after a step of Adam."""
    cfg, agent, batch, minibatch = make_case(masked=False, noisy=False)
    gradient = make_gradient(agent, ppo_loss, cfg)
    free, _ = gradient(batch, minibatch, COEFFICIENTS)
    agent.critic.requires_grad_(False)
    frozen = torch.cat([torch.full((p.numel(),), not p.requires_grad) for p in agent.parameters()])
    expected = torch.where(frozen, 0.0, free)
    adam, found = flat_adam(agent), gradient(batch, minibatch, COEFFICIENTS)[0]
    functional_found, _ = functional(agent, unpack_gradient(gradient, batch, minibatch))(
        adam.weights.clone(), *pack_minibatch(batch, minibatch, COEFFICIENTS))
    assert torch.equal(found, expected) and torch.equal(functional_found, expected) and (free[frozen] != 0).any()
    before = adam.weights.clone()
    apply_gradient(adam, found, torch.tensor(0.1), cfg.adam_eps, cfg.max_grad_norm)
    assert torch.equal(adam.weights[frozen], before[frozen]) and not torch.equal(adam.weights, before)


def test_acting_is_compiled_for_the_strides_of_a_rollout():
    """The first observation of a single environment may be x[None], whose first stride is 0, and so may its mask."""
    layouts = []
    compiler = Compiler(lambda function, example, name: layouts.append(list(map(describe_layout, example))),
                        unsupported_reason=lambda: None, compiles_evaluation=False, compiles_recurrent=True)
    _, agent, _, _ = make_case(masked=True, noisy=False)
    weights = flat_adam(agent).weights
    for stride in (1, 0):
        carry = Carry(obs=torch.zeros(4).as_strided((1, 4), (4 * stride, 1)), first=torch.ones(1) > 0, state=(),
                      mask=torch.ones(3, dtype=torch.bool).as_strided((1, 3), (3 * stride, 1)), statistics=None)
        compile_collect(collect, agent, weights, None, carry, Config(num_envs=1), compiler)
    assert layouts[0] == layouts[1]


class Grows(nn.Module):
    """A recurrent layer whose state is everything that it has computed."""

    def initial_state(self, num_envs, device="cpu"):
        return (torch.zeros(num_envs, 1, 16, device=device),)

    def forward(self, x, first, state):
        memory = torch.cat([state[0], x[:, None, :16].tanh()], 1)
        return memory.sum(1), (memory,)


class Halves(nn.Module):
    """A recurrent layer whose state is two views of one tensor, first of zeros in one row."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64 + 8, 16)

    def initial_state(self, num_envs, device="cpu"):
        return tuple(torch.zeros(8, device=device).expand(num_envs, 8) for _ in range(2))

    def forward(self, x, first, state):
        h, c = self.layer(torch.cat([x, state[0] - state[1]], -1)).tanh().chunk(2, -1)
        return torch.cat([h, c], -1), (h, c)


def remembering(memory, envs=5):
    """Return an agent with a recurrent layer, and what environments begin with."""
    trunk, critic, head = (nn.Linear(4, 64), nn.Linear(16, 1), make_head(partial(nn.Linear, 16), spaces.Discrete(3)))
    agent = SharedAgent(trunk, critic, head, memory)
    return agent, Carry(obs=torch.randn(envs, 4), mask=None, first=torch.zeros(envs, dtype=torch.bool),
                        state=agent.initial_state(envs), statistics=None)


def test_acting_with_a_state_that_grows_is_not_compiled(caplog):
    """A library would read its first step only, in memory that is not its own."""
    agent, carry = remembering(Grows())
    policy = make_policy(agent)
    act = compile_act(policy, agent, flat_adam(agent).weights, as_rows(carry), Compiler(None, lambda: None, False, True))
    assert act is policy.act
    assert ("--compile needs a recurrent state whose shapes and dtypes stay, and the network returned a tensor float32 (5, 2, 16) for "
            "a tensor float32 (5, 1, 16). Acting runs without it.") in caplog.text


@pytest.mark.parametrize("envs", [1, 5])
def test_values_after_the_rollout_read_a_state_with_any_strides(envs):
    """Those of the last observation, which only --compile-with inductor compiles. One environment may have any stride."""
    agent, carry = remembering(Halves(), envs)
    called = []

    def compile(function, example, name):
        return lambda *tensors: called.append([describe_layout(x) for x in tensors] == [describe_layout(x) for x in example]) or function(
            *tensors)

    weights, state = flat_adam(agent).weights, agent.act(carry.obs, None, carry.first, carry.state, torch.randn(envs, 3)).state
    storage = SimpleNamespace(whole=lambda name: name)
    evaluate = compile_evaluation(agent, weights, storage, as_rows(carry), Compiler(compile, lambda: None, True, True))
    found = evaluate(storage, carry._replace(state=state))
    assert called == [True] and torch.equal(found[2], agent.value(carry.obs, torch.zeros(envs, dtype=torch.bool), state))


def test_the_state_of_a_recurrent_layer_may_have_any_strides():
    """A library read other numbers of the state from the second step on: it does not check what it is called with."""
    called = []

    def compile(function, example, name):
        def run(*tensors):
            called.append([describe_layout(x) for x in (*tensors, *example)])
            return function(*tensors)

        return run

    agent, carry = remembering(Halves())
    compiler = Compiler(compile, lambda: None, compiles_evaluation=False, compiles_recurrent=True)
    act = compile_act(make_policy(agent), agent, flat_adam(agent).weights, as_rows(carry), compiler)
    acted = state = carry.state
    for _ in range(3):
        noise = torch.randn(5, 3)
        found, expected = (one(carry.obs, None, carry.first, state, noise) for one, state in ((act, acted), (agent.act, state)))
        acted, state = found.state, expected.state
        assert torch.equal(found.value, expected.value)
    assert len(called) == 3 and all(one[:len(one) // 2] == one[len(one) // 2:] for one in called)


def test_a_module_with_two_names_keeps_its_parameters():
    """One layer in both networks; torch alone leaves the traced tensors of it in the agent."""
    torch.manual_seed(0)
    body = torch.nn.Linear(4, 8)
    agent = SeparateAgent(torch.nn.Sequential(body, torch.nn.Tanh(), torch.nn.Linear(8, 1)),
                          make_head(lambda n: torch.nn.Sequential(body, torch.nn.Tanh(), torch.nn.Linear(8, n)),
                                    spaces.Discrete(3)))
    weights, before = flat_adam(agent).weights, dict(agent.named_parameters(remove_duplicate=False))
    obs = torch.randn(5, 4)
    expected = agent.value(obs, None, ()).detach()
    found = functional(agent, lambda obs: (agent.value(obs, None, ()),))(weights, obs)[0]
    assert torch.equal(found.detach(), expected)
    after = dict(agent.named_parameters(remove_duplicate=False))
    assert all(after[name] is x for name, x in before.items())
