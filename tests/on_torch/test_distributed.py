"""Two ranks learn as one (detail A2): the update with sums over ranks, in two threads, against the update of one rank.
Ranks that do not come, or are lost, are named."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
import torch.distributed as dist

from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.envs.normalize import start_statistics
from proximo.errors import PeerError, UsageError
from proximo.on_torch.agent import SeparateAgent
from proximo.on_torch.assemble import assemble
from proximo.on_torch.box_heads import make_rpo_head
from proximo.on_torch.distributed import join, lost_peers_named, merge_metrics, merge_over_ranks
from proximo.on_torch.distributions import CategoricalHead
from proximo.on_torch.learner import explained_variance, minibatch_indices
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.mlp import MLP
from proximo.on_torch.presence import WAITS, WORKS
from proximo.on_torch.setup import set_up
from proximo.on_torch.train import learn
from proximo.on_torch.value_norm import count_returns
from proximo.processes import World
from proximo.types import Rollout
from proximo.variants import RPO
from tests.support.spec import Spec
from tests.support.threads import run_ranks
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


def test_counts_of_ranks_are_added_up_and_other_metrics_averaged():
    """Over the ranks that have them."""
    nan, meeting = float("nan"), Meeting(2)
    own = [{"charts/env_restarts": 2.0, "charts/speed": 3.0, "charts/late": nan, "charts/never": nan},
           {"charts/env_restarts": 1.0, "charts/speed": 5.0, "charts/late": 7.0, "charts/never": nan}]
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda rank: merge_metrics(own[rank], meeting.all_reduce_sum(rank), torch.device("cpu")), range(2)))
    for found in both:
        np.testing.assert_equal(found, {"charts/env_restarts": 3, "charts/speed": 4, "charts/late": 7, "charts/never": nan})
    assert merge_metrics({}, None, torch.device("cpu")) == {}


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

    run_ranks(work, (0, 1))
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


def test_ranks_have_the_moments_of_all_returns():
    """--norm-value: those of one rank with all rows, where one of two has filler rows, and then nothing else."""
    rollout, _, ret = make_rollout()
    cfg = replace(WHOLE, norm_value=True, hidden_sizes=(8,))
    spec = Spec((OBS,), np.dtype(np.float32), gym.spaces.Discrete(ACTIONS))
    whole, halves, meeting = assemble(spec, cfg), [assemble(spec, cfg) for _ in range(2)], Meeting(2)
    for valid in (rollout.valid, rollout.valid & (torch.arange(N) < N // 2)):
        count_returns(whole, ret, valid, lambda x: x)
        parts = list(zip(ret.split(N // 2, 1), valid.split(N // 2, 1)))
        run_ranks(lambda rank, parts=parts: count_returns(halves[rank], *parts[rank], meeting.all_reduce_sum(rank)), (0, 1))
    for name in ("return_mean", "return_var", "return_count"):
        one, other, expected = (getattr(agent.critic, name) for agent in (*halves, whole))
        assert torch.equal(one, other)
        torch.testing.assert_close(one, expected)
    assert whole.critic.return_count == pytest.approx(int(rollout.valid.sum()) + T * N // 2)


def test_ranks_shuffle_and_draw_noise_of_their_own():
    """In an update from the same rollout: otherwise rows with the same number would meet on all ranks."""
    cfg = RPO(env_id="Pendulum-v1", rpo_alpha=0.5, num_envs=2, num_steps=8, num_minibatches=2, total_timesteps=16)
    setup, drawn = set_up(cfg, make_gym, partial(assemble, make_box=make_rpo_head), ppo_loss, None), []
    played = setup.collect(setup.envs, setup.normalizer, setup.carry, setup.storage,
                           setup.agent.head.noise(torch.Generator(), cfg.num_steps, cfg.num_envs))
    setup.envs.close()

    def note(batch, minibatch, learning_rate, coefficients):
        drawn[-1].append((minibatch.index.tolist(), minibatch.noise.tolist()))
        return setup.learner.step(batch, minibatch, learning_rate, coefficients)

    noting = setup._replace(learner=setup.learner._replace(step=note))
    for rank in (0, 0, 1):
        drawn.append([])
        learn(noting._replace(world=World(rank, 2, rank, 2)), played.rollout, (), 1, cfg)
    one, again, other = drawn
    assert one == again and all(a != c and b != d for (a, b), (c, d) in zip(one, other, strict=True))


class Lost:
    """Names ranks as a Presence does, and notes what this process does."""

    def __init__(self, ranks):
        self.ranks, self.status = ranks, WORKS

    def lost(self):
        assert self.status == WAITS
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
        assert presence.status == WAITS
    assert presence.status == WORKS


def test_an_error_that_is_no_lost_peer_stays_what_it_is():
    """A group that, like one of NCCL, knows no tensors of the CPU; and an error of the code inside."""
    world, statistics = World(0, 2, 0, 2, Lost([1])), start_statistics(2, (3,))
    dist.init_process_group("cuda:gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
            merge_over_ranks(world, statistics, statistics, torch.device("cpu"))
    finally:
        dist.destroy_process_group()
    with pytest.raises(RuntimeError, match="^out of memory$"), lost_peers_named(world):
        raise RuntimeError("out of memory")


def test_statistics_are_added_on_the_device_that_learns(monkeypatch):
    """NCCL adds tensors of GPUs only. Without a GPU, the device without data takes its place."""
    class Added(Exception):
        pass

    def all_reduce(x):
        raise Added(x.device.type)

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    statistics = start_statistics(2, (3,))
    with pytest.raises(Added, match="meta"):
        merge_over_ranks(World(0, 2, 0, 2), statistics, statistics, torch.device("meta"))


def start_in_environment(monkeypatch, rank, size):
    """Set what torchrun sets for a process of one machine, at a port where nobody listens."""
    for name, value in (("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", size), ("LOCAL_WORLD_SIZE", size),
                        ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", free_port())):
        monkeypatch.setenv(name, str(value))


def test_nccl_without_gpus_is_refused_before_any_process_waits(monkeypatch):
    start_in_environment(monkeypatch, 0, 2)
    with pytest.raises(UsageError, match="^backend=nccl connects GPUs, and this process learns on the CPU. Use --back"):
        join(Config(backend="nccl", device="cpu"))


@pytest.mark.parametrize(("rank", "sentence"), [
    (0, "^Rank 1 of 2 did not start within 0.5 s .--collective-timeout.. Start as many processes as WORLD_SIZE says"),
    (1, "^Rank 1 of 2 could not reach the others at 127.0.0.1:[0-9]+ within 0.5 s .* .Connection refused..$")])
def test_a_process_that_never_comes(rank, sentence, monkeypatch):
    start_in_environment(monkeypatch, rank, 2)
    with pytest.raises(PeerError, match=sentence):
        join(Config(collective_timeout=0.5))
    assert not dist.is_initialized()
