"""Everything between two steps of the environments as one call, against collect(), which makes separate ones."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from proximo.catalog import parts_of
from proximo.config import Config
from proximo.envs.normalize import make_normalizer, start_statistics
from proximo.on_torch.assemble import assemble
from proximo.on_torch.compile.compiled import Compiler, compile_collect
from proximo.on_torch.compile.fused_step import can_fuse, collect_fused
from proximo.on_torch.learner import flat_adam
from proximo.on_torch.rollout import Storage, collect, make_policy
from proximo.on_torch.rollout_groups import GroupedStorage
from proximo.on_torch.setup import first_carry
from proximo.on_torch.train import train
from proximo.problems import checked
from proximo.types import Carry
from proximo.variants import Continuous
from tests.support.scripted import PATTERNS, make_scripted

STEPS = 6
CPU = torch.device("cpu")
FEW = np.array([[0, 0, 0, 2], [0, 0, 0, 1], [0, 0, 0, 0]])  # three of four steps end no episode


class Unusual:
    """Scripted environments with observations and rewards in float64. In some steps without an end of an episode, one
    row is a filler, as of a player who waits, one begins an episode, as when a worker process was replaced, or one
    reports an episode without an end, as a continuing task does."""

    obs_dtype = np.dtype(np.float64)

    def __init__(self, mode, patterns):
        self._envs, self._steps = make_scripted(mode, patterns), 0

    def __getattr__(self, name):
        return getattr(self._envs, name)

    def reset(self):
        step = self._envs.reset()
        return step._replace(obs=step.obs.astype(np.float64) + 1 / 3)

    def step(self, action):
        step, self._steps = self._envs.step(action), self._steps + 1
        flags, episode = {"valid": step.valid.copy(), "first": step.first.copy()}, step.episode
        if self._steps % 4 == 0:
            flags["valid"][0] = False
        elif self._steps % 4 == 1:
            flags["first"][-1] = True
        elif self._steps % 4 == 2:
            episode = episode._replace(finished=np.ones_like(episode.finished), ret=episode.ret + 7)
        return step._replace(obs=step.obs.astype(np.float64) + 1 / 3, reward=step.reward.astype(np.float64) * 1e38,
                             episode=episode, **flags)


def as_arrays(played):
    """Return everything that collecting returned as numpy arrays."""
    rollout, carry, episode, metrics = played
    tensors = [x for x in (*rollout, carry.obs, carry.first) if x is not None]
    statistics = [] if carry.statistics is None else [
        *carry.statistics.obs, *carry.statistics.ret, carry.statistics.running]
    return [*(x.numpy().copy() for x in tensors), *(x.copy() for x in episode), *map(np.asarray, statistics)]


def collected(fused, envs, cfg, rollouts=3):
    """Return what collecting returns for consecutive rollouts, and the number of calls of the compiled function.

    Other processes add to the statistics between two rollouts.
    """
    torch.manual_seed(0)
    calls = []
    normalizer = make_normalizer(cfg, envs)
    agent = assemble(normalizer.spec, cfg)
    carry = first_carry(agent, envs, normalizer, normalizer.start(), CPU)
    storage = Storage(envs, normalizer.spec.obs_dtype, STEPS, agent.head, None, CPU)
    weights, play = flat_adam(agent).weights, partial(collect, make_policy(agent))
    weights.mul_(3)  # actions depend on observations

    def count_calls(function, example, name):
        return lambda *tensors: calls.append(name) or function(*tensors)

    if fused:
        play = compile_collect(collect, agent, weights, storage, carry, cfg,
                               Compiler(count_calls, lambda: None, False, True, fuses_steps=True))
    assert (play.func is collect_fused) == fused
    found, generator = [], torch.Generator().manual_seed(1)
    for _ in range(rollouts):
        noise = agent.head.noise(generator, STEPS, envs.num_envs)
        played = play(envs, normalizer, carry, storage, noise)
        carry = played.carry
        found += as_arrays(played)
        if carry.statistics is not None:
            moments = carry.statistics.obs
            carry = carry._replace(statistics=carry.statistics._replace(
                obs=moments._replace(mean=moments.mean + 1, count=moments.count + 5)))
    return found, len(calls)


def assert_same(expected, found):
    for one, other in zip(expected, found, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        rtol, atol = (3e-6, 1e-6) if one.dtype == np.float32 else (1e-12, 1e-12)
        np.testing.assert_allclose(other, one, rtol=rtol, atol=atol)


@pytest.mark.parametrize("mode", ["same-step", "next-step"])
@pytest.mark.parametrize("patterns", [PATTERNS, FEW, FEW[:1]], ids=["all", "few", "one"])
@pytest.mark.parametrize(("norm_obs", "norm_reward"), [(False, False), (True, True), (True, False), (False, True)])
def test_rollouts_are_those_of_collect(norm_obs, norm_reward, patterns, mode):
    """All patterns of ends and time limits; in "few" and "one", most steps end no episode. One call for each step."""
    cfg = Config(norm_obs=norm_obs, norm_reward=norm_reward, num_envs=len(patterns), num_steps=STEPS, hidden_sizes=(8,))
    expected, _ = collected(False, make_scripted(mode, patterns), cfg)
    found, calls = collected(True, make_scripted(mode, patterns), cfg)
    assert calls == 3 * (STEPS + 1)  # the first action of a rollout needs one, too
    assert_same(expected, found)


@pytest.mark.parametrize("mode", ["same-step", "next-step"])
def test_fillers_and_beginnings_within_an_episode(mode):
    cfg = Config(norm_obs=True, norm_reward=True, num_envs=3, num_steps=STEPS, hidden_sizes=(8,))
    (expected, _), (found, _) = (collected(fused, Unusual(mode, FEW), cfg, rollouts=2) for fused in (False, True))
    assert_same(expected, found)


def some_spec():
    return SimpleNamespace(obs_shape=(1,), obs_dtype=np.dtype(np.float32), action_space=spaces.Discrete(2),
                           observation_space=None)


def test_other_agents_and_buffers_are_refused():
    """What a single call does not cover: groups, masks, memory, metrics, packed rows, values while acting, uint16."""
    envs, cfg = make_scripted("same-step", FEW[:2]), Config(num_envs=2)
    agent = assemble(some_spec(), cfg)

    def make(kind=Storage, first=()):
        return kind(*first, envs, np.dtype(np.float32), STEPS, agent.head, None, CPU)

    carry = Carry(obs=torch.zeros(2, 1), mask=None, first=torch.ones(2) > 0, state=(), statistics=None)
    packed = start_statistics(2, (3,))
    assert can_fuse(agent, make(), carry) and can_fuse(agent, make(), carry._replace(statistics=start_statistics(2, (1,))))
    assert not can_fuse(agent, make(GroupedStorage, (2,)), carry)
    assert not can_fuse(agent, make(), carry._replace(mask=torch.ones(2, 2) > 0))
    assert not can_fuse(agent, make(), carry._replace(statistics=packed))
    assert not can_fuse(agent, make(), carry._replace(obs=torch.zeros(2, 1, dtype=torch.uint16)))
    assert not can_fuse(SimpleNamespace(evaluates_later=True, recurrent=True), make(), carry)
    assert not can_fuse(SimpleNamespace(evaluates_later=False, recurrent=False), make(), carry)
    counted = make()
    counted.metrics = {"wins": np.zeros((STEPS, 2), np.float32)}
    assert not can_fuse(agent, counted, carry)


def test_weights_of_a_compiled_run_are_those_of_an_eager_one_up_to_rounding():
    """Normalised Pendulum, whose time limits end rollouts; training from a snapshot has the same bits as without."""
    cfg = checked(Continuous(env_id="Pendulum-v1", num_envs=2, num_steps=150, num_minibatches=2, update_epochs=2,
                             total_timesteps=150 * 2 * 3, hidden_sizes=(8,), threads=1))
    parts = parts_of("ppo_continuous_action", "torch")

    def weights(cfg, state=None):
        run = train(cfg, parts.make_envs, parts.make_agent, state=state)
        return [(it.weights(), it.snapshot()) for it in run]

    eager, compiled = weights(cfg), weights(replace(cfg, compile=True))
    for (one, _), (other, _) in zip(eager, compiled, strict=True):
        for name, x in one.items():
            np.testing.assert_allclose(other[name], x, rtol=1e-3, atol=1e-4)
    continued = weights(replace(cfg, compile=True), state=compiled[0][1])
    for name, x in compiled[-1][0].items():
        np.testing.assert_array_equal(continued[-1][0][name], x)
