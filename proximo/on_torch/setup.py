"""What stands ready before the first step: processes, device, environments, agent, optimizer, closed functions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from proximo.config import Config
from proximo.envs.normalize import Statistics, apply_normalization
from proximo.errors import UsageError, notify
from proximo.on_torch.compiled import can_freeze, frozen_learner, frozen_policy
from proximo.on_torch.device import pick_device, set_up_torch
from proximo.on_torch.distributed import World, gather_objects, join
from proximo.on_torch.learner import Learner, make_learner
from proximo.on_torch.optimizer import Adam, flat_adam
from proximo.on_torch.rollout import Carry, Ended, Policy, Storage
from proximo.on_torch.snapshot import restore
from proximo.protocols import VecEnv
from proximo.streams import env_seeds, stream_seed
from proximo.types import FinishedEpisodes


class Parts(NamedTuple):
    """Everything train() works with."""

    world: World
    device: torch.device
    envs: VecEnv
    agent: Any
    adam: Adam
    carry: Carry
    storage: Storage
    policy: Policy
    learner: Learner
    statistics: Statistics | None  # of normalisation, equal on all ranks: what each rank counts from here on adds up
    keeps_state: bool  # environments are part of the snapshot; otherwise they are rebuilt at every checkpoint


def set_up(cfg: Config, make_envs: Callable, make_agent: Callable, loss_fn: Callable, state: dict | None) -> Parts:
    """Join the other processes, make everything, and put a snapshot back where one is given."""
    if problems := cfg.problems():
        raise UsageError("\n".join(problems))
    world = join(cfg)
    device = pick_device(cfg, world)
    set_up_torch(cfg, world, device)
    envs = apply_normalization(make_envs(cfg, local_seeds(cfg, 0, world)), cfg)
    try:
        agent = seeded_agent(make_agent, envs, cfg).to(device)
        adam = flat_adam(agent)
        statistics = envs.statistics
        carry = first_carry(agent, envs, device)
        frozen = cfg.compile and can_freeze(device)
        whole = state is None or "envs" in state  # False: several processes made this checkpoint
        keeps_state = world.size == 1 and whole and envs.state() is not None
        if not keeps_state and not state:
            notify(f"the state of {cfg.env_id} is not kept: its environments are rebuilt every {cfg.checkpoint_every} "
                "iterations, so that a resumed run equals an uninterrupted one")
        if state:
            carry = restore(state, adam, envs, carry, keeps_state)
            statistics = envs.statistics
        storage = Storage(envs, cfg.num_steps, agent.head, None if carry.mask is None else carry.mask.shape[-1], device)
        policy = Policy(agent.act, agent.value, agent.evaluate if agent.evaluates_later else None)
        learner = make_learner(agent, adam, loss_fn, cfg)
        if world.size > 1:
            learner = learner._replace(step=None)
        if frozen:
            policy = frozen_policy(policy, agent, adam, storage, carry)
            learner = frozen_learner(learner, agent, adam, storage, carry, loss_fn, cfg)
        return Parts(world, device, envs, agent, adam, carry, storage, policy, learner, statistics, keeps_state)
    except BaseException:
        envs.close()
        raise


def local_seeds(cfg: Config, iteration: int, world: World) -> list[int]:
    """Seeds of this rank's environments, made in this iteration."""
    return env_seeds(cfg.seed, cfg.num_envs // world.size, iteration, world.rank)


def seeded_agent(make_agent: Callable[[VecEnv, Config], Any], envs: VecEnv, cfg: Config) -> Any:
    """The agent with weights drawn from stream "init"; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(cfg.seed, "init"))
        return make_agent(envs, cfg)


def torch_generator(cfg: Config, stream: str, iteration: int, world: World) -> torch.Generator:
    """A CPU generator for one stream, so that every device sees the same draws."""
    return torch.Generator().manual_seed(stream_seed(cfg.seed, stream, iteration, world.rank))


def first_carry(agent: Any, envs: VecEnv, device: torch.device) -> Carry:
    """The carry after a reset: every row begins an episode, the memory is zero (detail 33)."""
    step = envs.reset()
    obs, mask, first = (None if x is None else torch.as_tensor(x, device=device).clone()
                        for x in (step.obs, step.mask, step.first))
    return Carry(obs, mask, first, agent.initial_state(envs.num_envs, device))


def rebuilt(envs: VecEnv, agent: Any, cfg: Config, make_envs: Callable, iteration: int,
            world: World, device: torch.device) -> tuple[VecEnv, Carry]:
    """Fresh environments in place of `envs`, seeded by the iteration, with the same statistics."""
    envs.close()
    fresh = apply_normalization(make_envs(cfg, local_seeds(cfg, iteration, world)), cfg)
    if envs.statistics is not None:
        fresh.statistics = envs.statistics._replace(running=fresh.statistics.running)
    return fresh, first_carry(agent, fresh, device)


def over_ranks(ended: Ended, valid: torch.Tensor, steps: int, world: World) -> tuple[FinishedEpisodes, int]:
    """The episodes of all ranks, and the valid decisions of all ranks after this iteration."""
    parts = gather_objects(world, (ended, valid.sum(1).cpu().numpy()))
    played = np.cumsum(sum(counts for _, counts in parts))
    time, row, ret, length = (np.concatenate([part[i] for part, _ in parts]) for i in range(4))
    row = row + np.repeat(np.arange(len(parts)) * valid.shape[1], [len(part.row) for part, _ in parts])
    order = np.argsort(time, kind="stable")
    return FinishedEpisodes(steps + played[time[order]], row[order], ret[order], length[order]), steps + int(played[-1])
