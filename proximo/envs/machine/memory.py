"""The memory (RAM) of this machine, and the error message for arrays that do not fit into it."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

from proximo.envs.machine.cgroups import cgroup_files

LONG_NUMBER = re.compile(r"\d[\d,]{39,}")  # is shortened in messages


@cache
def machine_bytes() -> int | None:
    """Return the memory that this process can use: that of the machine, or the limit of its cgroup or of `ulimit -v`.

    What other processes use is not subtracted, because it changes. None: unknown.
    """
    return min(_limits(), default=None)


def memory_problem(what: str, needed: int, advice: str) -> list[str]:
    """Return one sentence if `needed` bytes are more than this machine has.

    Args:
        what: What needs them, with the product: "num_steps=8 x num_envs=4 = 32 rows of 40 bytes".
        needed: Number of bytes.
        advice: What to do.
    """
    most = machine_bytes()
    if most is None or needed <= most:
        return []
    what = LONG_NUMBER.sub(lambda found: f"{found[0][:8]}... ({sum(map(str.isdigit, found[0]))} digits)", what)
    return [f"{what} need {bytes_text(needed)} of memory, and this process can have {bytes_text(most)}. {advice}"]


def bytes_text(count: int) -> str:
    """Write 2500000000 as 2.5 GB."""
    size, units = float(min(count, 10**30)), ["bytes", "kB", "MB", "GB", "TB", "PB", "EB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        del units[0]
    return f"{size:,.1f} {units[0]}"


def _limits() -> Iterator[int]:
    with suppress(OSError, ValueError, AttributeError):
        yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(ImportError, OSError, ValueError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            yield soft
    for file in cgroup_files("memory", "memory.max", "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # the file is absent, or says "max"
            yield int(file.read_text())
