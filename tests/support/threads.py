"""Ranks as threads of this process."""

import threading
from collections.abc import Callable, Iterable


def run_ranks(work: Callable[[int], None], ranks: Iterable[int]) -> None:
    """Call `work(rank)` for every rank, in threads of their own started in this order, and wait for all of them."""
    threads = [threading.Thread(target=work, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
