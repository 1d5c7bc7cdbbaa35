"""The algorithm on one screen: collect, estimate advantages, update. Logging, saving and stopping happen outside."""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from proximo.config import Config
from proximo.envs.calls import call_envs
from proximo.envs.episodes import finished_episodes
from proximo.envs.state.newest import only_newest
from proximo.on_torch.distributed import gather_episodes, leave, merge_metrics, merge_over_ranks
from proximo.on_torch.gae import without_fillers
from proximo.on_torch.learner import explained_variance, make_batch, minibatch_advantages, minibatch_indices, update
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.modes import acting
from proximo.on_torch.repro import failed_update
from proximo.on_torch.setup import Setup, rebuild, set_up, torch_generator
from proximo.on_torch.snapshot import named_weights, snapshot
from proximo.on_torch.value_norm import count_returns
from proximo.problems import checked
from proximo.protocols import LossFn, MakeAgent, MakeEnvs
from proximo.streams import stream_generator
from proximo.types import Coefficients, Iteration, Minibatches, Rollout


@only_newest
def train(cfg: Config, make_envs: MakeEnvs, make_agent: MakeAgent, loss_fn: LossFn = ppo_loss,
          state: dict[str, Any] | None = None, set_up: Callable[..., Any] = set_up) -> Generator[Iteration, None, None]:
    """Proximal policy optimization (Schulman et al. 2017, algorithm 1). Yields one Iteration after every update.

    Args:
        cfg: The hyper-parameters.
        make_envs: (cfg, seeds) -> environments, one per seed. If their state cannot be saved, they are made again every
            cfg.checkpoint_every iterations, and at a resume.
        make_agent: (spec, cfg) -> the agent, an nn.Module; see proximo.protocols.Agent.
        loss_fn: (LossInputs, cfg) -> the loss and named statistics.
        state: The snapshot() of an earlier Iteration, to continue from.
        set_up: Makes everything from these arguments; `collect`, `estimate` and `learner` of it may be replaced.

    Raises:
        UsageError, EnvError, NumbersError: The parts do not fit, an environment failed, the loss is not finite.
    """
    cfg = checked(cfg)
    setup = set_up(cfg, make_envs, make_agent, loss_fn, state)
    world, envs, carry, shared_statistics = setup.world, setup.envs, setup.carry, setup.statistics
    done_before, steps = (state["iteration"], state["steps"]) if state else (0, 0)
    try:
        for iteration in range(done_before + 1, cfg.num_iterations + 1):
            remake = (iteration - 1) % cfg.checkpoint_every == 0 or iteration == done_before + 1  # a resume begins
            if remake and iteration > 1 and not setup.keeps_state:
                envs.close()
                envs, carry = rebuild(setup, carry.statistics, cfg, make_envs, iteration)
            with torch.no_grad(), acting(setup.agent):
                noise = setup.agent.head.noise(torch_generator(cfg, "action", iteration, world), cfg.num_steps,
                                               envs.num_envs).to(setup.device)
                played = setup.collect(envs, setup.normalizer, carry, setup.storage, noise)
            stats = learn(setup, played.rollout, carry.state, iteration, cfg) | merge_metrics(
                played.metrics, setup.learner.all_reduce_sum, setup.device)
            if not bool(setup.adam.ok):
                raise failed_update(setup.agent, setup.normalizer.spec, played.rollout, carry.state, iteration, steps)
            shared_statistics = merge_over_ranks(world, shared_statistics, played.carry.statistics, setup.device)
            carry = played.carry._replace(statistics=shared_statistics)
            finished, steps = finished_episodes(*gather_episodes(world, played.episode, played.rollout.valid), steps)
            yield Iteration(iteration=iteration, steps=steps, stats=stats, finished=finished, players=envs.players,
                            spec=setup.spec, statistics=shared_statistics, keeps_state=setup.keeps_state,
                            call_envs=partial(call_envs, envs), weights=partial(named_weights, setup.agent),
                            snapshot=partial(snapshot, iteration, steps, setup.adam, setup.agent, carry, envs.state,
                                             setup.keeps_state))
    finally:
        leave(world)  # first: the environments of the user may fail to close
        envs.close()


def learn(setup: Setup, rollout: Rollout, start: tuple[Tensor, ...], iteration: int, cfg: Config) -> dict[str, float]:
    """Estimate advantages and train on minibatches; `start` is the recurrent state before the rollout."""
    agent, learner, world = setup.agent, setup.learner, setup.world
    rate = float(cfg.learning_rate_at(iteration))
    with torch.no_grad():
        rollout = without_fillers(rollout)
        advantage = setup.estimate(rollout, cfg)
        ret = advantage + rollout.value
        if cfg.norm_value:
            count_returns(agent, ret, rollout.valid, learner.all_reduce_sum)
        shuffle = stream_generator(cfg.seed, "minibatch", iteration, world.rank)
        index = minibatch_indices(cfg, rollout.reward.shape, agent.recurrent, shuffle).to(setup.device)
        normalized, count = minibatch_advantages(advantage, rollout.valid, index, agent.recurrent, cfg,
                                                 learner.all_reduce_sum)
        noise = agent.head.learning_noise(torch_generator(cfg, "rpo", iteration, world), *normalized.shape)
    minibatches = Minibatches(index=index, advantage=normalized, count=count,
                              noise=None if noise is None else noise.to(setup.device))
    stats = update(learner, make_batch(rollout, ret, start, agent.recurrent), minibatches, rate,
                   Coefficients(cfg.clip_coef_at(iteration), cfg.ent_coef_at(iteration)), cfg)
    stats["explained_variance"] = explained_variance(rollout.value, ret, rollout.valid, learner.all_reduce_sum)
    charts = {"charts/learning_rate": rate * float(setup.adam.scale)}
    return {f"losses/{name}": value for name, value in stats.items()} | charts
