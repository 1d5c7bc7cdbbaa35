"""Agents: acting step by step equals one learning pass over (T, N), for every kind of agent, head and mask."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.errors import UsageError
from proximo.on_torch.agent import SeparateAgent, SharedAgent
from proximo.on_torch.assemble import assemble
from proximo.on_torch.learner import select_minibatch
from proximo.on_torch.train import train
from proximo.types import Batch

T, N = 7, 3
VECTOR, IMAGE = ((5,), np.dtype(np.float32)), ((2, 36, 36), np.dtype(np.uint8))
ACTIONS = {"discrete": spaces.Discrete(4), "multi": spaces.MultiDiscrete([3, 2]), "binary": spaces.MultiBinary(3),
           "box": spaces.Box(-1, 1, (2,))}
KINDS = {"separate": ({}, VECTOR, SeparateAgent), "shared": ({"shared_network": True}, VECTOR, SharedAgent),
         "lstm": ({"recurrent": "lstm"}, VECTOR, SharedAgent), "gru": ({"recurrent": "gru"}, VECTOR, SharedAgent),
         "cnn": ({"model": "cnn"}, IMAGE, SharedAgent), "impala": ({"model": "impala"}, IMAGE, SharedAgent),
         "cnn-lstm": ({"model": "cnn", "recurrent": "lstm"}, IMAGE, SharedAgent)}


def made(fields, observed, actions):
    torch.manual_seed(0)
    envs = SimpleNamespace(obs_shape=observed[0], obs_dtype=observed[1], action_space=actions)
    agent = assemble(envs, Config(hidden_size=8, memory_size=6, **fields))
    with torch.no_grad():  # the published gain of 0.01 would make all logits nearly equal, and hide faults
        for name, p in agent.named_parameters():
            if "head" in name and "weight" in name:
                p.mul_(50)
    return agent


def played(agent, observed, masked):
    """Random observations, ends and masks, acted on one step at a time: what acting says of each step."""
    generator = torch.Generator().manual_seed(1)
    obs = torch.randint(256, (T, N, *observed[0]), generator=generator).to(
        torch.uint8 if observed[1] == np.uint8 else torch.float32)
    obs = obs if observed[1] == np.uint8 else obs / 128 - 1
    first = torch.rand(T, N, generator=generator) < 0.25
    noise = agent.head.noise(generator, T, N)
    mask = torch.rand(noise.shape, generator=generator) < 0.6 if masked else None
    if masked:
        mask[..., ::3] = True  # the first choice of each component of both action spaces
        mask[..., -1] = True
    state, steps = agent.initial_state(N), []
    for t in range(T):
        step_mask = None if mask is None else mask[t]
        before = state
        dist, value, _ = agent(obs[t], step_mask, first[t], state)
        acted = agent.act(obs[t], step_mask, first[t], state, noise[t])
        state = acted.state
        assert torch.equal(agent.value(obs[t], first[t], before), value)
        assert acted.value is None or torch.equal(acted.value, value)
        steps.append((acted.action, dist.logprob(acted.action), value, dist.entropy()))
    return obs, first, mask, [torch.stack(parts) for parts in zip(*steps)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("actions,masked", [("discrete", False), ("discrete", True), ("multi", True), ("binary", False),
                                            ("box", False)])
@torch.no_grad()
def test_acting_equals_one_learning_pass(kind, actions, masked):
    fields, observed, cls = KINDS[kind]
    agent = made(fields, observed, ACTIONS[actions])
    assert type(agent) is cls
    obs, first, mask, (action, logprob, value, entropy) = played(agent, observed, masked)
    dist, learned_value, _ = agent(obs, mask, first, agent.initial_state(N))
    near = {"atol": 2e-5, "rtol": 2e-5}
    torch.testing.assert_close(dist.logprob(action), logprob, **near)
    torch.testing.assert_close(learned_value, value, **near)
    torch.testing.assert_close(dist.entropy(), entropy, **near)
    if agent.evaluates_later:
        found, values = agent.evaluate(torch.cat([obs, obs[:1]]), mask, action)
        torch.testing.assert_close(found, logprob, **near)
        torch.testing.assert_close(values, torch.cat([value, value[:1]]), **near)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_memory_forgets_where_an_episode_begins(kind):
    """Detail 34: what came before `first` has no part in what comes after, and without it, it has."""
    agent = made({"recurrent": kind}, VECTOR, ACTIONS["discrete"])
    obs, state = torch.randn(T, N, 5), agent.initial_state(N)
    other = torch.cat([torch.randn(3, N, 5), obs[3:]])
    first = torch.zeros(T, N, dtype=torch.bool)
    apart = agent(obs, None, first, state)[1] - agent(other, None, first, state)[1]
    assert (apart[3:] != 0).all()
    first[3] = True
    apart = agent(obs, None, first, state)[1] - agent(other, None, first, state)[1]
    assert (apart[:3] != 0).any() and (apart[3:] == 0).all()


def test_separate_networks_share_nothing_and_shared_ones_do():
    """Detail 13: the value's gradient reaches the policy's weights only through a shared trunk."""
    for kind, reached in (("separate", False), ("shared", True)):
        agent = made(KINDS[kind][0], VECTOR, ACTIONS["discrete"])
        _, value, _ = agent(torch.randn(N, 5), None, torch.zeros(N, dtype=torch.bool), ())
        policy = list((agent.trunk if kind == "shared" else agent.head).parameters())
        gradients = torch.autograd.grad(value.sum(), policy, allow_unused=True)
        assert all((g is not None) == reached for g in gradients)


@pytest.mark.parametrize("model,observed", [("cnn", VECTOR), ("impala", VECTOR),
                                            ("cnn", ((3, 12, 10), np.dtype(np.uint8))),
                                            ("cnn", ((3, 84, 84), np.dtype(np.float32)))])
def test_a_network_that_does_not_fit_is_refused(model, observed):
    with pytest.raises(UsageError, match=f"--model {model} needs images .* Use --model mlp"):
        made({"model": model}, observed, ACTIONS["discrete"])


def test_an_action_space_without_a_head_is_named():
    with pytest.raises(UsageError, match="action space Text.* is not supported"):
        made({}, VECTOR, spaces.Text(5))


@pytest.mark.parametrize("fields", [{}, {"shared_network": True}, {"recurrent": "lstm"}, {"recurrent": "gru"}])
@pytest.mark.parametrize("env_id", ["tests.support.probes:Masked-v0", "tests.support.probes:Bounded-v0", "CartPole-v1"])
def test_first_pass_of_learning_finds_the_policy_that_acted(fields, env_id):
    """Detail 36: before the first step of the optimizer every ratio is 1, also in rollouts that begin amid episodes."""
    cfg = Config(env_id=env_id, num_envs=4, num_steps=10, num_minibatches=1, update_epochs=1, memory_size=8,
                 total_timesteps=120, learning_rate=0.1, **fields)
    for it in train(cfg, make_gym, assemble):
        assert abs(it.stats["losses/old_approx_kl"]) < 1e-6 and it.stats["losses/clipfrac"] == 0


def test_minibatches_of_a_memory_are_whole_environments():
    """Detail 35: a minibatch holds all steps of some environments, with the state that each began with."""
    cell = torch.arange(T)[:, None] * 100 + torch.arange(N)  # (T, N)
    state = (torch.arange(N)[:, None].float(),)
    part = select_minibatch(Batch(cell, None, cell, state, *(cell,) * 5), torch.tensor([2, 0]), True)
    assert torch.equal(part.obs, cell[:, [2, 0]]) and part.state[0].flatten().tolist() == [2, 0] and part.mask is None
    rows = select_minibatch(Batch(cell.flatten(), None, None, (), *(cell.flatten(),) * 5), torch.tensor([5, 1]), False)
    assert rows.action.tolist() == [102, 1]
