"""The cores that this process may use, and how many threads the array library starts on them."""

import os

from proximo.config import Config


def usable_cores(processes: int = 1) -> int:
    """Return how many cores this process may use (`taskset`, SLURM), divided by the processes that share them.

    At least 1. macOS and Windows do not say which cores a process may use; there, all cores of the machine count.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // processes)


def default_threads(cfg: Config, local_processes: int, runs: int = 1) -> int:
    """Return 1 for small networks, which more threads slow down; for convolutions this process's share of the cores.

    Of several runs that are trained at once, each has a thread, as far as there are cores.
    """
    cores = usable_cores(local_processes)
    return min(max(1, runs), cores) if cfg.model == "mlp" else cores
