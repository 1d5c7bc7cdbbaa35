"""How many cores a process may use: those that it may run on, and the processor time that its cgroups allow."""

import os

import pytest

from proximo.config import Config
from proximo.envs.machine.cores import default_threads, usable_cores
from tests.support.cgroups import write_cgroups

V2 = "0::/user/job\n"
V1 = "4:cpu,cpuacct:/pod\n3:memory:/a\n"


@pytest.mark.parametrize(("own", "limits", "cores"), [
    (V2, {}, 64),
    (V2, {"fs/user/job/cpu.max": "max 100000"}, 64),
    (V2, {"fs/user/job/cpu.max": "400000 100000"}, 4),
    (V2, {"fs/user/job/cpu.max": "max 100000", "fs/user/cpu.max": "150000 50000"}, 3),
    (V2, {"fs/user/job/cpu.max": "250000 100000"}, 2),  # more threads than that would wait for each other
    (V2, {"fs/user/job/cpu.max": "50000 100000"}, 1),
    (V2, {"fs/user/job/cpu.max": "9900000 100000"}, 64),
    (V1, {"fs/cpu/pod/cpu.cfs_quota_us": "-1", "fs/cpu/pod/cpu.cfs_period_us": "100000"}, 64),
    (V1, {"fs/cpu/pod/cpu.cfs_quota_us": "600000", "fs/cpu/pod/cpu.cfs_period_us": "100000",
          "fs/cpu/cpu.cfs_quota_us": "-1", "fs/cpu/cpu.cfs_period_us": "100000"}, 6),
    ("3:memory:/a\n", {"fs/cpu/a/cpu.cfs_quota_us": "100000", "fs/cpu/a/cpu.cfs_period_us": "100000"}, 64),
])
def test_limits_of_containers_count(own, limits, cores, tmp_path, monkeypatch):
    """Files as the kernel writes them: `docker run --cpus 4` on a machine of 64 cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    write_cgroups(tmp_path, monkeypatch, own, limits)
    assert usable_cores() == cores
    assert usable_cores(2) == max(1, cores // 2)
    assert default_threads(Config(model="cnn"), 1) == cores
