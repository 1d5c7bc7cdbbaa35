"""Communication between the processes that learn together (detail A2)."""

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from proximo.config import Config
from proximo.envs.moments import Statistics
from proximo.envs.normalize import merge_statistics, to_numpy
from proximo.errors import PeerError
from proximo.processes import (
    World,
    check_shares,
    connect_presence,
    refuse_different_starts,
    waiting,
    world_from_environment,
)
from proximo.protocols import Episode

Result = TypeVar("Result")


def join(cfg: Config) -> World:
    """Join the other processes that torchrun started.

    Raises:
        UsageError: Sizes cannot be divided among the processes.
        PeerError: Others have not come within cfg.collective_timeout.
    """
    world = world_from_environment()
    if world.size > 1 or cfg.device_ids:
        check_shares(cfg, world.size, "processes")
    if world.size > 1 and not dist.is_initialized():
        return _connect(world, cfg.backend, timedelta(seconds=cfg.collective_timeout))
    return world


def _connect(world: World, backend: str, timeout: timedelta) -> World:
    """Create the process group in the store of torchrun, or of the first process."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    seconds = timeout.total_seconds()

    def meet() -> tuple[dist.Store, list[int]]:
        serves = world.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        if not serves:
            wait_for_listener(address, port, seconds)
        store = dist.TCPStore(address, port, is_master=serves, timeout=timeout, wait_for_workers=False,
                              multi_tenant=serves)
        return meet_in_store(store, world, seconds)

    waited = f"within {seconds:g} s (--collective-timeout)"
    try:
        store, absent = call_within(seconds + 1, meet)
        if not absent:
            presence = call_within(seconds + 1, lambda: connect_presence(
                world, address, publish=partial(store.set, "presence"),
                look_up=lambda: store.get("presence").decode(), seconds=seconds))
            dist.init_process_group(backend, store=store, rank=world.rank, world_size=world.size, timeout=timeout)
            return world._replace(presence=presence)
    except (RuntimeError, OSError) as error:
        raise PeerError(f"Rank {world.rank} of {world.size} could not reach the others at {address}:{port} {waited} "
                        f"({first_sentence(error)}).") from error
    raise PeerError(f"{shown_ranks(absent, world)} did not start {waited}. Start as many processes as WORLD_SIZE "
                    f"says, where they reach {address}:{port}.")


def meet_in_store(store: dist.Store, world: World, seconds: float) -> tuple[dist.Store, list[int]]:
    """Wait for the other processes, and agree with them on a part of the store that no earlier group has used.

    The store of torchrun outlives the processes, whose number and ranks can be others after a restart. What the
    processes before have written in it would be taken for an answer. So each process asks with a new random token, and
    the first one answers each token with the name of the part.

    Returns:
        That part of the store, and the ranks that have not come.
    """
    begin, token = time.monotonic(), secrets.token_hex(8)
    if world.rank > 0:
        store.set(f"ask/{world.rank}", token)
        try:
            store.wait([f"answer/{token}"], timedelta(seconds=seconds))
        except dist.DistError:
            return store, [0]
        group = dist.PrefixStore(store.get(f"answer/{token}").decode(), store)
        return group, call_roll(group, world, seconds - (time.monotonic() - begin))

    def answer() -> None:
        for asked in [f"ask/{rank}" for rank in range(1, world.size) if store.check([f"ask/{rank}"])]:
            store.set(f"answer/{store.get(asked).decode()}", token)

    group = dist.PrefixStore(token, store)
    return group, call_roll(group, world, seconds, meanwhile=answer)


def wait_for_listener(address: str, port: int, seconds: float) -> None:
    """Wait until a process listens at an address. torch would do so too, but prints what it calls while it waits.

    Raises:
        TimeoutError: No process does.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((address, port), timeout=seconds + 1).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise TimeoutError(f"{error.strerror or error}") from error
        time.sleep(0.2)


def first_sentence(error: Exception) -> str:
    """Return the first sentence of the message of an error without torch's file name, or its type if it has none."""
    line = next(iter(str(error).splitlines()), type(error).__name__)
    return line.rpartition(".cc:")[2].partition("] ")[2].partition(". ")[0] if ".cc:" in line else line


def call_within(seconds: float, call: Callable[[], Result]) -> Result:
    """Return what `call` returns. It runs in a thread: a store whose process is stopped never answers.

    Raises:
        TimeoutError: It has not returned in time.
    """
    answer: Future[Result] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return answer.result(seconds)


def call_roll(store: dist.Store, world: World, seconds: float,
              meanwhile: Callable[[], None] = lambda: None) -> list[int]:
    """Say in the store that this rank has started, and wait for the others.

    Args:
        store: The store that all ranks share.
        world: The processes.
        seconds: How long to wait.
        meanwhile: Called again and again while it waits.

    Returns:
        The ranks that have not come.
    """
    store.set(f"started/{world.rank}", "here")
    end, absent = time.monotonic() + seconds, list(range(world.size))
    while True:
        meanwhile()
        absent = [rank for rank in absent if not store.check([f"started/{rank}"])]
        if not absent or time.monotonic() > end:
            return absent
        time.sleep(0.05)


def shown_ranks(ranks: list[int], world: World) -> str:
    """Return ranks as a message shows them."""
    return f"Rank{'s' * (len(ranks) > 1)} {' and '.join(map(str, ranks))} of {world.size}"


@contextmanager
def lost_peers_named(world: World) -> Iterator[None]:
    """Raise PeerError, with the ranks that are lost, where the communication inside fails.

    gloo says that it failed, but not by whose fault.
    """
    try:
        with waiting(world.presence):
            yield
    except RuntimeError as error:
        ranks = world.presence.lost() if world.presence else []
        named = f": {shown_ranks(ranks, world).lower()}" if ranks else ""
        raise PeerError(f"Another process of this run has ended or cannot be reached{named} "
                        f"({first_sentence(error)}).") from error


def all_reduce_sum(world: World) -> Callable[[Tensor], Tensor]:
    """Return a function that adds a tensor over all ranks, in place. With one rank it returns the tensor as it is."""
    def reduce_sum(x: Tensor) -> Tensor:
        with lost_peers_named(world):
            dist.all_reduce(x)
        return x

    return (lambda x: x) if world.size == 1 else reduce_sum


def check_same_start(world: World, iteration: int, device: torch.device) -> None:
    """Check that all ranks, which learn on such devices, continue after the same iteration; FilesError otherwise."""
    if world.size > 1:
        found = torch.zeros(world.size, device=device)
        found[world.rank] = iteration
        refuse_different_starts(all_reduce_sum(world)(found).tolist())


def merge_over_ranks(world: World, base: Statistics | None, local: Statistics | None) -> Statistics | None:
    """Add up, in numpy, what all ranks saw since `base`, which is equal on all of them; see merge_statistics."""
    if world.size == 1:
        return to_numpy(local)
    base, local, reduce_sum = to_numpy(base), to_numpy(local), all_reduce_sum(world)
    if base is None or local is None:
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
    with lost_peers_named(world):
        dist.all_gather(every, tensor)
    finished, ret, length, rows = torch.cat(every, 2).cpu().numpy()
    everyone = Episode(finished=finished > 0, ret=ret.astype(np.float32), length=length.astype(np.int32))
    return everyone, rows.sum(1, dtype=int)


def leave(world: World) -> None:
    """Leave the other processes."""
    if world.size > 1 and dist.is_initialized():
        dist.destroy_process_group()
    if world.presence is not None:
        world.presence.close()
