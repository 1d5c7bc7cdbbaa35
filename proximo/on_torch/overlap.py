"""`--overlap`: the next rollout is played while the update runs, by a policy that is exactly one update old.

Rollout k + 1 is played in a thread with the weights before update k, while update k learns from rollout k. Thread and
loop exchange work through two queues of length 1, as in Cleanba (Huang et al. 2023, arXiv 2310.00036), so that results
do not depend on timing. The first two rollouts are played with the first weights.

Learning corrects for the lag by the decoupled objective of Hilton et al. (2021, arXiv 2110.00641). It has two old
policies: the behaviour policy, which acted, and the proximal policy, which the update begins with and stays close to:

    E[ w * min(r * A, clip(r, 1 - epsilon, 1 + epsilon) * A) ],  r = pi / pi_proximal,  w = pi_proximal / pi_behaviour

w is constant during the update and positive. Therefore this is PPO's own objective with the advantage w * A, and any
loss function can be used. Returns and advantages are those of the network that acted; --clip-vloss limits the change of
values since the update began.
"""

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from proximo.config import Config
from proximo.envs.calls import refuse_call
from proximo.envs.episodes import finished_episodes
from proximo.envs.normalize import to_numpy
from proximo.envs.state.newest import only_newest
from proximo.on_torch.distributed import gather_episodes
from proximo.on_torch.learner import make_batch
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.modes import acting
from proximo.on_torch.overlap_collector import RolloutStart, start_collector
from proximo.on_torch.repro import failed_update
from proximo.on_torch.setup import Setup, set_up
from proximo.on_torch.snapshot import named_weights, snapshot
from proximo.on_torch.train import learn
from proximo.problems import checked
from proximo.protocols import MakeEnvs
from proximo.types import Batch, Coefficients, Iteration, Minibatches, Rollout


@only_newest
def train_overlapped(cfg: Config, make_envs: MakeEnvs, make_agent: Callable[..., Any],
                     loss_fn: Callable[..., Any] = ppo_loss,
                     state: dict[str, Any] | None = None) -> Generator[Iteration, None, None]:
    """Do what train() does, and play the next rollout while an update runs; see train() for the arguments.

    A snapshot holds the environments as they were before the rollout in flight, and the weights with which it is
    collected: a resume collects it again.
    """
    cfg = checked(cfg)
    setup = set_up(replace(cfg, overlap=False), make_envs, make_agent, loss_fn, state)
    done_before, steps = (state["iteration"], state["steps"]) if state else (0, 0)
    collector = start_collector(setup, cfg, make_envs, make_agent, state)
    try:
        collector.begin(done_before + 1, setup.carry, first=True)
        for iteration in range(done_before + 1, cfg.num_iterations + 1):
            before, played = collector.finish()
            carry = played.carry._replace(statistics=to_numpy(played.carry.statistics))  # of one process
            rollout, proximal = with_proximal_logprob(setup.agent, played.rollout, cfg.minibatch_size)
            collector.copy_weights(setup.adam.weights)
            collector.begin(iteration + 1, carry)
            stats = learn(decoupled(setup, proximal), rollout, (), iteration, cfg)
            stats = stats | played.metrics | lag_statistics(proximal)
            if not bool(setup.adam.ok):
                raise failed_update(setup.agent, setup.normalizer.spec, rollout, before.carry.state, iteration, steps)
            finished, steps = finished_episodes(*gather_episodes(setup.world, played.episode, rollout.valid), steps)
            yield Iteration(iteration=iteration, steps=steps, stats=stats, finished=finished,
                            snapshot=partial(overlapped_snapshot, iteration, steps, setup, collector.before),
                            weights=partial(named_weights, setup.agent), call_envs=refuse_call,
                            spec=setup.spec, players=setup.envs.players, statistics=carry.statistics,
                            keeps_state=setup.keeps_state)
    finally:
        collector.close()


class Proximal(NamedTuple):
    """What the update needs of the network that it begins with, besides the log-probabilities in the rollout."""

    lag: Tensor  # (T * N,) log w: log-probability under the proximal policy minus that under the one that acted
    value: Tensor  # (T * N,)
    valid: Tensor  # (T * N,) bool; in filler rows `lag` is 0


def with_proximal_logprob(agent: Any, rollout: Rollout, rows: int) -> tuple[Rollout, Proximal]:
    """Return the rollout with log-probabilities of the current network, and its other outputs that the update needs.

    Args:
        agent: The network that learns.
        rollout: Its log-probabilities are those of the policy that acted.
        rows: Number of rows that are evaluated at once.
    """
    batch = make_batch(rollout, rollout.value, (), recurrent=False)
    logprobs, values = [], []
    parts = zip(batch.obs.split(rows), batch.action.split(rows),
                [None] * len(batch.value) if batch.mask is None else batch.mask.split(rows))
    with torch.no_grad(), acting(agent):
        for obs, action, mask in parts:
            dist, value, _ = agent(obs, mask, None, ())
            logprobs.append(dist.logprob(action))
            values.append(value)
        logprob = torch.cat(logprobs)
        lag = torch.where(batch.valid, logprob - batch.logprob, 0.0)
    return rollout._replace(logprob=logprob.view_as(rollout.logprob)), Proximal(lag, torch.cat(values), batch.valid)


def decoupled(setup: Setup, proximal: Proximal) -> Setup:
    """Return a setup whose minibatch step weights advantages, and clips values around those before the update."""
    weight = proximal.lag.exp()

    def step(batch: Batch, minibatch: Minibatches, learning_rate: Tensor,
             coefficients: Coefficients) -> tuple[Tensor, Tensor]:
        advantage = minibatch.advantage * weight[minibatch.index]
        return setup.learner.step(batch._replace(value=proximal.value), minibatch._replace(advantage=advantage),
                                  learning_rate, coefficients)

    return setup._replace(learner=setup.learner._replace(step=step))


def lag_statistics(proximal: Proximal) -> dict[str, float]:
    """Return how far the proximal policy is from the one that acted, over valid rows, as approx_kl is estimated."""
    lag = proximal.lag
    return {"losses/lag_kl": float((lag.exp() - 1 - lag).sum() / proximal.valid.sum().clamp(min=1))}


def overlapped_snapshot(iteration: int, steps: int, setup: Setup, before: RolloutStart) -> dict[str, Any]:
    """Return the content of a checkpoint: that of train() before the rollout in flight, and the weights that act."""
    kept = snapshot(iteration, steps, setup.adam, setup.agent, before.carry, lambda: before.envs, setup.keeps_state)
    return kept | {"acting": before.weights}
