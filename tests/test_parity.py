"""Torch against JAX: the same weights, data and permutation give the same numbers, in float64 so that a real difference
cannot hide behind rounding. tests/frameworks/ compares gae, loss and the rest with their definitions."""

from dataclasses import replace
from types import SimpleNamespace

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import proximo.on_jax.assemble as jax_assemble
import proximo.on_jax.box_heads as jax_box_heads
import proximo.on_torch.assemble as torch_assemble
import proximo.on_torch.box_heads as torch_box_heads
from proximo.config import Config
from proximo.envs.arrays.obs_layout import obs_layout, write_rows
from proximo.on_jax.learner import make_batch as jax_make_batch
from proximo.on_jax.learner import start_adam
from proximo.on_jax.learner import update as jax_update
from proximo.on_jax.loss import ppo_loss as jax_ppo_loss
from proximo.on_jax.parameters import initial_weights, make_bind, named_parameters
from proximo.on_jax.setup import make_learner as make_jax_learner
from proximo.on_jax.train_step import make_learn, stream_keys
from proximo.on_torch.gae import estimate_advantages
from proximo.on_torch.learner import make_batch as torch_make_batch
from proximo.on_torch.learner import minibatch_advantages
from proximo.on_torch.learner import update as torch_update
from proximo.on_torch.train import learn as torch_learn
from proximo.processes import ALONE
from proximo.types import Coefficients, Minibatches, Rollout
from proximo.variants import RPO
from tests.support.jax_adapter import compile_fast
from tests.support.spec import Spec
from tests.support.torch_learning import make_learner

ATOL = 1e-10  # of float64 numbers of order 1 that went through the same arithmetic
T, N = 8, 4
FLOATS, IMAGE = np.dtype(np.float32), np.dtype(np.uint8)
BOX = gym.spaces.Box(-1, 1, (3,))
CASES = {
    "separate mlp": (Spec((5,), FLOATS, gym.spaces.Discrete(4)), {}),
    "masked choices": (Spec((2, 3), FLOATS, gym.spaces.MultiDiscrete([3, 2])), {}),
    "gaussian": (Spec((5,), FLOATS, BOX), {}),
    "rpo": (Spec((5,), FLOATS, BOX), {"rpo_alpha": 0.25, "log_std_init": -0.5}),
    "shared mlp": (Spec((5,), FLOATS, gym.spaces.Discrete(4)), {"shared_network": True}),
    "lstm": (Spec((5,), FLOATS, gym.spaces.Discrete(4)), {"recurrent": "lstm", "memory_size": 8}),
    "gru": (Spec((5,), FLOATS, gym.spaces.Discrete(4)), {"recurrent": "gru", "memory_size": 8}),
    "own sizes": (Spec((5,), FLOATS, gym.spaces.Discrete(4)), {"policy_sizes": (12,), "value_sizes": (8, 9, 7)}),
    "relu and norms": (Spec((5,), FLOATS, gym.spaces.Discrete(4)), {"activation": "relu", "layer_norm": True}),
    "normalised values": (Spec((5,), FLOATS, gym.spaces.Discrete(4)), {"norm_value": True}),
    "gelu": (Spec((2, 3), FLOATS, BOX), {"activation": "gelu", "log_std_init": -1.5}),
    "squashed": (Spec((5,), FLOATS, BOX), {"distribution": "squashed", "log_std_init": -0.5}),
    "squashed, own deviation": (Spec((5,), FLOATS, BOX), {"distribution": "squashed", "state_dependent_std": True,
                                                          "shared_network": True}),
    "beta": (Spec((5,), FLOATS, BOX), {"distribution": "beta"}),
    "gsde": (Spec((5,), FLOATS, BOX), {"distribution": "gsde", "policy_sizes": (6,)}),
    "gsde lstm": (Spec((5,), FLOATS, BOX), {"distribution": "gsde", "recurrent": "lstm", "memory_size": 8}),
    "state-dependent": (Spec((5,), FLOATS, BOX), {"state_dependent_std": True, "log_std_init": -1.0}),
    "elu": (Spec((5,), FLOATS, gym.spaces.Discrete(4)), {"activation": "elu", "shared_network": True}),
    "silu": (Spec((5,), FLOATS, gym.spaces.Discrete(4)), {"activation": "silu", "layer_norm": True,
                                                         "recurrent": "gru", "memory_size": 8}),
    "nature cnn": (Spec((2, 40, 44), IMAGE, gym.spaces.Discrete(4)), {"model": "cnn"}),
    "impala cnn": (Spec((3, 13, 16), IMAGE, gym.spaces.Discrete(4)), {"model": "impala"}),
}
for NAME, PARTS in {"structured": {}, "structured images": {"camera": gym.spaces.Box(0, 255, (9, 10, 3), np.uint8),
                                                           "depth": gym.spaces.Box(0, 1, (1, 8, 8))}}.items():
    SPACE = gym.spaces.Dict(PARTS | {"kind": gym.spaces.Discrete(3, start=1), "position": gym.spaces.Box(-1, 1, (4,)),
                                     "more": gym.spaces.MultiDiscrete([2, 3])})
    CASES[NAME] = (Spec((obs_layout(SPACE).size,), np.dtype(np.uint8), gym.spaces.Discrete(4), SPACE), {})
SPACE = gym.spaces.Dict({"seen": gym.spaces.Box(-1, 1, (4,)), "state": gym.spaces.Box(-1, 1, (2,))})
CASES["privileged critic"] = (Spec((6,), FLOATS, gym.spaces.Discrete(4), SPACE), {"critic_obs": "state"})
CASES["hybrid"] = (Spec((5,), FLOATS, gym.spaces.Tuple([gym.spaces.Discrete(3), BOX, gym.spaces.MultiBinary(2)])), {})
SMALL = [name for name in CASES if "cnn" not in name and "images" not in name]


@pytest.fixture(autouse=True)
def _float64(monkeypatch):
    """Also where training refuses it."""
    monkeypatch.setattr("proximo.on_jax.setup.check_settings", lambda: None)
    with jax.enable_x64(True):
        yield


def make_config(case, **changes):
    kind = RPO if case == "rpo" else Config
    return kind(num_envs=N, num_steps=T, total_timesteps=10_000, hidden_sizes=(16, 16), num_minibatches=2,
                update_epochs=2, **CASES[case][1] | changes)


def assemble_both(case, cfg):
    """Return the torch agent and the JAX agent."""
    spec, rpo = CASES[case][0], case == "rpo"
    return (torch_assemble.assemble(spec, cfg, *[torch_box_heads.make_rpo_head] * rpo),
            jax_assemble.assemble(spec, cfg, *[jax_box_heads.make_rpo_head] * rpo))


def make_agents(case):
    """Return the torch agent in float64 with larger heads than the initial ones, the JAX agent, and their weights."""
    torch.manual_seed(7)
    ours, theirs = assemble_both(case, make_config(case))
    ours = ours.double()
    with torch.no_grad():
        for p in ours.parameters():
            p.add_(torch.randn(p.shape, dtype=p.dtype) * 0.05)
    return ours, theirs, {name: jnp.asarray(p.detach().numpy()) for name, p in ours.named_parameters()}


def make_rollout(case, seed=0):
    """Draw a rollout with ends, filler rows and masks. Returns (rollout, returns, recurrent state at its start)."""
    spec, rng, cfg = CASES[case][0], np.random.default_rng(seed), make_config(case)
    obs = rng.integers(0, 256, (T, N, *spec.obs_shape)).astype(np.uint8) if spec.obs_dtype == np.uint8 \
        else rng.normal(size=(T, N, *spec.obs_shape))
    if spec.observation_space is not None and spec.obs_dtype == np.uint8:
        spec.observation_space.seed(seed)
        for row in obs.reshape(T * N, -1):
            write_rows(obs_layout(spec.observation_space), spec.observation_space.sample(), row)
    mask = None
    if isinstance(spec.action_space, gym.spaces.Discrete):
        action = rng.integers(0, 4, (T, N))
    elif isinstance(spec.action_space, gym.spaces.MultiDiscrete):
        action = np.stack([rng.integers(0, 3, (T, N)), rng.integers(0, 2, (T, N))], -1)
        mask = rng.random((T, N, 5)) > 0.3
        mask[..., [0, 3]] = True
        action = np.where(np.stack([np.take_along_axis(mask, action[..., :1], -1)[..., 0],
                                    np.take_along_axis(mask, action[..., 1:] + 3, -1)[..., 0]], -1), action, 0)
    else:
        action = rng.normal(size=(T, N, 3))
        action = np.tanh(action) if cfg.distribution in ("squashed", "beta") else action
    if isinstance(spec.action_space, gym.spaces.Tuple):
        action = np.concatenate([rng.integers(0, 3, (T, N, 1)), action, rng.integers(0, 2, (T, N, 2))], -1)
        mask = rng.random((T, N, 3)) > 0.3
        np.put_along_axis(mask, action[..., :1].astype(int), True, -1)
    flags = rng.random((4, T, N)) < 0.2
    numbers = [rng.normal(size=(T, N)) for _ in range(5)]
    rollout = Rollout(obs=obs, first=flags[2], mask=mask, action=action, logprob=-1 - np.abs(numbers[0]),
                      value=numbers[1], next_value=numbers[2], reward=numbers[3], terminated=flags[0],
                      done=flags[0] | flags[1], valid=~flags[3])
    parts = {"lstm": 2, "gru": 1}.get(cfg.recurrent, 0)
    return rollout, numbers[4], tuple(rng.normal(size=(N, 8)) * 0.1 for _ in range(parts))


def to_torch(x):
    return None if x is None else torch.from_numpy(np.ascontiguousarray(x))


def make_batches(case, cfg, number):
    """Yield (rollout, returns, recurrent state, minibatches) for updates of both frameworks."""
    for seed in range(number):
        (rollout, ret, state), rng = make_rollout(case, seed), np.random.default_rng(seed + 100)
        rows, advantage = N if state else T * N, np.random.default_rng(seed).normal(size=(T, N))
        index = np.stack([rng.permutation(rows) for _ in range(2)]).reshape(2, 2, -1)
        noise = rng.uniform(-0.5, 0.5, (*index.shape, 3)) if case == "rpo" else None
        normalized, count = minibatch_advantages(to_torch(advantage), to_torch(rollout.valid), to_torch(index),
                                                bool(state), cfg, lambda x: x)
        yield rollout, ret, state, Minibatches(index=index, advantage=normalized.double().numpy(),
                                               count=count.double().numpy(), noise=noise)


@pytest.mark.parametrize("case", CASES)
def test_the_same_weights_give_the_same_distribution_value_and_state(case):
    ours, theirs, weights = make_agents(case)
    rollout, _, state = make_rollout(case)
    inputs = rollout.obs, rollout.mask, rollout.first
    with torch.no_grad():
        dist, value, after = ours(*map(to_torch, inputs), tuple(map(to_torch, state)))
        expected = [dist.logprob(to_torch(rollout.action)), dist.entropy(), dist.mode(), value, *after]

    def evaluate(weights, inputs, state, action):
        dist, value, after = make_bind(theirs)(weights)(*inputs, state)
        return [dist.logprob(action), dist.entropy(), dist.mode(), value, *after]

    found = compile_fast(evaluate)(weights, inputs, state, rollout.action)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(np.asarray(b), a.numpy(), atol=ATOL, rtol=0)


@pytest.mark.parametrize("orthogonal", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_both_build_the_same_parameters_with_the_same_spread(case, orthogonal):
    """Names and shapes are equal, and so are the norms of biases, of `logstd` and of orthogonal weights. Those of other
    weights and biases, which are uniform, are equal up to chance."""
    torch.manual_seed(0)
    agent, theirs = assemble_both(case, make_config(case, orthogonal_init=orthogonal))
    ours = {name: p.detach().numpy() for name, p in agent.named_parameters()}
    weights = initial_weights(theirs, np.random.default_rng(0))
    for parameters in (weights, named_parameters(theirs)):
        assert {name: x.shape for name, x in parameters.items()} == {name: x.shape for name, x in ours.items()}
    assert {getattr(one.head, "rpo_alpha", None) for one in (agent, theirs)} == {CASES[case][1].get("rpo_alpha")}
    exact = orthogonal and "impala" not in case
    for name, x in weights.items():
        if exact or x.size > 16:
            expected = np.linalg.norm(ours[name])
            assert np.linalg.norm(x) == pytest.approx(expected, rel=1e-5 if exact else 0.35), name


def update_torch(cfg, agent, batches):
    """Return the weights by name, the last statistics, and the number of Adam's steps."""
    adam, learner = make_learner(agent, cfg)
    stats = {}
    for rollout, ret, state, minibatches in batches:
        rows = Rollout(*map(to_torch, rollout))
        batch = torch_make_batch(rows, to_torch(ret), tuple(map(to_torch, state)), agent.recurrent)
        stats = torch_update(learner, batch, Minibatches(*map(to_torch, minibatches)), 1e-3,
                             Coefficients(cfg.clip_coef, cfg.ent_coef), cfg)
    return {name: p.detach().numpy() for name, p in agent.named_parameters()}, stats, float(adam.step)


def update_jax(cfg, agent, weights, batches):
    """Return the same. The update is compiled once for all batches."""
    learner = make_jax_learner(cfg, agent, jax_ppo_loss, fills=True)
    rate, *coefficients = (jnp.asarray(x, jnp.float32) for x in (1e-3, cfg.clip_coef, cfg.ent_coef))

    def step(adam, rollout, ret, state, minibatches):
        batch = jax_make_batch(rollout, ret, state, agent.recurrent)
        return jax_update(learner, adam, batch, minibatches, rate, Coefficients(*coefficients))

    adam, stats, compiled = start_adam(weights), {}, compile_fast(step)
    for batch in batches:
        adam, stats = compiled(adam, *batch)
    assert compiled._cache_size() == 1, "the update was compiled more than once"
    return adam.weights, {name: float(x) for name, x in stats.items()}, float(adam.step)


@pytest.mark.parametrize(("case", "updates", "change"), [
    *[(case, 25, {}) for case in SMALL], ("nature cnn", 2, {}), ("impala cnn", 2, {}), ("structured images", 2, {}),
    ("separate mlp", 25, {"target_kl": 0.05}), ("separate mlp", 25, {"desired_kl": 0.01}), ("separate mlp", 25, {"clip_vloss": False, "norm_adv": "batch"}),
    ("separate mlp", 25, {"max_grad_norm": 100.0, "ent_coef": 0.1})])
def test_after_many_updates_the_weights_are_the_same(case, updates, change):
    """25 updates of 4 minibatches: 100 steps of Adam on fresh data."""
    ours, theirs, weights = make_agents(case)
    cfg = make_config(case, **change)
    expected, stats, steps = update_torch(cfg, ours, make_batches(case, cfg, updates))
    found, others, number = update_jax(cfg, theirs, weights, make_batches(case, cfg, updates))
    assert number == steps and (steps == 4 * updates or "target_kl" in change)
    moved = max(float(np.abs(expected[name] - np.asarray(weights[name])).max()) for name in expected)
    assert moved > 1e-3, "nothing was learned, so nothing was compared"
    for name, x in expected.items():
        np.testing.assert_allclose(np.asarray(found[name]), x, atol=2e-8, rtol=0, err_msg=name)
    assert others == pytest.approx(stats, abs=1e-6)


@pytest.mark.parametrize("case", ["normalised values", "gru"])
def test_learning_from_a_rollout_is_the_same_in_the_middle_of_every_schedule(case):
    """From rewards to weights, with one minibatch, whose order does not matter. The rewards of filler rows are no numbers."""
    ours, theirs, weights = make_agents(case)
    cfg = replace(make_config(case), num_minibatches=1, total_timesteps=4 * T * N, anneal_clip="linear", anneal_ent="cosine",
                  ent_coef=0.5)
    rollout, _, state = make_rollout(case)
    rollout = rollout._replace(reward=np.where(rollout.valid, rollout.reward, np.nan))
    adam, learner = make_learner(ours, cfg)
    setup = SimpleNamespace(agent=ours, adam=adam, learner=learner, world=ALONE, estimate=estimate_advantages, device="cpu")
    expected = torch_learn(setup, Rollout(*map(to_torch, rollout)), tuple(map(to_torch, state)), 3, cfg)
    learn = compile_fast(make_learn(make_jax_learner(cfg, theirs, jax_ppo_loss, fills=True)))
    after, found = learn(start_adam(weights), rollout, state, stream_keys(1), jnp.int32(3))
    for name, p in ours.named_parameters():
        np.testing.assert_allclose(np.asarray(after.weights[name]), p.detach().numpy(), atol=2e-8, rtol=0, err_msg=name)
    for name, x in found.items():
        assert float(x) == pytest.approx(expected[f"losses/{name}"], abs=1e-6), name
    assert np.isfinite(found["explained_variance"]) and found["clipfrac"] > 0
