"""Torch against JAX: the same weights, data and permutation give the same numbers, in float64 so that a real difference
cannot hide behind rounding."""

from typing import NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import proximo.on_jax.assemble as jax_assemble
import proximo.on_torch.assemble as torch_assemble
from proximo.config import Config
from proximo.on_jax.distributions import RPOHead as JaxRPOHead
from proximo.on_jax.gae import gae as jax_gae
from proximo.on_jax.learner import Learner as JaxLearner
from proximo.on_jax.learner import explained_variance as jax_explained_variance
from proximo.on_jax.learner import make_batch as jax_make_batch
from proximo.on_jax.learner import normalize_advantage as jax_normalize_advantage
from proximo.on_jax.learner import start_adam
from proximo.on_jax.learner import update as jax_update
from proximo.on_jax.loss import ppo_loss as jax_ppo_loss
from proximo.on_jax.parameters import initial_weights, make_bind, named_parameters
from proximo.on_torch.distributions import RPOHead as TorchRPOHead
from proximo.on_torch.gae import gae as torch_gae
from proximo.on_torch.learner import explained_variance as torch_explained_variance
from proximo.on_torch.learner import make_batch as torch_make_batch
from proximo.on_torch.learner import normalize_advantage as torch_normalize_advantage
from proximo.on_torch.learner import update as torch_update
from proximo.on_torch.loss import ppo_loss as torch_ppo_loss
from proximo.types import LossInputs, Minibatches, Rollout
from tests.support.torch_learning import make_learner

ATOL = 1e-10  # of float64 numbers of order 1 that went through the same arithmetic
T, N = 8, 4


class Spec(NamedTuple):
    obs_shape: tuple
    obs_dtype: np.dtype
    action_space: gym.Space


FLOATS, IMAGE = np.dtype(np.float32), np.dtype(np.uint8)
BOX = gym.spaces.Box(-1, 1, (3,))
CASES = {
    "separate mlp": (Spec((5,), FLOATS, gym.spaces.Discrete(4)), {}),
    "masked choices": (Spec((2, 3), FLOATS, gym.spaces.MultiDiscrete([3, 2])), {}),
    "gaussian": (Spec((5,), FLOATS, BOX), {}),
    "rpo": (Spec((5,), FLOATS, BOX), {}),
    "shared mlp": (Spec((5,), FLOATS, gym.spaces.Discrete(4)), {"shared_network": True}),
    "lstm": (Spec((5,), FLOATS, gym.spaces.Discrete(4)), {"recurrent": "lstm", "memory_size": 8}),
    "gru": (Spec((5,), FLOATS, gym.spaces.Discrete(4)), {"recurrent": "gru", "memory_size": 8}),
    "nature cnn": (Spec((2, 40, 44), IMAGE, gym.spaces.Discrete(4)), {"model": "cnn"}),
    "impala cnn": (Spec((3, 13, 16), IMAGE, gym.spaces.Discrete(4)), {"model": "impala"}),
}
SMALL = [name for name in CASES if "cnn" not in name]


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def config(case, **changes):
    return Config(num_envs=N, num_steps=T, total_timesteps=10_000, hidden_size=16, num_minibatches=2, update_epochs=2,
                  **CASES[case][1] | changes)


def both_agents(case):
    """The torch agent in float64 with larger heads than the initial ones, the JAX agent, and torch's weights for it."""
    (spec, _), cfg, rpo = CASES[case], config(case), case == "rpo"
    torch.manual_seed(7)
    ours = torch_assemble.assemble(spec, cfg, *[lambda net, size: TorchRPOHead(net, size, 0.5)] * rpo).double()
    theirs = jax_assemble.assemble(spec, cfg, *[lambda net, size: JaxRPOHead(net, size, 0.5)] * rpo)
    with torch.no_grad():
        for p in ours.parameters():
            p.add_(torch.randn(p.shape, dtype=p.dtype) * 0.05)
    return ours, theirs, {name: jnp.asarray(p.detach().numpy()) for name, p in ours.named_parameters()}


def data(case, seed=0):
    """One rollout with ends, filler rows and masks, as numpy; returns (rollout, ret, memory)."""
    spec, rng, cfg = CASES[case][0], np.random.default_rng(seed), config(case)
    obs = rng.integers(0, 256, (T, N, *spec.obs_shape)).astype(np.uint8) if spec.obs_dtype == np.uint8 \
        else rng.normal(size=(T, N, *spec.obs_shape))
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
    flags = rng.random((4, T, N)) < 0.2
    terminated, done = flags[0], flags[0] | flags[1]
    numbers = [rng.normal(size=(T, N)) for _ in range(5)]
    rollout = Rollout(obs, flags[2], mask, action, -1 - np.abs(numbers[0]), numbers[1], numbers[2], numbers[3],
                      terminated, done, ~flags[3])
    parts = {"lstm": 2, "gru": 1}.get(cfg.recurrent, 0)
    return rollout, numbers[4], tuple(rng.normal(size=(N, 8)) * 0.1 for _ in range(parts))


def to_torch(tree):
    return None if tree is None else torch.from_numpy(np.ascontiguousarray(tree))


def draws(case, seed=0):
    """The same permutation, and noise for learning where there is some, for both."""
    rng = np.random.default_rng(seed + 100)
    rows = N if CASES[case][1].get("recurrent") else T * N
    index = np.stack([rng.permutation(rows) for _ in range(2)]).reshape(2, 2, -1)
    return index, rng.uniform(-0.5, 0.5, (*index.shape, 3)) if case == "rpo" else None


@pytest.mark.parametrize("case", CASES)
def test_the_same_weights_give_the_same_distribution_value_and_memory(case):
    ours, theirs, weights = both_agents(case)
    rollout, _, memory = data(case)
    with torch.no_grad():
        lead = (to_torch(rollout.obs), to_torch(rollout.mask), to_torch(rollout.first), tuple(map(to_torch, memory)))
        dist, value, state = ours(*lead)
        expected = [dist.logprob(to_torch(rollout.action)), dist.entropy(), dist.mode(), value, *state]
    agent = make_bind(theirs)(weights)
    dist, value, state = agent(*(None if x is None else jnp.asarray(x) for x in (rollout.obs, rollout.mask,
                                                                                 rollout.first)), memory)
    got = [dist.logprob(rollout.action), dist.entropy(), dist.mode(), value, *state]
    for a, b in zip(expected, got, strict=True):
        np.testing.assert_allclose(np.asarray(b), a.numpy(), atol=ATOL, rtol=0)


@pytest.mark.parametrize("case", CASES)
def test_both_build_the_same_parameters_with_the_same_spread(case):
    """Names, shapes and the sizes of first weights; bias and logstd are exactly equal, orthogonal norms too."""
    spec, cfg = CASES[case][0], config(case)
    torch.manual_seed(0)
    ours = {name: p.detach().numpy() for name, p in torch_assemble.assemble(spec, cfg).named_parameters()}
    theirs = jax_assemble.assemble(spec, cfg)
    drawn = initial_weights(theirs, np.random.default_rng(0))
    assert {name: x.shape for name, x in drawn.items()} == {name: x.shape for name, x in ours.items()}
    assert {name: x.shape for name, x in named_parameters(theirs).items()} == {n: x.shape for n, x in ours.items()}
    for name, x in drawn.items():
        expected = np.linalg.norm(ours[name])
        assert np.linalg.norm(x) == pytest.approx(expected, rel=1e-5 if "impala" not in case else 0.35), name


@pytest.mark.parametrize("gae_lambda", [0.95, 1.0, 0.0])
def test_gae_is_the_same(gae_lambda):
    rollout, _, _ = data("separate mlp")
    rows = [rollout.reward, rollout.value, rollout.next_value, rollout.terminated, rollout.done]
    expected = torch_gae(*map(to_torch, rows), 0.99, gae_lambda).numpy()
    np.testing.assert_allclose(np.asarray(jax_gae(*map(jnp.asarray, rows), 0.99, gae_lambda)), expected, atol=1e-12)


@pytest.mark.parametrize("norm_adv", ["minibatch", "batch", "none"])
@pytest.mark.parametrize("case", ["separate mlp", "lstm"])
def test_advantages_are_normalised_alike(case, norm_adv):
    """Torch returns float32, hence the tolerance; a deviation of ddof 1 would be off by 3 per cent."""
    rollout, _, _ = data(case)
    cfg, (index, _), recurrent = config(case, norm_adv=norm_adv), draws(case), case == "lstm"
    expected, count = torch_normalize_advantage(to_torch(rollout.reward), to_torch(rollout.valid), to_torch(index),
                                                 recurrent, cfg, lambda x: x)
    rows, number = jax_normalize_advantage(jnp.asarray(rollout.reward), jnp.asarray(rollout.valid), index, recurrent,
                                            cfg, lambda x: x)
    np.testing.assert_allclose(np.asarray(rows), expected.numpy(), atol=1e-6, rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(number), count.numpy())


def test_explained_variance_is_the_same():
    rollout, ret, _ = data("separate mlp")
    expected = torch_explained_variance(to_torch(rollout.value), to_torch(ret), to_torch(rollout.valid), lambda x: x)
    got = jax_explained_variance(*map(jnp.asarray, (rollout.value, ret, rollout.valid)), lambda x: x)
    assert float(got) == pytest.approx(expected, abs=ATOL)


@pytest.mark.parametrize("clip_vloss", [True, False])
def test_the_loss_and_its_gradient_are_the_same(clip_vloss):
    rng, cfg = np.random.default_rng(1), config("separate mlp", clip_vloss=clip_vloss)
    rows = {name: rng.normal(size=40) * 0.3 for name in LossInputs._fields[:7]}
    valid, count, clip = rng.random(40) > 0.2, np.float64(31), np.float64(0.2)
    tensors = {name: to_torch(x).requires_grad_() for name, x in rows.items()}
    loss, stats = torch_ppo_loss(LossInputs(**tensors, valid=to_torch(valid), count=torch.tensor(count),
                                            clip_coef=torch.tensor(clip)), cfg)
    loss.backward()

    def loss_of(rows):
        return jax_ppo_loss(LossInputs(**rows, valid=jnp.asarray(valid), count=count, clip_coef=clip), cfg)

    (other, others), gradients = jax.value_and_grad(loss_of, has_aux=True)(jax.tree.map(jnp.asarray, rows))
    assert float(other) == pytest.approx(loss.item(), abs=ATOL)
    assert {k: float(x) for k, x in others.items()} == pytest.approx({k: float(x) for k, x in stats.items()}, abs=ATOL)
    for name in ("logprob", "value", "entropy"):  # what a network changes
        np.testing.assert_allclose(np.asarray(gradients[name]), tensors[name].grad.numpy(), atol=ATOL)


def updated_by_torch(case, cfg, agent, batches):
    adam, learner = make_learner(agent, cfg)
    adam.step.data = adam.step.double()
    stats = {}
    for rollout, ret, memory, minibatches in batches:
        rows = Rollout(*map(to_torch, rollout))
        batch = torch_make_batch(rows, to_torch(ret), tuple(map(to_torch, memory)), agent.recurrent)
        stats = torch_update(learner, batch, Minibatches(*map(to_torch, minibatches)), 1e-3, cfg.clip_coef, cfg)
    return {name: p.detach().numpy() for name, p in agent.named_parameters()}, stats, float(adam.step)


def updated_by_jax(case, cfg, agent, weights, batches):
    learner = JaxLearner(agent=agent, bind=make_bind(agent), loss_fn=jax_ppo_loss, all_reduce_sum=lambda x: x,
                         unroll=False)
    rate, clip = (jnp.asarray(x, jnp.float32) for x in (1e-3, cfg.clip_coef))

    @jax.jit
    def step(adam, rollout, ret, memory, minibatches):
        batch = jax_make_batch(rollout, ret, memory, agent.recurrent)
        return jax_update(learner, adam, batch, minibatches, rate, clip, cfg)

    adam, stats = start_adam(weights), {}
    for batch in batches:
        adam, stats = step(adam, *batch)
    assert step._cache_size() == 1, "the update was compiled more than once"
    return adam.weights, {name: float(x) for name, x in stats.items()}, float(adam.step)


def batches_of(case, cfg, number):
    for seed in range(number):
        (rollout, ret, memory), (index, noise) = data(case, seed), draws(case, seed)
        advantage = np.random.default_rng(seed).normal(size=(T, N))
        rows, count = torch_normalize_advantage(to_torch(advantage), to_torch(rollout.valid), to_torch(index),
                                                 bool(memory), cfg, lambda x: x)
        yield rollout, ret, memory, Minibatches(index=index, advantage=rows.double().numpy(),
                                                count=count.double().numpy(), noise=noise)


@pytest.mark.parametrize(("case", "updates", "change"), [
    *[(case, 25, {}) for case in SMALL], ("nature cnn", 2, {}), ("impala cnn", 2, {}),
    ("separate mlp", 25, {"target_kl": 0.05}), ("separate mlp", 25, {"clip_vloss": False, "norm_adv": "batch"}),
    ("separate mlp", 25, {"max_grad_norm": 100.0, "ent_coef": 0.1})])
def test_after_many_updates_the_weights_are_the_same(case, updates, change):
    """25 updates of 4 minibatches: 100 steps of Adam on fresh data."""
    ours, theirs, weights = both_agents(case)
    cfg = config(case, **change)
    expected, stats, steps = updated_by_torch(case, cfg, ours, batches_of(case, cfg, updates))
    got, others, number = updated_by_jax(case, cfg, theirs, weights, batches_of(case, cfg, updates))
    assert number == steps and (steps == 4 * updates or "target_kl" in change)
    moved = max(float(np.abs(expected[name] - np.asarray(weights[name])).max()) for name in expected)
    assert moved > 1e-3, "nothing was learned, so nothing was compared"
    for name, x in expected.items():
        np.testing.assert_allclose(np.asarray(got[name]), x, atol=2e-8, rtol=0, err_msg=name)
    assert others == pytest.approx(stats, abs=1e-6)
