"""Several processes, started by torchrun, that learn as one (detail A2)."""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from proximo.config import Config
from proximo.errors import UsageError
from proximo.protocols import Episode


class World(NamedTuple):
    """This process among all of them; ranks are global, so several nodes work."""

    rank: int
    size: int
    local_rank: int
    local_size: int


ALONE = World(0, 1, 0, 1)


def world_from_environment() -> World:
    """What torchrun says in the process's environment; ALONE without it."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    return World(*(int(os.environ[name]) for name in names)) if "WORLD_SIZE" in os.environ else ALONE


def join(cfg: Config) -> World:
    """Meet the other processes; returns ALONE where there are none. UsageError for sizes that do not fit."""
    world = world_from_environment()
    if cfg.device_ids and len(cfg.device_ids) != world.size:
        processes = f"{world.size} processes" if world.size > 1 else "1 process"
        raise UsageError(f"--device-ids names {len(cfg.device_ids)} GPUs for {processes}; give one id for "
                         f"each process, such as {' '.join(str(i // 2) for i in range(world.size))}")
    if world.size == 1:
        return ALONE
    if cfg.num_envs % world.size:
        raise UsageError(f"num_envs={cfg.num_envs} does not divide into {world.size} processes; use a multiple")
    local_rows = cfg.num_envs // world.size * (1 if cfg.recurrent != "none" else cfg.num_steps)
    if local_rows % cfg.num_minibatches:
        raise UsageError(f"each of {world.size} processes holds {local_rows} rows, which do not divide into "
                         f"num_minibatches={cfg.num_minibatches}; change num_envs, num_steps or num_minibatches")
    if not dist.is_initialized():
        _meet(cfg.backend, timedelta(minutes=10))
    return world


def _meet(backend: str, timeout: timedelta) -> None:
    """Under a name of its own in torchrun's store, which outlives the group: in a second run of the same processes a
    rank would else find the addresses of the first, where nobody listens any more."""
    store, rank, size = next(rendezvous("env://", timeout=timeout))
    number = (store.add("proximo", 1) - 1) // size
    dist.init_process_group(backend, store=dist.PrefixStore(f"proximo{number}", store), rank=rank, world_size=size,
                            timeout=timeout)


def all_reduce_sum(world: World) -> Callable[[Tensor], Tensor]:
    """Return a function that adds a tensor over all ranks, in place. With one rank it returns the tensor as it is."""
    def reduce_sum(x: Tensor) -> Tensor:
        dist.all_reduce(x)
        return x

    return (lambda x: x) if world.size == 1 else reduce_sum


def sum_arrays(world: World) -> Callable[[np.ndarray], np.ndarray]:
    """The same for float64 numpy arrays (statistics of normalisation)."""
    reduce_sum = all_reduce_sum(world)
    return lambda x: reduce_sum(torch.from_numpy(np.array(x, np.float64))).numpy()


def gather_episodes(world: World, episode: Episode, valid: Tensor) -> tuple[Episode, np.ndarray]:
    """Return the episodes of all ranks, (T, all environments) in order of rank, and the valid rows of each step, (T,).

    Args:
        world: The processes.
        episode: This rank's, (T, N) numpy arrays.
        valid: This rank's valid rows, (T, N) bool, on the device that learns.
    """
    if world.size == 1:
        return episode, valid.sum(1).cpu().numpy()
    own = np.stack([*(np.asarray(x, np.float64) for x in episode), valid.cpu().numpy()])  # exact in float64
    tensor = torch.from_numpy(own).to(valid.device)
    every = [torch.empty_like(tensor) for _ in range(world.size)]
    dist.all_gather(every, tensor)
    finished, ret, length, rows = torch.cat(every, 2).cpu().numpy()
    everyone = Episode(finished=finished > 0, ret=ret.astype(np.float32), length=length.astype(np.int32))
    return everyone, rows.sum(1, dtype=int)


def leave(world: World) -> None:
    """Part from the other processes."""
    if world.size > 1 and dist.is_initialized():
        dist.destroy_process_group()
