"""Agents: acting step by step equals one learning pass over (T, N), for every kind of agent, head and mask."""

import numpy as np
import pytest
from gymnasium import spaces

from proximo.config import Config
from proximo.errors import UsageError
from tests.support.spec import Spec

T, N = 7, 3
VECTOR = (5,), np.dtype(np.float32)
IMAGE, SMALL_IMAGE = (((2, size, size), np.dtype(np.uint8)) for size in (36, 9))
ACTIONS = {"discrete": spaces.Discrete(4), "multi": spaces.MultiDiscrete([3, 2]), "binary": spaces.MultiBinary(3),
           "box": spaces.Box(-1, 1, (2,)),
           "joint": spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Discrete(3), spaces.MultiDiscrete([2, 4])])}
KINDS = {"separate": ({}, VECTOR, "SeparateAgent"), "shared": ({"shared_network": True}, VECTOR, "SharedAgent"),
         "lstm": ({"recurrent": "lstm"}, VECTOR, "SharedAgent"), "gru": ({"recurrent": "gru"}, VECTOR, "SharedAgent"),
         "cnn": ({"model": "cnn"}, IMAGE, "SharedAgent"), "impala": ({"model": "impala"}, SMALL_IMAGE, "SharedAgent"),
         "cnn-lstm": ({"model": "cnn", "recurrent": "lstm"}, IMAGE, "SharedAgent")}

# Every head with a recurrent layer, every head class without one, and every other kind of agent once.
CASES = [*(("lstm", *head) for head in (("discrete", False), ("discrete", True), ("multi", True), ("binary", False),
                                        ("box", False), ("joint", False))),
         *(("separate", *head) for head in (("discrete", True), ("multi", True), ("box", False))),
         ("shared", "multi", True), ("gru", "discrete", True), ("cnn", "discrete", False), ("impala", "box", False),
         ("cnn-lstm", "multi", True)]


def make_agent(framework, fields, observed, actions):
    """Make an agent with larger weights in its head.

    The published gain of 0.01 would make all logits nearly equal, which would hide faults.
    """
    return framework.make_agent(Spec(*observed, actions), Config(hidden_sizes=(8, 8), memory_size=6, **fields), factor=50)


def make_rollout(agent, observed, masked, seed=1):
    """Draw observations, ends of episodes, noise and masks. Returns (obs, mask, first, noise)."""
    rng, noise = np.random.default_rng(seed), agent.head.noise(seed, T, N)
    obs = rng.integers(256, size=(T, N, *observed[0])).astype(np.uint8)
    if observed[1] != np.uint8:
        obs = obs / 128 - 1
    mask = rng.random(noise.shape) < 0.6 if masked else None
    if masked:
        mask[..., ::3] = True  # the first choice of each component of both action spaces
        mask[..., -1] = True
    return obs, mask, rng.random((T, N)) < 0.25, noise


def act_step_by_step(agent, obs, mask, first, noise):
    """Return action, logprob, value and entropy of each step, (T, N, ...)."""
    state, steps = agent.initial_state(N), []
    for t in range(T):
        step_mask, before = None if mask is None else mask[t], state
        dist, value, _ = agent(obs[t], step_mask, first[t], before)
        acted = agent.act(obs[t], step_mask, first[t], before, noise[t])
        state = acted.state
        np.testing.assert_allclose(agent.value(obs[t], first[t], before), value, rtol=1e-9)
        assert (acted.value is None) == (acted.logprob is None) == agent.evaluates_later
        if acted.value is not None:
            np.testing.assert_allclose(acted.value, value, rtol=1e-9)
            np.testing.assert_allclose(acted.logprob, dist.logprob(acted.action), rtol=1e-9)
        steps.append((acted.action, dist.logprob(acted.action), value, dist.entropy()))
    return [np.stack(parts) for parts in zip(*steps)]


@pytest.mark.parametrize("kind,actions,masked", CASES)
def test_acting_equals_one_learning_pass(framework, kind, actions, masked):
    fields, observed, cls = KINDS[kind]
    agent = make_agent(framework, fields, observed, ACTIONS[actions])
    assert type(agent.raw).__name__ == cls
    obs, mask, first, noise = make_rollout(agent, observed, masked)
    action, logprob, value, entropy = act_step_by_step(agent, obs, mask, first, noise)
    dist, learned_value, _ = agent(obs, mask, first, agent.initial_state(N))
    near = {"atol": 1e-6, "rtol": 1e-6}
    np.testing.assert_allclose(dist.logprob(action), logprob, **near)
    np.testing.assert_allclose(learned_value, value, **near)
    np.testing.assert_allclose(dist.entropy(), entropy, **near)
    if agent.evaluates_later:
        found, values = agent.evaluate(np.concatenate([obs, obs[:1]]), mask, action)
        np.testing.assert_allclose(found, logprob, **near)
        np.testing.assert_allclose(values, np.concatenate([value, value[:1]]), **near)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_state_is_reset_where_an_episode_begins(framework, kind):
    """Detail 34: what came before `first` has no effect on what comes after it. Without `first`, it has."""
    agent = make_agent(framework, {"recurrent": kind}, VECTOR, ACTIONS["discrete"])
    obs, other = np.random.default_rng(0).standard_normal((2, T, N, 5))
    other[3:] = obs[3:]
    first = np.zeros((T, N), bool)

    def difference():
        return np.subtract(*(agent(x, None, first, agent.initial_state(N))[1] for x in (obs, other)))

    assert (difference()[3:] != 0).all()
    first[3] = True
    assert (difference()[:3] != 0).any() and (difference()[3:] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_has_a_part_in_what_an_agent_computes(framework, kind):
    """The gradient of values and log-probabilities of a sequence reaches each of them."""
    fields, observed, _ = KINDS[kind]
    agent, rng = make_agent(framework, fields, observed, ACTIONS["discrete"]), np.random.default_rng(0)
    obs = rng.integers(256, size=(T, N, *observed[0])).astype(np.uint8) if observed[1] == np.uint8 else rng.standard_normal((T, N, 5))
    obs, first, action = framework.to_array((obs, np.zeros((T, N), bool), rng.integers(4, size=(T, N))))
    state = framework.to_array(tuple(agent.initial_state(N)))

    def total(raw):
        dist, value, _ = raw(obs, None, first, state)
        return (value * value).sum() + dist.logprob(action).sum()

    assert [name for name, x in framework.weight_gradient(agent, total).items() if not (x != 0).any()] == []


@pytest.mark.parametrize("kind", ["cnn", "impala"])
def test_images_of_floats_are_those_of_bytes_divided_by_255(framework, kind):
    """Detail 22, with the same weights."""
    shape, first, found = KINDS[kind][1][0], np.ones(N, bool), []
    obs = np.random.default_rng(0).integers(256, size=(N, *shape)).astype(np.uint8)
    for high, dtype, x in ((255, np.uint8, obs), (1, np.float32, obs / 255)):
        spec = Spec(shape, np.dtype(dtype), ACTIONS["discrete"], spaces.Box(0, high, shape, dtype))
        agent = framework.make_agent(spec, Config(model=kind))
        found.append(agent.value(x, first, agent.initial_state(N)))
    np.testing.assert_allclose(*found, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "impala"])
def test_biases_begin_at_0(framework, kind):
    """Detail 2; the residual network of procgen's authors has the biases of its framework."""
    agent = make_agent(framework, KINDS[kind][0], KINDS[kind][1], ACTIONS["discrete"])
    biases = {name: x for name, x in framework.weights(agent).items() if "bias" in name}
    assert biases and all((x == 0).all() for x in biases.values())


@pytest.mark.parametrize("kind,part,reached", [("separate", "head", False), ("shared", "trunk", True)])
def test_separate_networks_share_nothing_and_shared_ones_do(framework, kind, part, reached):
    """Detail 13: the gradient of the value reaches the weights of the policy only through a shared trunk."""
    agent = make_agent(framework, KINDS[kind][0], VECTOR, ACTIONS["discrete"])
    obs, first = framework.to_array((np.random.default_rng(0).standard_normal((N, 5)), np.zeros(N, bool)))
    gradients = framework.weight_gradient(agent, lambda raw: raw(obs, None, first, ())[1].sum())
    of_the_policy = [x for name, x in gradients.items() if name.startswith(part + ".")]
    assert of_the_policy and all((x != 0).any() == reached for x in of_the_policy)


@pytest.mark.parametrize("model,observed", [("cnn", VECTOR), ("impala", VECTOR),
                                            ("cnn", ((3, 12, 10), np.dtype(np.uint8))),
                                            ("cnn", ((3, 84, 84), np.dtype(np.float32)))])
def test_a_network_that_does_not_fit_is_refused(framework, model, observed):
    with pytest.raises(UsageError, match=f"--model {model} needs images .* [Uu]se .*--model mlp"):
        make_agent(framework, {"model": model}, observed, ACTIONS["discrete"])


def test_an_action_space_without_a_head_is_named(framework):
    with pytest.raises(UsageError, match=r"action space Text.* is not supported"):
        make_agent(framework, {}, VECTOR, spaces.Text(5))
