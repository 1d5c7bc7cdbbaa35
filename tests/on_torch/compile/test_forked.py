"""Work in a forked process: its answers, its errors, and that nothing of it outlives the process that waits for it.

Every test starts a Python of its own: a process that has imported JAX, as that of pytest has, may not fork.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="--compile is for Linux only")
HEAD = """
import os, signal, subprocess, sys, time
from proximo.errors import FilesError, UsageError
from proximo.on_torch.compile import forked
from proximo.on_torch.compile.forked import can_fork, start_forked

def fail(error):
    raise error

def sleep():
    child = subprocess.Popen(["sleep", "1000"])
    os.write(1, f"{os.getpid()} {child.pid}\\n".encode())
    child.wait()
"""
ANSWERS = """
assert can_fork()
waits = [start_forked(work, "The process that compiles x") for work in (
    lambda: None, lambda: fail(UsageError("no such\\nflag")), lambda: fail(FilesError("disk full")),
    lambda: os.kill(os.getpid(), signal.SIGKILL))]
assert waits[0]() >= 0
for wait, kind in zip(waits[1:], (UsageError, FilesError, UsageError)):
    try:
        wait()
    except kind as error:
        print(f"{kind.__name__}: {error}")
forked.LIMIT_SECONDS = 1
try:
    start_forked(lambda: time.sleep(1000), "Sleeping")()
except UsageError as error:
    print(error)
sys.modules["jax"] = None
assert not can_fork()
"""


def test_answers_and_errors():
    """The error keeps its class and its text. A process that is killed, or does not end, is one sentence."""
    run = subprocess.run([sys.executable, "-c", HEAD + ANSWERS], capture_output=True, text=True, check=True)
    assert run.stderr == ""
    assert run.stdout.splitlines() == [
        "UsageError: no such", "flag", "FilesError: disk full",
        "UsageError: The process that compiles x ended with exit code -9. If memory is short, free some or run without "
        "--compile; otherwise start again.",
        "Sleeping has not ended within 1 s. Run without --compile."]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_process_that_waits(number):
    """Neither the forked process nor what it has started, however the waiting process ends."""
    parent = subprocess.Popen([sys.executable, "-c", HEAD + 'start_forked(sleep, "x")()'], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2 and all(is_running(pid) for pid in pids)
    parent.send_signal(number)
    _, errors = parent.communicate(timeout=60)
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)
    deadline = time.monotonic() + 60
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline, "a process is left"
        time.sleep(0.02)


def is_running(pid):
    """Whether there is such a process; one that has ended and that nobody waits for does not count."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


BUILD = """
import torch
from proximo.errors import UsageError
from proximo.on_torch.compile import aot_build
from proximo.on_torch.compile.aot import compile_ahead

def build(*args):
    raise UsageError(f"a GPU is there: {torch.cuda.is_available()}")

torch.cuda.is_available, aot_build._build = lambda: True, build
try:
    compile_ahead(lambda x: (x + x,), (torch.zeros(3),), "double")(torch.ones(3))
except UsageError as error:
    print(error)
"""


def test_the_process_that_compiles_for_a_cpu_sees_no_gpu(tmp_path):
    """inductor asks for the properties of a GPU, and CUDA cannot be started in a forked process: on every machine with
    a GPU --compile ended with "Cannot re-initialize CUDA in forked subprocess"."""
    run = subprocess.run([sys.executable, "-c", BUILD], capture_output=True, text=True, check=True,
                         env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)})
    assert run.stdout == "a GPU is there: False\n"


CRASH = """
import os, sys, torch, torch._inductor
from pathlib import Path
from proximo.errors import UsageError
from proximo.on_torch.compile import aot_build
from proximo.on_torch.compile.aot import compile_ahead

def write(graph, example, options):
    Path(options["aot_inductor.output_path"]).write_bytes(b"a library")

def crash(library):
    assert library.stat().st_size
    os.kill(os.getpid(), 11)

torch._inductor.aot_compile, aot_build._check_loading = write, crash
try:
    compile_ahead(lambda x: (x + x,), (torch.zeros(3),), "double")(torch.ones(3))
except UsageError as error:
    print(error)
print(list(Path(sys.argv[1]).glob("proximo/aot/*.so")))
"""


def test_a_library_that_crashes_when_it_is_loaded_does_not_end_training(tmp_path):
    """The process that compiles loads it first. It is not kept, so that the next run does not load it either. What torch
    would compile is replaced by a few bytes, because only the crash matters."""
    run = subprocess.run([sys.executable, "-c", CRASH, tmp_path], capture_output=True, text=True, check=True,
                         env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)})
    said, kept = run.stdout.splitlines()
    assert said.startswith("The process that compiles double ended with exit code -11.") and "without --compile" in said
    assert kept == "[]"
