"""The algorithm on one screen: collect, estimate advantages, update. Who logs, saves or stops stands outside."""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import torch

from proximo.config import Config
from proximo.envs.normalize import merge_statistics
from proximo.errors import NumbersError
from proximo.on_torch.distributed import average, leave, sum_arrays
from proximo.on_torch.gae import gae
from proximo.on_torch.learner import draw, explained_variance, flat_batch, normalized_advantage, update
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.rollout import collect
from proximo.on_torch.setup import over_ranks, rebuilt, set_up, torch_generator
from proximo.on_torch.snapshot import named_weights, snapshot
from proximo.protocols import VecEnv
from proximo.streams import stream_generator
from proximo.types import Iteration


def train(cfg: Config, make_envs: Callable[[Config, list[int]], VecEnv], make_agent: Callable[[VecEnv, Config], Any],
          loss_fn: Callable = ppo_loss, state: dict | None = None) -> Generator[Iteration, None, None]:
    """Proximal policy optimization (Schulman et al. 2017, algorithm 1). Yields after every iteration; `state` is an
    earlier Iteration's snapshot(). Raises UsageError, EnvError, NumbersError.

    Environments whose state cannot be kept are rebuilt every cfg.checkpoint_every iterations, resumed or not."""
    world, device, envs, agent, adam, carry, storage, policy, learner, merged, keeps_state = set_up(
        cfg, make_envs, make_agent, loss_fn, state)
    total = average(world)
    done_before, steps = (state["iteration"], state["steps"]) if state else (0, 0)
    try:
        for iteration in range(done_before + 1, cfg.num_iterations + 1):
            if not keeps_state and iteration > 1 and (iteration - 1) % cfg.checkpoint_every == 0:
                envs, carry = rebuilt(envs, agent, cfg, make_envs, iteration, world, device)
            rate, clip = cfg.learning_rate_at(iteration), cfg.clip_coef_at(iteration)
            with torch.no_grad():
                noise = agent.head.noise(torch_generator(cfg, "action", iteration, world), cfg.num_steps,
                                         envs.num_envs).to(device)
                start = carry.state
                rollout, carry, ended = collect(policy, envs, carry, storage, noise)
                no_bootstrap = rollout.terminated if cfg.bootstrap_truncated else rollout.done
                advantage = gae(rollout.reward, rollout.value, rollout.next_value, no_bootstrap, rollout.done,
                                cfg.gamma, cfg.gae_lambda)
                ret = advantage + rollout.value
                draws = draw(cfg, agent, rollout.valid.shape,
                             stream_generator(cfg.seed, "minibatch", iteration, world.rank),
                             torch_generator(cfg, "rpo", iteration, world), device)
                normalized, count = normalized_advantage(advantage, rollout.valid, draws.minibatch, agent.recurrent,
                                                         cfg, total)
            stats = update(learner, flat_batch(rollout, ret, start, agent.recurrent), normalized, count, draws, rate,
                           clip, cfg, total)
            if not bool(adam.ok):
                raise NumbersError(f"the loss or its gradient is not finite in iteration {iteration}, after {steps} "
                                   "steps; the weights are those before it. Lower --learning-rate or look at rewards")
            if envs.statistics is not None and world.size > 1:
                envs.statistics = merged = merge_statistics(merged, envs.statistics, sum_arrays(world))
            finished, steps = over_ranks(ended, rollout.valid, steps, world)
            stats = {f"losses/{name}": value for name, value in stats.items()} | ended.metrics
            stats["losses/explained_variance"] = explained_variance(rollout.value, ret, rollout.valid, total)
            stats["charts/learning_rate"] = rate
            yield Iteration(iteration, steps, stats, finished,
                            partial(snapshot, iteration, steps, adam, carry, envs, keeps_state),
                            partial(named_weights, agent), envs, world.rank, keeps_state)
    finally:
        envs.close()
        leave(world)
