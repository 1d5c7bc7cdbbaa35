"""How lost processes of a run are found: each has a connection to rank 0, with heartbeats."""

import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from proximo.processes import GREETING_SECONDS, World, listener

HEARTBEAT_SECONDS = 0.5  # between two messages of a process to rank 0, and back
PEER_TIMEOUT = 10.0  # seconds without a message after which a process is lost, if a collective has failed
WORKS, WAITS, FAILED, LOST = "works", "waits", "failed", "lost"


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
