"""The processes that train one agent together, as torchrun starts them (detail A2), and how lost ones are found."""

import os
import re
import secrets
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import NamedTuple

from proximo.config import Config
from proximo.errors import UsageError
from proximo.facts import facts

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
HEARTBEAT_SECONDS = 0.5  # between two messages of a process to rank 0, and back
PEER_TIMEOUT = 10.0  # seconds without a message after which a process is lost, if a collective has failed
GREETING_SECONDS = 5.0  # for a connection to send its rank; other programs may connect too
WORKS, WAITS, FAILED, LOST = "works", "waits", "failed", "lost"


class World(NamedTuple):
    """This process among all of them. Ranks are global: the processes may run on several machines."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    presence: "Presence | None" = None  # None: one process, or not connected yet


ALONE = World(rank=0, size=1, local_rank=0, local_size=1)


def world_from_environment() -> World:
    """Return what torchrun has set in the environment; ALONE without it, UsageError for parts and wrong values."""
    if not (present := [name for name in ("RANK", "WORLD_SIZE") if name in os.environ]):
        return ALONE
    if absent := [name for name in TORCHRUN if name not in os.environ]:
        raise UsageError(f"{' and '.join(present)} {'is' if len(present) == 1 else 'are'} set in the environment, "
                         f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not. torchrun sets all of them. "
                         f"To train with one process, remove them: unset {' '.join(present)}")
    texts = [os.environ[name] for name in TORCHRUN]
    rank, size, local_rank, local_size = (int(text) if re.fullmatch("[0-9]{1,9}", text) else -1 for text in texts)
    if not (0 <= rank < size and 0 <= local_rank < local_size <= size):
        raise UsageError(f"{' '.join(map('='.join, zip(TORCHRUN, texts)))} in the environment are not numbers of "
                         "processes: RANK must be below WORLD_SIZE, LOCAL_RANK below LOCAL_WORLD_SIZE, which is at "
                         f"most WORLD_SIZE. Start with torchrun. To train with one process: unset {' '.join(TORCHRUN)}")
    return World(rank, size, local_rank, local_size)


def master_address() -> tuple[str, int]:
    """Return the address and port of the first process from the environment; UsageError if they are not there."""
    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    if not address or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 1 << 16:
        raise UsageError(f"MASTER_ADDR={address!r} and MASTER_PORT={port!r} in the environment are not the address and "
                         "the port (1 to 65535) of the first process. Start processes with torchrun, or set both.")
    return address, int(port)


class Presence:
    """Failure detector: finds out which processes of a run were lost, by heartbeats over TCP.

    Every process has a connection to rank 0. Both ends send their status every HEARTBEAT_SECONDS: working, waiting in a
    collective, or failed in one. A process that ends closes its connection; one that is stopped sends nothing. Rank 0
    decides which ranks are lost and tells all others before it leaves, so that all name the same ranks, however late
    they notice the loss. The others decide only whether rank 0 is lost.

    Args:
        rank: This process.
        connections: The socket to each other rank: from rank 0 to all, from the others to rank 0.

    Attributes:
        status: Of this process: WORKS, WAITS or FAILED.
    """

    def __init__(self, rank: int, connections: dict[int, socket.socket]) -> None:
        self.status = WORKS
        self._rank, self._connections = rank, connections
        self._statuses, self._missed = dict.fromkeys(connections, WORKS), dict.fromkeys(connections, 0)
        self._ended: set[int] = set()
        self._failed_for = 0.0
        self._lost: Future[list[int]] = Future()
        self._lock, self._closed = threading.Lock(), threading.Event()
        listens: list[Callable[[], None]] = [partial(self._listen, peer) for peer in connections]
        for loop in (self._heartbeat, *listens):
            threading.Thread(target=loop, name="proximo-presence", daemon=True).start()

    @property
    def has_lost(self) -> bool:
        """Whether it is known that processes were lost."""
        return self._lost.done()

    def lost(self) -> list[int]:
        """Return the ranks that are lost, after a collective has failed; none if all others are alive and waiting."""
        self.status = FAILED
        self._send(FAILED)
        with suppress(TimeoutError):
            return [rank for rank in self._lost.result(3 * PEER_TIMEOUT) if rank != self._rank]
        return []

    def close(self) -> None:
        """Close the connections."""
        self._closed.set()
        for connection in self._connections.values():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _send(self, message: str) -> None:
        for connection in self._connections.values():
            with suppress(OSError):  # it is lost, or stopped and its buffer is full
                connection.send(f"{message}\n".encode(), getattr(socket, "MSG_DONTWAIT", 0))

    def _listen(self, peer: int) -> None:
        """Run in a thread: read the messages of another process until it ends."""
        with suppress(OSError, ValueError), self._connections[peer].makefile() as lines:
            for line in lines:
                status, *ranks = line.split()
                if status == LOST:
                    self._set_lost([int(rank) for rank in ranks])
                else:
                    self._statuses[peer] = status
                self._missed[peer] = 0
        self._ended.add(peer)

    def _heartbeat(self) -> None:
        """Run in a thread: send the status of this process, and decide which ranks are lost."""
        while not self._closed.wait(HEARTBEAT_SECONDS):
            self._send(self.status)
            for rank in self._missed:
                self._missed[rank] += 1
            if self._ended:
                self._closed.wait(HEARTBEAT_SECONDS)  # others of the same machine may end too
            if not self._closed.is_set() and (ranks := self._lost_ranks()) is not None:
                self._set_lost(ranks)

    def _lost_ranks(self) -> list[int] | None:
        """Return the ranks that are lost, or None while that is not known."""
        if self._ended:
            return sorted(self._ended)
        statuses = {self._rank: self.status, **self._statuses}
        if FAILED not in statuses.values():
            return None
        if silent := [rank for rank, missed in self._missed.items() if missed * HEARTBEAT_SECONDS >= PEER_TIMEOUT]:
            return silent
        self._failed_for += HEARTBEAT_SECONDS
        if self._rank > 0 or self._failed_for < PEER_TIMEOUT:
            return None
        return [rank for rank, status in statuses.items() if status == WORKS]  # it hangs, while the others wait

    def _set_lost(self, ranks: list[int]) -> None:
        """Store the ranks that are lost, once. Rank 0 tells the others."""
        with self._lock:
            if not self._lost.done():
                if self._rank == 0:
                    self._send(" ".join([LOST, *map(str, ranks)]))
                self._lost.set_result(ranks)


@contextmanager
def waiting(presence: Presence | None) -> Iterator[None]:
    """Set the status of this process to WAITS while the block runs."""
    if presence is None:
        yield
        return
    presence.status = WAITS
    yield
    presence.status = WORKS


def connect_presence(world: World, host: str, publish: Callable[[str], None], look_up: Callable[[], str],
                     seconds: float) -> Presence:
    """Connect all processes to rank 0, at a port that the system chooses.

    Args:
        world: The processes.
        host: The address at which the others reach rank 0.
        publish: Called on rank 0 with what the others need to connect: the port and a random token.
        look_up: Called on the others: waits for that text and returns it.
        seconds: How long rank 0 waits for the others.

    Raises:
        OSError: Rank 0 cannot be reached, or not all others have connected in time.
    """
    if world.rank:
        port, token = look_up().split()
        connection = socket.create_connection((host, int(port)), timeout=seconds)
        connection.sendall(f"{token} {world.rank}\n".encode())
        connection.settimeout(None)
        return Presence(world.rank, {0: connection})
    token = secrets.token_hex(8)
    with listener(0) as server:
        publish(f"{server.getsockname()[1]} {token}")
        return Presence(0, _accept_all(server, world.size, token, time.monotonic() + seconds))


def listener(port: int) -> socket.socket:
    """Return a socket that listens at a port of all addresses of this machine; 0: a port that the system chooses."""
    both = socket.has_dualstack_ipv6()
    return socket.create_server(("", port), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both)


def _accept_all(server: socket.socket, size: int, token: str, end: float) -> dict[int, socket.socket]:
    """Return the connections of all other processes by rank; OSError, without any left open, if some do not come."""
    found: dict[int, socket.socket] = {}
    with ExitStack() as opened:
        while len(found) < size - 1:
            server.settimeout(max(0.001, end - time.monotonic()))
            connection = opened.enter_context(server.accept()[0])
            rank = _rank_in_greeting(connection, token)
            if 0 < rank < size and rank not in found:
                connection.settimeout(None)
                found[rank] = connection
            else:
                connection.close()
        opened.pop_all()
    return found


def _rank_in_greeting(connection: socket.socket, token: str) -> int:
    """Return the rank that a process sends after the token; 0 for anything else, such as another program's request."""
    connection.settimeout(GREETING_SECONDS)
    greeting = b""
    with suppress(OSError):
        while len(greeting) < 100 and not greeting.endswith(b"\n") and (more := connection.recv(1)):
            greeting += more
    found = re.fullmatch(f"{token} ([0-9]+)\n".encode(), greeting)
    return int(found[1]) if found else 0


def settings_numbers(cfg: Config) -> dict[str, float]:
    """Return a number for each setting that all processes of a run must share, and one for the variant."""
    shared = [name for name, fact in facts(Config).items()
              if fact.group not in ("logging", "machine") and fact.resume != "moved"]
    values = {"variant": type(cfg).__name__} | {name: getattr(cfg, name) for name in shared}
    return {name: float(zlib.crc32(repr(value).encode())) for name, value in values.items()}
