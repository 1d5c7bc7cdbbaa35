"""Communication between the processes that learn together (detail A2)."""

from collections.abc import Callable
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from proximo.config import Config
from proximo.envs.moments import Statistics
from proximo.envs.normalize import merge_statistics, to_numpy
from proximo.processes import World, check_shares, world_from_environment
from proximo.protocols import Episode


def join(cfg: Config) -> World:
    """Join the other processes that torchrun started; UsageError for sizes that cannot be divided among them."""
    world = world_from_environment()
    if world.size > 1 or cfg.device_ids:
        check_shares(cfg, world.size, "processes")
    if world.size > 1 and not dist.is_initialized():
        _join(cfg.backend, timedelta(minutes=10))
    return world


def _join(backend: str, timeout: timedelta) -> None:
    """Create the process group under a name of its own in torchrun's store.

    The store outlives the group. Without a new name, a second run in the same processes would find the addresses of
    the first, where no process listens any more.
    """
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


def merge_over_ranks(world: World, base: Statistics | None, local: Statistics | None) -> Statistics | None:
    """Add up, in numpy, what all ranks saw since `base`, which is equal on all of them; see merge_statistics."""
    base, local, reduce_sum = to_numpy(base), to_numpy(local), all_reduce_sum(world)
    if world.size == 1 or base is None or local is None:
        return local
    return merge_statistics(base, local, lambda x: reduce_sum(torch.from_numpy(np.array(x, np.float64))).numpy())


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
    """Leave the other processes."""
    if world.size > 1 and dist.is_initialized():
        dist.destroy_process_group()
