"""The algorithm on one screen: collect, estimate advantages, update. Logging, saving and stopping happen outside."""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import torch

from proximo.config import Config
from proximo.envs.episodes import finished_episodes
from proximo.envs.normalize import merge_statistics
from proximo.errors import NumbersError
from proximo.on_torch.distributed import gather_episodes, leave, sum_arrays
from proximo.on_torch.gae import gae
from proximo.on_torch.learner import explained_variance, make_batch, minibatch_indices, normalize_advantage, update
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.rollout import collect
from proximo.on_torch.setup import MakeEnvs, rebuild, set_up, torch_generator
from proximo.on_torch.snapshot import named_weights, snapshot
from proximo.streams import stream_generator
from proximo.types import Iteration, Minibatches


def train(cfg: Config, make_envs: MakeEnvs, make_agent: Callable[..., Any], loss_fn: Callable[..., Any] = ppo_loss,
          state: dict[str, Any] | None = None) -> Generator[Iteration, None, None]:
    """Proximal policy optimization (Schulman et al. 2017, algorithm 1).

    Environments whose state cannot be saved are made again every cfg.checkpoint_every iterations, resumed or not.

    Args:
        cfg: The hyper-parameters.
        make_envs: (cfg, seeds) -> environments, one per seed.
        make_agent: (envs, cfg) -> the agent, an nn.Module; see proximo.protocols.Agent.
        loss_fn: (LossInputs, cfg) -> the loss and named statistics.
        state: The snapshot() of an earlier Iteration, to continue from.

    Yields:
        One Iteration after every update.

    Raises:
        UsageError: The configuration, the environments or the snapshot do not fit.
        EnvError: An environment failed.
        NumbersError: The loss or its gradient is not finite.
    """
    setup = set_up(cfg, make_envs, make_agent, loss_fn, state)
    world, agent, adam, learner, merged = setup.world, setup.agent, setup.adam, setup.learner, setup.statistics
    envs, carry = setup.envs, setup.carry
    done_before, steps = (state["iteration"], state["steps"]) if state else (0, 0)
    try:
        for iteration in range(done_before + 1, cfg.num_iterations + 1):
            if not setup.keeps_state and iteration > 1 and (iteration - 1) % cfg.checkpoint_every == 0:
                envs, carry = rebuild(setup._replace(envs=envs), cfg, make_envs, iteration)
            rate, clip = cfg.learning_rate_at(iteration), cfg.clip_coef_at(iteration)
            with torch.no_grad():
                noise = agent.head.noise(torch_generator(cfg, "action", iteration, world), cfg.num_steps, envs.num_envs)
                start = carry.state
                rollout, carry, episode, metrics = collect(setup.policy, envs, carry, setup.storage,
                                                           noise.to(setup.device))
                no_bootstrap = rollout.terminated if cfg.bootstrap_truncated else rollout.done
                advantage = gae(rollout.reward, rollout.value, rollout.next_value, no_bootstrap, rollout.done,
                                cfg.gamma, cfg.gae_lambda)
                ret = advantage + rollout.value
                index = minibatch_indices(cfg, rollout.valid.shape, agent.recurrent, stream_generator(
                    cfg.seed, "minibatch", iteration, world.rank)).to(setup.device)
                normalized, count = normalize_advantage(advantage, rollout.valid, index, agent.recurrent, cfg,
                                                        learner.all_reduce_sum)
                sequence = rollout.valid.shape[:1] if agent.recurrent else ()
                perturbation = agent.head.learning_noise(torch_generator(cfg, "rpo", iteration, world),
                                                         *index.shape[:2], *sequence, index.shape[-1])
            stats = update(learner, make_batch(rollout, ret, start, agent.recurrent), Minibatches(
                index=index, advantage=normalized, count=count,
                noise=None if perturbation is None else perturbation.to(setup.device)), rate, clip, cfg)
            if not bool(adam.ok):
                raise NumbersError(
                    f"The loss or its gradient is not finite in iteration {iteration}, after {steps} steps. The "
                    "weights are those before it. Lower --learning-rate, or check the rewards.")
            if merged is not None and world.size > 1:
                envs.statistics = merged = merge_statistics(merged, envs.statistics, sum_arrays(world))
            finished, steps = finished_episodes(*gather_episodes(world, episode, rollout.valid), steps)
            stats = {f"losses/{name}": value for name, value in stats.items()} | metrics
            stats["losses/explained_variance"] = explained_variance(rollout.value, ret, rollout.valid,
                                                                    learner.all_reduce_sum)
            stats["charts/learning_rate"] = rate
            yield Iteration(iteration=iteration, steps=steps, stats=stats, finished=finished,
                            snapshot=partial(snapshot, iteration, steps, adam, carry, envs, setup.keeps_state),
                            weights=partial(named_weights, agent), envs=envs, rank=world.rank,
                            keeps_state=setup.keeps_state)
    finally:
        envs.close()
        leave(world)
