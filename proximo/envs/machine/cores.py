"""The cores that this process may use, how many threads the array library starts on them, and the processor's name."""

import os
import platform
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from proximo.config import Config
from proximo.envs.machine.cgroups import cgroup_files

SHARE = "PROXIMO_CORES"  # variable: the cores that a benchmark leaves to each of the runs that it trains at once


def usable_cores(processes: int = 1) -> int:
    """Return how many cores this process may use (`taskset`, SLURM, limits of containers, its share of a benchmark's),
    divided by the processes that share them.

    At least 1. macOS and Windows do not say which cores a process may use; there, all cores of the machine count.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([cores, *_quotas()])) // processes)


def _quotas() -> Iterator[float]:
    """Yield the processor time that SHARE and cgroups allow, in cores: 2.5 with `docker run --cpus 2.5`."""
    with suppress(KeyError, ValueError):
        yield int(os.environ[SHARE])
    for file in cgroup_files("cpu", "cpu.max", "cpu.cfs_quota_us"):
        with suppress(OSError, ValueError):  # the file is absent, or says "max"
            quota, *period = map(int, file.read_text().split())
            if quota > 0:  # version 1: -1 is no limit
                yield quota / (period[0] if period else int(file.with_name("cpu.cfs_period_us").read_text()))


def default_threads(cfg: Config, local_processes: int, runs: int = 1) -> int:
    """Return 1 for small networks, which more threads slow down; for convolutions this process's share of the cores.

    Of several runs that are trained at once, each has a thread, as far as there are cores.
    """
    cores = usable_cores(local_processes)
    return min(max(1, runs), cores) if cfg.model == "mlp" else cores


def set_passive_openmp_wait(cfg: Config) -> None:
    """Before torch is imported: make its threads sleep between two products where worker processes need the cores.

    By default they spin (docs/measurements.md).
    """
    if cfg.env_workers and cfg.threads > 1:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@cache
def cpu_model() -> str:
    """Return the name of the processor, on which the last bits of results depend."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux
        text = ""
    found = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()
