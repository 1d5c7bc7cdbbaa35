"""Check over TCP that all processes have started: jax.distributed aborts a process whose peers are missing."""

import socket
import time
from contextlib import ExitStack, suppress

from proximo.errors import PeerError, UsageError
from proximo.processes import GREETING_SECONDS, World, listener

ALL_HERE = "all"  # the answer of rank 0; otherwise it is the ranks that have not connected


def call_roll(address: str, world: World, seconds: float) -> None:
    """Wait until all processes have started. Rank 0 listens at the port that JAX uses afterwards.

    Args:
        address: HOST:PORT of rank 0.
        world: The processes.
        seconds: How long to wait.

    Raises:
        PeerError: Some have not started in time; the message names their ranks.
        UsageError: Rank 0 cannot listen at the port.
    """
    host, port = address.rsplit(":", 1)
    answer = _listen(int(port), world, seconds) if world.rank == 0 else _report(host, int(port), world, seconds)
    if answer != ALL_HERE:
        raise PeerError(f"Rank{'s' * (' ' in answer)} {answer} of {world.size} did not start within {seconds:g} s "
                        f"(--collective-timeout). Start as many processes as WORLD_SIZE says, where they reach "
                        f"{address}.")


def _listen(port: int, world: World, seconds: float) -> str:
    """Wait for the other processes, and send each of them the answer."""
    with ExitStack() as connections:
        try:
            server = listener(port)
        except OSError as error:
            raise UsageError(f"Rank 0 of {world.size} cannot listen at port {port} ({error.strerror}). Name a free "
                             "port of the first machine with JAX_COORDINATOR_ADDRESS=HOST:PORT.") from error
        connections.enter_context(server)
        here, end = {0}, time.monotonic() + seconds
        clients: list[socket.socket] = []
        while len(here) < world.size and (left := end - time.monotonic()) > 0:
            server.settimeout(left)
            with suppress(TimeoutError):
                client, _ = server.accept()
                if rank := _rank_of(client, world, min(GREETING_SECONDS, left)):
                    here.add(rank)
                    clients.append(connections.enter_context(client))
                else:
                    client.close()
        absent = [str(rank) for rank in range(world.size) if rank not in here]
        answer = " and ".join(absent) or ALL_HERE
        for client in clients:
            with suppress(OSError):
                client.sendall(answer.encode())
                client.recv(1)  # until it has closed, so that the port is free at once
    return answer


def _rank_of(client: socket.socket, world: World, seconds: float) -> int:
    """Return which of the other ranks has connected; 0 if it is none of them."""
    client.settimeout(seconds)
    try:
        rank = int(client.recv(16))
    except (OSError, ValueError):
        return 0
    return rank if 0 < rank < world.size else 0


def _report(host: str, port: int, world: World, seconds: float) -> str:
    """Connect to rank 0, send the rank of this process, and return the answer."""
    end, cause = time.monotonic() + seconds, ""
    while (left := end - time.monotonic()) > 0:
        try:
            with socket.create_connection((host, port), timeout=left) as connection:
                connection.sendall(str(world.rank).encode())
                connection.settimeout(seconds + GREETING_SECONDS)
                if answer := connection.recv(1024).decode():
                    return answer
                cause = "it closed the connection"
        except OSError as error:
            cause = error.strerror or str(error)
        time.sleep(0.2)
    raise PeerError(f"Rank {world.rank} of {world.size} could not reach the others at {host}:{port} within "
                    f"{seconds:g} s (--collective-timeout) ({cause}).")
