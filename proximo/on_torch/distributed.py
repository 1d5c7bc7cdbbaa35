"""Communication between the processes that learn together (detail A2)."""

import ctypes
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from proximo.config import Config
from proximo.envs.arrays.moments import Statistics, merge_statistics, most_merged
from proximo.envs.normalize import to_numpy
from proximo.errors import PeerError, UsageError, is_of_communication
from proximo.on_torch.device import pick_device
from proximo.on_torch.presence import Presence, waiting
from proximo.on_torch.rendezvous import connect, first_sentence, shown_ranks
from proximo.problems import check_shares
from proximo.processes import (
    World,
    refuse_different_settings,
    refuse_different_starts,
    refuse_different_weights,
    settings_numbers,
    world_from_environment,
)
from proximo.protocols import COUNTS, Episode

GIVE_UP_SECONDS = 5.0  # after the loss of a process, for what it had sent before to arrive


def join(cfg: Config) -> World:
    """Join the other processes that torchrun started.

    Raises:
        UsageError: Sizes cannot be divided among the processes, or NCCL is to connect processes without GPUs.
        PeerError: Others have not come within cfg.collective_timeout.
    """
    world = world_from_environment()
    if world.size > 1 or cfg.device_ids:
        check_shares(cfg, world.size, "processes")
    if world.size > 1 and cfg.backend == "nccl" and pick_device(cfg, world).type == "cpu":
        raise UsageError("backend=nccl connects GPUs, and this process learns on the CPU. Use --backend gloo, or "
                         "--device cuda where torch sees a GPU.")
    if world.size > 1 and not dist.is_initialized():
        return connect(world, cfg.backend, timedelta(seconds=cfg.collective_timeout))
    return world


@contextmanager
def lost_peers_named(world: World) -> Iterator[None]:
    """Raise PeerError with the ranks that are lost if a collective operation of the block fails.

    gloo and NCCL report the failure, but not the rank that caused it. Other errors are raised unchanged.
    """
    try:
        with waiting(world.presence):
            yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not is_of_communication(error):
            raise
        ranks = world.presence.lost() if world.presence else []
        named = f": {shown_ranks(ranks, world).lower()}" if ranks else ""
        raise PeerError(f"Another process of this run has ended or cannot be reached{named} "
                        f"({first_sentence(error)}).") from error


def communicate(world: World, operation: Callable[..., Any]) -> None:
    """Run a collective operation, such as partial(dist.all_reduce, x).

    gloo (torch 2.13) does not always notice that the other end of a connection has closed while it sends: the operation
    would then last until cfg.collective_timeout. So it is given up some seconds after `presence` has found a loss.

    Raises:
        PeerError: A process of the run is lost.
    """
    with lost_peers_named(world):
        if world.presence is None or dist.get_backend() != "gloo":
            operation()
        else:
            _wait_unless_lost(operation(async_op=True), world.presence)


def _wait_unless_lost(work: dist.Work, presence: Presence) -> None:
    lost_at = math.inf
    while not work.is_completed():
        with suppress(RuntimeError):  # it is not completed yet; if it has failed, wait() below raises that again
            work.wait(timedelta(seconds=1))
        lost_at = min(lost_at, time.monotonic()) if presence.has_lost else math.inf
        if time.monotonic() - lost_at >= GIVE_UP_SECONDS and not work.is_completed():
            # The destructor of the group would wait for the operation. With one reference more it is never called.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(dist.group.WORLD))
            raise dist.DistError("An operation was given up after the loss of a process")
    work.wait()


def all_reduce_sum(world: World) -> Callable[[Tensor], Tensor]:
    """Return a function that adds a tensor over all ranks, in place. With one rank it returns the tensor as it is."""
    def reduce_sum(x: Tensor) -> Tensor:
        communicate(world, partial(dist.all_reduce, x))
        return x

    return (lambda x: x) if world.size == 1 else reduce_sum


def check_same_start(world: World, iteration: int, device: torch.device) -> None:
    """Check that all ranks, which learn on such devices, continue after the same iteration; FilesError otherwise."""
    if world.size > 1:
        found = torch.zeros(world.size, device=device)
        found[world.rank] = iteration
        refuse_different_starts(all_reduce_sum(world)(found).tolist())


def check_same_settings(world: World, cfg: Config, device: torch.device) -> None:
    """Check that all ranks have the same settings, but for those of logging and machines; UsageError otherwise."""
    if world.size > 1:
        numbers = settings_numbers(cfg)
        found = torch.zeros(world.size, len(numbers), dtype=torch.float64, device=device)
        found[world.rank] = torch.tensor(list(numbers.values()), dtype=torch.float64)
        refuse_different_settings(list(numbers), all_reduce_sum(world)(found).tolist())


def check_same_weights(world: World, weights: Tensor) -> None:
    """Check that all ranks begin with the same weights (P,); UsageError if they do not."""
    if world.size > 1:
        sums = torch.zeros(world.size, 3, dtype=torch.float64, device=weights.device)
        exact = weights.double()
        sums[world.rank] = torch.stack([torch.ones_like(exact).sum(), exact.sum(), exact.square().sum()])
        refuse_different_weights(all_reduce_sum(world)(sums).tolist())


def merge_over_ranks(world: World, base: Statistics | None, local: Statistics | None,
                     device: torch.device) -> Statistics | None:
    """Add up, in numpy, what all ranks saw since `base`, which is equal on all of them; see merge_statistics.

    Sums are computed on the device that learns, because NCCL has no others.
    """
    if world.size == 1:
        return to_numpy(local)
    most, reduce_sum = np.inf if local is None else most_merged(local.obs), all_reduce_sum(world)
    base, local = to_numpy(base), to_numpy(local)
    if base is None or local is None:
        return local
    return merge_statistics(
        base, local, lambda x: reduce_sum(torch.from_numpy(np.array(x, np.float64)).to(device)).cpu().numpy(), most)


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
    communicate(world, partial(dist.all_gather, every, tensor))
    finished, ret, length, rows = torch.cat(every, 2).cpu().numpy()
    everyone = Episode(finished=finished > 0, ret=ret.astype(np.float32), length=length.astype(np.int32))
    return everyone, rows.sum(1, dtype=int)


def leave(world: World) -> None:
    """Leave the other processes."""
    if world.size > 1 and dist.is_initialized():
        dist.destroy_process_group()
    if world.presence is not None:
        world.presence.close()


def merge_metrics(metrics: dict[str, float], reduce_sum: Callable[[Tensor], Tensor],
                  device: torch.device) -> dict[str, float]:
    """Return the metrics of all ranks: the sums of counts, and the means of others over the ranks that have them.

    Args:
        metrics: Those of this rank, under the same names on each.
        reduce_sum: Adds a tensor on `device` over all ranks.
        device: The device that learns.
    """
    if not metrics:
        return metrics
    own = torch.tensor(list(metrics.values()), dtype=torch.float64, device=device)
    total, ranks = reduce_sum(torch.stack([own.nan_to_num(), (~own.isnan()).double()])).tolist()
    return {name: x if name.removeprefix("charts/") in COUNTS else x / n if n else float("nan")
            for name, x, n in zip(metrics, total, ranks, strict=True)}
