"""Two ranks learn as one (detail A2): the update with sums over ranks, in two threads, against the update of one rank.
Ranks that do not come, or are lost, are named."""

import socket
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist

from proximo.config import Config
from proximo.errors import PeerError
from proximo.on_torch.agent import SeparateAgent
from proximo.on_torch.distributed import call_roll, join, lost_peers_named, meet_in_store, wait_for_listener
from proximo.on_torch.distributions import CategoricalHead
from proximo.on_torch.learner import explained_variance, minibatch_indices
from proximo.on_torch.mlp import MLP
from proximo.processes import WAITS, WORKS, World
from proximo.types import Rollout
from tests.support.torch_learning import make_learner, update_once
from tests.support.torchrun import free_port

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


def kl_between_one_rank_and_all():
    """Return a number between the approx_kl of the first epoch of the first rank's rows and that of all rows."""
    parts, once = make_rollout(), replace(WHOLE, update_epochs=1)
    first, whole = (learn_rows(part, once)[1]["approx_kl"] for part in (select_envs(parts, 0, 2), parts))
    assert first < 0.5 * whole
    return 0.5 * (first + whole)


def test_ranks_stop_together_where_one_by_itself_would_continue():
    """The KL of the first rank's rows is below target_kl, that of all rows is above: both stop after one epoch."""
    cfg = replace(WHOLE, target_kl=kl_between_one_rank_and_all())
    assert learn_rows(select_envs(make_rollout(), 0, 2), cfg)[2] == cfg.update_epochs
    assert [minibatches for _, _, minibatches in learn_in_two(cfg)] == [1, 1]


def test_ranks_adapt_one_learning_rate():
    """The KL of the first rank's rows is below half of desired_kl, that of all rows is above: the weights are those of
    one rank with all rows."""
    cfg = replace(WHOLE, desired_kl=2 * kl_between_one_rank_and_all())
    weights, stats, _ = learn_rows(make_rollout(), cfg)
    one, other = learn_in_two(cfg)
    assert torch.equal(one[0], other[0]) and one[1] == other[1] == pytest.approx(stats, rel=1e-4, abs=1e-6)
    torch.testing.assert_close(one[0], weights, rtol=1e-5, atol=1e-6)


def test_a_roll_call_names_who_does_not_come():
    """Against the ranks that said so in the store; ranks that come late are waited for."""
    store = dist.HashStore()
    store.set("started/2", "here")
    threading.Timer(0.3, lambda: store.set("started/3", "here")).start()
    assert call_roll(store, World(0, 5, 0, 5), 1.0) == [1, 4]
    assert store.check(["started/0"])
    for rank in (1, 4):
        store.set(f"started/{rank}", "here")
    assert call_roll(store, World(4, 5, 0, 5), 30.0) == []


def meet(store, ranks, size, seconds=20.0):
    """Let ranks meet in threads; returns, by rank, the value that the first of them has written for all, and who is
    absent."""
    found = {}

    def join_group(rank):
        group, absent = meet_in_store(store, World(rank, size, rank, size), seconds)
        if rank == ranks[0]:
            group.set("name", f"{size}{ranks}")
        if 0 in ranks:
            group.wait(["name"])
        found[rank] = group.get("name").decode() if 0 in ranks else "", absent

    threads = [threading.Thread(target=join_group, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_groups_in_one_store_never_mix():
    """A store that outlives its processes: three meet, then three of whom one does not come, then one that finds no
    first process, then two, then four. No group hears what an earlier one has written."""
    store = dist.HashStore()
    assert meet(store, [0, 1, 2], 3) == dict.fromkeys(range(3), ("3[0, 1, 2]", []))
    assert meet(store, [0, 1], 3, 0.5) == dict.fromkeys(range(2), ("3[0, 1]", [2]))
    assert meet(store, [2], 3, 0.3) == {2: ("", [0])}
    assert meet(store, [0, 1], 2) == dict.fromkeys(range(2), ("2[0, 1]", []))
    assert meet(store, [0, 1, 2, 3], 4) == dict.fromkeys(range(4), ("4[0, 1, 2, 3]", []))


class Lost:
    """Names ranks as a Presence does, and notes what this process does."""

    def __init__(self, ranks):
        self.ranks, self.word = ranks, WORKS

    def lost(self):
        assert self.word == WAITS
        return self.ranks


@pytest.mark.parametrize(("ranks", "named"), [([1], ": rank 1 of 3"), ([1, 2], ": ranks 1 and 2 of 3"), ([], ""),
                                              (None, "")])
def test_a_failed_communication_names_the_lost_ranks(ranks, named):
    presence = None if ranks is None else Lost(ranks)
    with pytest.raises(PeerError) as error, lost_peers_named(World(0, 3, 0, 3, presence)):
        raise RuntimeError("[/gloo/buffer.cc:78] Timed out waiting 4000ms for recv\nand more")
    assert str(error.value) == ("Another process of this run has ended or cannot be reached"
                                f"{named} (Timed out waiting 4000ms for recv).")


def test_a_process_waits_only_while_it_communicates():
    """Otherwise one that hangs in its environment could not be told from those that wait for it."""
    presence = Lost([])
    with lost_peers_named(World(0, 3, 0, 3, presence)):
        assert presence.word == WAITS
    assert presence.word == WORKS


@pytest.mark.parametrize(("rank", "sentence"), [
    (0, "^Rank 1 of 2 did not start within 0.5 s .--collective-timeout.. Start as many processes as WORLD_SIZE says"),
    (1, "^Rank 1 of 2 could not reach the others at 127.0.0.1:[0-9]+ within 0.5 s .* .Connection refused..$")])
def test_a_process_that_never_comes(rank, sentence, monkeypatch):
    for name, value in (("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", 2), ("LOCAL_WORLD_SIZE", 2),
                        ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", free_port())):
        monkeypatch.setenv(name, str(value))
    with pytest.raises(PeerError, match=sentence):
        join(Config(collective_timeout=0.5))
    assert not dist.is_initialized()


def test_a_listener_that_comes_late_is_found():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        threading.Timer(0.3, listener.listen).start()
        wait_for_listener(*listener.getsockname(), 30)
