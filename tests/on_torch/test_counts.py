"""Speed without a clock: the operators that torch dispatches for one acting step and one minibatch step.

They are at most those counted with torch 2.13 and a few more, and none reads a number back from the device.
"""

from collections import Counter
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.on_torch.assemble import assemble
from proximo.on_torch.learner import make_batch, minibatch_indices
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.setup import set_up
from proximo.on_torch.train import train
from proximo.types import Coefficients, Minibatches, Rollout
from proximo.variants import Atari, Continuous, Procgen
from tests.support.torch_learning import make_learner, make_minibatches

T, N = 16, 8
FLAT, IMAGE, PROCGEN = ((4,), np.float32), ((4, 84, 84), np.uint8), ((3, 64, 64), np.uint8)
SIZES = {"num_envs": N, "num_steps": T, "num_minibatches": 4}
TWO, SEVERAL, BOX = gym.spaces.Discrete(2), gym.spaces.MultiDiscrete([3, 2]), gym.spaces.Box(-1, 1, (2,))

# configuration, observations, actions, operators of an acting step and of a minibatch step
KINDS = {
    "mlp": (Config(**SIZES), FLAT, TWO, 11, 281),
    "mlp, several choices": (Config(**SIZES), FLAT, SEVERAL, 16, 321),
    "mlp, gaussian": (Continuous(**SIZES), FLAT, BOX, 12, 294),
    "lstm": (Config(recurrent="lstm", **SIZES), FLAT, TWO, 35, 306),
    "gru": (Config(recurrent="gru", **SIZES), FLAT, TWO, 47, 1037),  # torch has no fused one on the CPU
    "cnn": (Atari(**SIZES), IMAGE, gym.spaces.Discrete(4), 25, 273),
    "impala": (Procgen(**SIZES), PROCGEN, gym.spaces.Discrete(15), 56, 389),
}


class OperatorCount(TorchDispatchMode):
    """Counts every operator below autograd, in the forward and the backward pass."""

    def __init__(self):
        super().__init__()
        self.names = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names[func._overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))

    def reads(self):
        """Return the operators that wait for a result and bring it to Python."""
        return {name for name in self.names if name in ("_local_scalar_dense", "item", "equal", "is_nonzero")}


def make_case(name):
    cfg, (shape, dtype), space, *_ = KINDS[name]
    agent = assemble(SimpleNamespace(obs_shape=shape, obs_dtype=np.dtype(dtype), action_space=space,
                                     observation_space=None), cfg)
    return cfg, agent, torch.zeros(T, N, *shape, dtype=torch.from_numpy(np.empty(0, dtype)).dtype)


def count_acting(agent, obs):
    noise, first = agent.head.noise(torch.Generator(), N), torch.zeros(N, dtype=torch.bool)
    state = agent.initial_state(N)
    with torch.no_grad(), OperatorCount() as counted:
        acted = agent.act(obs[0], None, first, state, noise)
    return acted, counted


@pytest.mark.parametrize("name", KINDS)
def test_acting_step(name):
    _, agent, obs = make_case(name)
    _, counted = count_acting(agent, obs)
    assert counted.reads() == set() and "nonzero" not in counted.names
    assert counted.names.total() <= KINDS[name][3] + 2, counted.names


@pytest.mark.parametrize("name", KINDS)
def test_minibatch_step(name):
    """Gradient, clipping and Adam. A recurrent layer looks once where episodes begin (`nonzero`), nothing else does."""
    cfg, agent, obs = make_case(name)
    _, learner = make_learner(agent, cfg)
    action = torch.stack([count_acting(agent, obs)[0].action] * T)
    numbers, no = torch.randn(T, N), torch.zeros(T, N, dtype=torch.bool)
    rollout = Rollout(obs=obs, first=no, mask=None, action=action, logprob=numbers - 1, value=numbers,
                      next_value=numbers, reward=numbers, terminated=no, done=no, valid=~no)
    index = minibatch_indices(cfg, (T, N), agent.recurrent, np.random.default_rng(0))
    minibatches = make_minibatches(learner, rollout, numbers, index, agent.recurrent, cfg)
    minibatch = Minibatches(*(None if x is None else x[0, 0] for x in minibatches))
    batch = make_batch(rollout, numbers, agent.initial_state(N), agent.recurrent)
    rate, coefficients = torch.tensor(1e-3), Coefficients(torch.tensor(0.2), torch.tensor(0.01))
    with OperatorCount() as counted:
        learner.step(batch, minibatch, rate, coefficients)
    assert counted.reads() == set() and counted.names["nonzero"] == agent.recurrent
    assert counted.names.total() <= 1.03 * KINDS[name][4], counted.names


@pytest.mark.parametrize("recurrent,most", [("none", 11), ("lstm", 37)])
def test_every_further_step_of_a_rollout(recurrent, most):
    """A step of collect() is the acting step and the copies of what it returns. The environments' arrays are written
    into the storage directly."""
    totals = []
    for steps in (16, 32):
        cfg = Config(num_envs=4, num_steps=steps, recurrent=recurrent, threads=1)
        parts = set_up(cfg, make_gym, assemble, ppo_loss, None)
        noise = parts.agent.head.noise(torch.Generator(), steps, 4)
        with torch.no_grad(), OperatorCount() as counted:
            parts.collect(parts.envs, parts.normalizer, parts.carry, parts.storage, noise)
        parts.envs.close()
        assert counted.reads() == set() and counted.names["nonzero"] == 0
        totals.append(counted.names.total())
    assert (totals[1] - totals[0]) / 16 <= most, totals


def test_allocations_of_an_iteration():
    """The blocks of memory that torch requests in one iteration of 32 steps and 16 minibatches: 3,988 with torch 2.13,
    the same number in every iteration, and all of them are returned."""
    counted = []
    loop = train(Config(num_envs=4, num_steps=32, threads=1, total_timesteps=640), make_gym, assemble)
    next(loop)
    for _ in range(3):
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            next(loop)
        sizes = [event.nbytes() for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
        counted.append((sum(size > 0 for size in sizes), sum(sizes)))
    loop.close()
    assert counted[1] == counted[2] and counted[1][1] == 0
    assert counted[1][0] <= 1.1 * 3988  # kernels of other processors may need some more
