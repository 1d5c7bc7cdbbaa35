"""Two ranks learn as one (detail A2): the update with sums over ranks, in two threads, against the update of one rank."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from proximo.config import Config
from proximo.on_torch.agent import SeparateAgent
from proximo.on_torch.distributions import CategoricalHead
from proximo.on_torch.learner import explained_variance, minibatch_indices
from proximo.on_torch.mlp import MLP
from proximo.types import Rollout
from tests.support.torch_learning import make_learner, update_once

T, N, OBS, ACTIONS = 8, 4, 3, 5


class Meeting:
    """Adds the tensors of several threads, as all_reduce adds those of processes."""

    def __init__(self, size):
        self.barrier, self.parts = threading.Barrier(size, timeout=60), [None] * size

    def all_reduce_sum(self, rank):
        def reduce_sum(x):
            self.parts[rank] = x.clone()
            self.barrier.wait()
            total = torch.stack(self.parts).sum(0)
            self.barrier.wait()
            return x.copy_(total)

        return reduce_sum


def make_rollout():
    """Return a rollout whose last environment is mostly filler, its advantages and its returns."""
    torch.manual_seed(5)
    flags, valid = torch.zeros(T, N, dtype=torch.bool), torch.ones(T, N, dtype=torch.bool)
    valid[2:, -1] = False
    logprob = -torch.rand(T, N) - 1
    logprob[:, N // 2:] -= 1.5  # far from the policy that learns: only the second half by itself has a large KL
    rollout = Rollout(obs=torch.randn(T, N, OBS), first=flags, mask=None, action=torch.randint(ACTIONS, (T, N)),
                      logprob=logprob, value=torch.randn(T, N), next_value=torch.randn(T, N), reward=torch.randn(T, N),
                      terminated=flags, done=flags, valid=valid)
    return rollout, torch.randn(T, N), torch.randn(T, N)


def select_envs(parts, start, end):
    """Select environments of (T, N, ...) tensors."""
    rollout, *rest = parts
    kept = Rollout(*(None if x is None else x[:, start:end] for x in rollout))
    return kept, *(x[:, start:end] for x in rest)


def learn_rows(parts, cfg, all_reduce_sum=lambda x: x):
    """Return (weights, statistics, number of minibatches) after one update.

    One minibatch holds all rows, so that no shuffle matters.
    """
    rollout, advantage, ret = parts
    with LOCK:
        torch.manual_seed(3)
        agent = SeparateAgent(MLP([OBS, 8, 1], 1.0), CategoricalHead(MLP([OBS, 8, ACTIONS], 0.5), ACTIONS))
    adam, learner = make_learner(agent, cfg, all_reduce_sum=all_reduce_sum)
    index = minibatch_indices(cfg, rollout.valid.shape, False, np.random.default_rng(0))
    stats = update_once(learner, rollout, advantage, ret, index, 1e-3, cfg)
    stats["explained_variance"] = explained_variance(rollout.value, ret, rollout.valid, all_reduce_sum)
    return adam.weights, stats, int(adam.step)


LOCK = threading.Lock()
WHOLE = Config(num_envs=N, num_steps=T, num_minibatches=1, total_timesteps=1000)


def learn_in_two(cfg):
    """Return the results of two threads, each of which learns from half of the environments."""
    parts, meeting, found = make_rollout(), Meeting(2), [None, None]

    def work(rank):
        found[rank] = learn_rows(select_envs(parts, rank * N // 2, (rank + 1) * N // 2), cfg,
                                 meeting.all_reduce_sum(rank))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("norm_adv", ["minibatch", "batch", "none"])
def test_two_times_two_environments_equal_one_times_four(norm_adv):
    """The same rows, with filler on one rank only: gradient, statistics and therefore weights are the same up to the
    order of sums."""
    cfg = replace(WHOLE, norm_adv=norm_adv)
    weights, stats, minibatches = learn_rows(make_rollout(), cfg)
    one, other = learn_in_two(cfg)
    assert torch.equal(one[0], other[0]) and one[1] == other[1]
    assert one[2] == other[2] == minibatches == cfg.update_epochs
    torch.testing.assert_close(one[0], weights, rtol=1e-5, atol=1e-6)
    assert one[1] == pytest.approx(stats, rel=1e-4, abs=1e-6)


def test_ranks_stop_together_where_one_by_itself_would_continue():
    """The KL of the first rank's rows is below target_kl, that of all rows is above: both stop after one epoch."""
    parts = make_rollout()
    once = replace(WHOLE, update_epochs=1)
    first, whole = (learn_rows(part, once)[1]["approx_kl"] for part in (select_envs(parts, 0, 2), parts))
    assert first < 0.5 * whole
    cfg = replace(WHOLE, target_kl=0.5 * (first + whole))
    assert learn_rows(select_envs(parts, 0, 2), cfg)[2] == cfg.update_epochs
    assert [minibatches for _, _, minibatches in learn_in_two(cfg)] == [1, 1]
