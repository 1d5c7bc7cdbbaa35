"""Memory of large batches, counted in page faults."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
from proximo.on_torch.device import keep_memory
if sys.argv[1] == "kept":
    keep_memory()
for number in range(6):  # 96 MiB each, 24,576 pages
    torch.ones(24 * 2**20)
    if number == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator")
def test_memory_is_kept_between_minibatches():
    """Four tensors after two: every page is faulted in anew without keep_memory, next to none with it."""
    faults = {way: int(subprocess.run([sys.executable, "-c", FAULTS, way], capture_output=True, text=True,
                                      check=True).stdout) for way in ("returned", "kept")}
    assert faults["kept"] < 1000 and faults["returned"] > 10 * max(faults["kept"], 1)
