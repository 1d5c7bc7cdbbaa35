"""How the processes that torchrun started find each other, and agree on one group."""

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import TypeVar

import torch.distributed as dist

from proximo.errors import PeerError
from proximo.on_torch.presence import connect_presence
from proximo.processes import World, master_address

Result = TypeVar("Result")


def connect(world: World, backend: str, timeout: timedelta) -> World:
    """Create the process group in the store of torchrun, or of the first process.

    Raises:
        UsageError: The environment has no address of the first process.
        PeerError: Others have not come in time.
    """
    address, port = master_address()
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
            try:
                dist.init_process_group(backend, store=store, rank=world.rank, world_size=world.size, timeout=timeout)
            except BaseException:
                presence.close()
                raise
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
        TimeoutError: `call` has not returned in time.
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
