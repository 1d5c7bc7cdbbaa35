"""Which device --device auto selects; page faults show that the memory of large batches is reused."""

import platform
import subprocess
import sys

import pytest
import torch

from proximo.config import Config
from proximo.errors import UsageError
from proximo.on_torch.device import pick_device, set_up_torch
from proximo.processes import ALONE
from proximo.runs.settings.resolve import resolve
from proximo.variants import Atari

FAULTS = """
import resource, sys, torch
from proximo.config import Config
from proximo.on_torch.device import set_up_torch
from proximo.processes import ALONE
if sys.argv[1] == "kept":
    set_up_torch(Config(), ALONE, torch.device("cpu"))
for number in range(24):  # 40 MiB each, 10,240 pages
    torch.ones(10 * 2**20)
    if number == 19:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_one_gpu_for_several_processes_is_refused():
    """It was replaced by the GPU of the local rank."""
    with pytest.raises(UsageError, match="--device cuda:1 names one GPU for 2 processes. Use --device cuda"):
        pick_device(Config(device="cuda:1"), ALONE._replace(size=2))


def test_threads_and_workers_are_those_of_the_cores_that_the_process_may_use(monkeypatch):
    """`taskset`, and SLURM with --cpus-per-task, on a machine with more cores."""
    monkeypatch.setattr("os.cpu_count", lambda: 128)
    asked = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    for cores, local_size, threads, workers in ((1, 1, 1, 0), (6, 1, 6, 4), (6, 2, 3, 0), (2, 4, 1, 0)):
        monkeypatch.setattr("os.sched_getaffinity", lambda pid, cores=cores: set(range(cores)), raising=False)
        assert set_up_torch(Atari(), ALONE._replace(local_size=local_size), torch.device("cpu")) == threads == asked[-1]
        assert set_up_torch(Config(), ALONE, torch.device("cpu")) == 1
        cfg = resolve(Atari(num_envs=8), "ppo_atari", 1, local_size)
        assert (cfg.threads, cfg.env_workers) == (threads, workers)
    assert set_up_torch(Atari(threads=3), ALONE, torch.device("cpu")) == 3 == asked[-1]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator")
def test_memory_is_kept_between_minibatches():
    """Without set_up_torch every page of a tensor causes a fault, with it almost none.

    Four tensors are counted after twenty others. glibc before 2.38 needs about eight to settle: each thread keeps up to
    seven small freed blocks of every size, and while they lie between large blocks, those cannot be joined.
    """
    faults = {way: int(subprocess.run([sys.executable, "-c", FAULTS, way], capture_output=True, text=True,
                                      check=True).stdout) for way in ("returned", "kept")}
    assert faults["kept"] < 1000 and faults["returned"] > 10 * max(faults["kept"], 1)


@pytest.mark.parametrize(("present", "num_envs", "device"), [(True, 4096, "cuda:0"), (True, 4, "cpu"), (False, 4096, "cpu")])
def test_device_auto(present, num_envs, device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: present)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(present))
    assert str(pick_device(Config(num_envs=num_envs), ALONE)) == device


@pytest.mark.parametrize(("present", "asked", "device"), [(True, "auto", "cuda:1"), (False, "auto", "cpu"), (True, "cpu", "cpu")])
def test_device_ids_select_a_gpu_or_say_that_they_have_no_effect(present, asked, device, monkeypatch, capsys):
    """A small network was trained on the CPU without a word."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: present)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert str(pick_device(Config(device=asked, device_ids=(1,)), ALONE)) == device
    assert ("--device-ids has no effect" in capsys.readouterr().err) == (device == "cpu")


@pytest.mark.parametrize(("fields", "size", "local_rank", "device"), [
    ({"device": "cuda"}, 1, 0, 0), ({"device": "cuda:1"}, 1, 0, 1), ({"device": "cuda"}, 2, 1, 1), ({"device": "cuda"}, 8, 5, 2),
    ({"device": "cuda", "device_ids": (2, 0)}, 2, 1, 0)])
def test_each_process_of_a_machine_with_three_gpus_takes_one(fields, size, local_rank, device, monkeypatch):
    """That of --device, of its local rank, or of --device-ids; more processes than GPUs share them."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    world = ALONE._replace(rank=local_rank, size=size, local_rank=local_rank, local_size=size)
    assert pick_device(Config(**fields), world) == torch.device("cuda", device)


@pytest.mark.parametrize(("fields", "present", "sentence"), [
    ({"device": "cuda:3"}, True, "GPU 3 does not exist. torch sees 3"),
    ({"device": "cuda", "device_ids": (3,)}, True, "GPU 3 does not exist. torch sees 3"),
    ({"device": "cuda"}, False, "--device cuda needs a GPU, but torch sees none on this machine"),
    ({"device": "cuda", "cuda": False}, True, "--device cuda needs a GPU, but --no-cuda forbids it")])
def test_a_gpu_that_is_not_there_is_refused(fields, present, sentence, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: present)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    with pytest.raises(UsageError, match=sentence):
        pick_device(Config(**fields), ALONE)


def test_another_default_device_is_refused():
    with torch.device("meta"), pytest.raises(UsageError, match="The default device of torch is meta"):
        set_up_torch(Config(), ALONE, torch.device("cpu"))
