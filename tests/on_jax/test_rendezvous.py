"""The roll call of processes before JAX connects them, in threads of this process."""

import socket
import threading

import pytest

pytest.importorskip("jax")

from proximo.errors import PeerError, UsageError
from proximo.on_jax.distributed import coordinator_address
from proximo.on_jax.rendezvous import call_roll
from proximo.processes import World
from tests.support.threads import run_ranks
from tests.support.torchrun import free_port


def answers(present, size, seconds, port=None):
    """Return what the roll call of each rank that is present ends with: None, or its error."""
    address, found = f"127.0.0.1:{port or free_port()}", {}

    def call(rank):
        try:
            found[rank] = call_roll(address, World(rank=rank, size=size, local_rank=rank, local_size=size), seconds)
        except (PeerError, UsageError) as error:
            found[rank] = error

    run_ranks(call, present)
    return found


def test_all_come_and_the_port_is_free_afterwards():
    """The order of their starts does not matter. JAX's coordinator listens at the same port at once."""
    port = free_port()
    assert answers((2, 1, 0), 3, 60, port) == {0: None, 1: None, 2: None}
    with socket.create_server(("", port)):
        pass


def test_those_who_came_name_those_who_did_not():
    found = answers((0, 1), 4, 1.0)
    assert all(str(found[rank]).startswith("Ranks 2 and 3 of 4 did not start within 1 s") for rank in (0, 1))
    assert str(answers((0,), 2, 0.5)[0]).startswith("Rank 1 of 2 did not start within 0.5 s (--collective-timeout).")


def test_without_the_first_process():
    assert str(answers((1,), 2, 0.5)[1]).startswith("Rank 1 of 2 could not reach the others at 127.0.0.1:")


def test_a_connection_that_is_no_rank_is_ignored(monkeypatch):
    """Port scanners, and processes of other programs."""
    monkeypatch.setattr("proximo.on_jax.rendezvous.GREETING_SECONDS", 0.5)
    port, found = free_port(), {}
    waits = threading.Thread(target=lambda: found.update(answers((0,), 2, 60, port)))
    waits.start()
    for word in (b"GET /", b"7", b"", None):
        while True:
            try:
                connection = socket.create_connection(("127.0.0.1", port))
                break
            except OSError:
                assert waits.is_alive()
        with connection:
            if word is None:
                connection.recv(1)  # it is silent until the server gives it up
            else:
                connection.sendall(word)
        if word is None:
            break
    assert answers((1,), 2, 60, port) == {1: None}
    waits.join()
    assert found == {0: None}


def test_a_port_that_is_in_use_and_an_address_without_one(monkeypatch):
    with socket.create_server(("", 0)) as taken:
        assert "Name a free port" in str(answers((0,), 2, 60, taken.getsockname()[1])[0])
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "localhost")
    with pytest.raises(UsageError, match="JAX_COORDINATOR_ADDRESS=localhost has no port"):
        coordinator_address()
