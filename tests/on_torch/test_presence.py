"""Which process of a run is lost, against what was done to it: processes are threads here, with real connections."""

import queue
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from proximo.on_torch import presence as presence_module
from proximo.on_torch.presence import Presence, connect_presence, waiting
from proximo.processes import World


@pytest.fixture
def connect(monkeypatch):
    """Return a function that connects processes: from their number to the Presence of each, in order of rank."""
    monkeypatch.setattr(presence_module, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(presence_module, "PEER_TIMEOUT", 1.0)
    found: list[Presence] = []

    def connect_all(size):
        words = queue.Queue()

        def start(rank):
            world = World(rank=rank, size=size, local_rank=rank, local_size=size)
            return connect_presence(world, "127.0.0.1", lambda word: [words.put(word) for _ in range(size)],
                                    lambda: words.get(timeout=60), 60)

        with ThreadPoolExecutor(size) as pool:
            found.extend(pool.map(start, range(size)))
        return found

    yield connect_all
    for presence in found:
        presence.close()


def ask(*presences):
    """Return whom each names after its communication has failed, asked at the same time."""
    with ThreadPoolExecutor(len(presences)) as pool:
        return list(pool.map(Presence.lost, presences))


@pytest.mark.parametrize("ended", [0, 1, 2])
def test_a_process_that_ends_is_named_by_all_others(ended, connect):
    every = connect(3)
    every[ended].close()
    assert ask(*(presence for rank, presence in enumerate(every) if rank != ended)) == [[ended]] * 2


def test_processes_that_end_together_are_named_together(connect, monkeypatch):
    every = connect(4)
    monkeypatch.setattr(presence_module, "PEER_TIMEOUT", 60.0)
    monkeypatch.setattr(presence_module, "HEARTBEAT_SECONDS", 1.0)  # the time in which they count as one loss
    every[1].close()
    every[3].close()
    assert ask(every[0], every[2]) == [[1, 3]] * 2


def test_a_process_that_notices_late_names_the_lost_one_and_not_those_that_have_left(connect):
    """The first process ends because of the loss before the last one asks. It had told that one whom it named."""
    every = connect(3)
    every[1].close()
    assert every[0].lost() == [1]
    every[0].close()
    assert every[2].lost() == [1]


def stop(presence):
    """Let a process say nothing more, as SIGSTOP does: its connections stay open."""
    presence._send = lambda message: None
    presence._lost_ranks = lambda: None


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_process_that_is_stopped_is_named(stopped, connect):
    every = connect(3)
    stop(every[stopped])
    assert ask(*(presence for rank, presence in enumerate(every) if rank != stopped)) == [[stopped]] * 2


@pytest.mark.parametrize("hangs", [0, 1])
def test_a_process_that_hangs_while_the_others_wait_is_named(hangs, connect):
    """Its environment does not return, but its thread still says that it works. One other has given up already."""
    every = connect(3)
    with waiting(every[2]):
        with waiting(every[1 - hangs]):
            assert ask(every[1 - hangs])[0] == [hangs]
        assert ask(every[2]) == [[hangs]]


def test_a_lost_process_is_named_where_messages_cannot_skip_waiting(connect, monkeypatch):
    """Windows has no MSG_DONTWAIT."""
    monkeypatch.delattr(socket, "MSG_DONTWAIT")
    first, second, third = connect(3)
    third.close()
    assert ask(first, second) == [[2], [2]]


def test_nobody_is_named_where_all_live_and_wait(connect):
    """As between two machines whose connection broke off, while both reach the first."""
    assert ask(*connect(3)) == [[]] * 3


def test_nobody_is_lost_before_a_collective_has_failed(connect, monkeypatch):
    """Processes work for longer than PEER_TIMEOUT between two collectives; one that is stopped meanwhile may continue."""
    monkeypatch.setattr(presence_module, "PEER_TIMEOUT", 0.3)
    every = connect(3)
    stop(every[2])
    time.sleep(1)
    with waiting(every[1]):
        time.sleep(1)
    assert not any(presence.has_lost for presence in every)


def test_strangers_who_connect_are_ignored():
    """They do not know the password. Those who never come end the wait."""
    found = []

    def publish(word):
        port, password = word.split()
        for line in (b"GET / HTTP/1.0\n", b"", f"{password[:-1]}x 1\n".encode()):
            with socket.create_connection(("127.0.0.1", int(port))) as connection:
                connection.sendall(line)
        found.append(word)

    world = World(rank=0, size=2, local_rank=0, local_size=2)
    with pytest.raises(TimeoutError):
        connect_presence(world, "127.0.0.1", publish, lambda: "", 0.5)
    assert found


@pytest.mark.parametrize("garbled", ["{}", "{} one", "{} 0", "{} 3", "{} -1", "{} 1 1"])
def test_a_greeting_that_names_no_other_rank_is_ignored(garbled):
    """And the connections of those who have come are closed where the last one does not."""
    connections = []

    def publish(word):
        port, token = word.split()
        for line in (f"{token} 1\n", garbled.format(token) + "\n", f"{token} 1\n"):
            connection = socket.create_connection(("127.0.0.1", int(port)), timeout=30)
            connection.sendall(line.encode())
            connections.append(connection)

    world = World(rank=0, size=3, local_rank=0, local_size=3)
    with pytest.raises(TimeoutError) as caught:
        connect_presence(world, "127.0.0.1", publish, lambda: "", 0.5)
    assert caught.tb  # holds the frames, and with them what is not closed
    for connection in connections:
        with connection:
            assert connection.recv(1) == b""


def test_no_thread_is_left(connect):
    for presence in connect(2):
        presence.close()
    for thread in threading.enumerate():
        if thread.name == "proximo-presence":
            thread.join(30)
            assert not thread.is_alive()
