"""Processes that find each other through a store: who does not come is named, and groups of one store never mix."""

import socket
import threading

import torch.distributed as dist

from proximo.on_torch.rendezvous import call_roll, meet_in_store, wait_for_listener
from proximo.processes import World
from tests.support.threads import run_ranks


def test_a_roll_call_names_who_does_not_come():
    """Against the ranks that said so in the store; ranks that come late are waited for."""
    store = dist.HashStore()
    store.set("started/2", "here")
    threading.Timer(0.3, lambda: store.set("started/3", "here")).start()
    assert call_roll(store, World(0, 5, 0, 5), 1.0) == [1, 4]
    assert store.check(["started/0"])
    for rank in (1, 4):
        store.set(f"started/{rank}", "here")
    assert call_roll(store, World(4, 5, 0, 5), 30.0) == []


def meet(store, ranks, size, seconds=20.0):
    """Let ranks meet in threads; returns, by rank, the value that the first of them has written for all, and who is
    absent."""
    found = {}

    def join_group(rank):
        group, absent = meet_in_store(store, World(rank, size, rank, size), seconds)
        if rank == ranks[0]:
            group.set("name", f"{size}{ranks}")
        if 0 in ranks:
            group.wait(["name"])
        found[rank] = group.get("name").decode() if 0 in ranks else "", absent

    run_ranks(join_group, ranks)
    return found


def test_groups_in_one_store_never_mix():
    """A store that outlives its processes: three meet, then three of whom one does not come, then one that finds no
    first process, then two, then four. No group hears what an earlier one has written."""
    store = dist.HashStore()
    assert meet(store, [0, 1, 2], 3) == dict.fromkeys(range(3), ("3[0, 1, 2]", []))
    assert meet(store, [0, 1], 3, 0.5) == dict.fromkeys(range(2), ("3[0, 1]", [2]))
    assert meet(store, [2], 3, 0.3) == {2: ("", [0])}
    assert meet(store, [0, 1], 2) == dict.fromkeys(range(2), ("2[0, 1]", []))
    assert meet(store, [0, 1, 2, 3], 4) == dict.fromkeys(range(4), ("4[0, 1, 2, 3]", []))


def test_a_listener_that_comes_late_is_found():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        threading.Timer(0.3, listener.listen).start()
        wait_for_listener(*listener.getsockname(), 30)
