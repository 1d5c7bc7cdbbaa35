"""What every test shares: one thread each, reproducible examples, functions of JAX that compile fast."""

import gc
import os
import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell in the background; processes of tests would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("PET_LOG_DIR", os.devnull)  # --log-dir of torchrun, which otherwise leaves a folder in /tmp
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")  # whatever test of a process starts JAX first
if not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")  # before a test imports mujoco or dm_control
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # several hundred processes would each compile the package again

import psutil
import pytest
import torch
from hypothesis import settings

from proximo.cli.messages import printed_messages
from proximo.runs.interrupts import recent
from tests.support.torchrun import COMPILE_FAST

os.environ.setdefault("XLA_FLAGS", COMPILE_FAST)  # `XLA_FLAGS= make test` tests what users run; make coverage does
torch.set_num_threads(1)
recent.CHECKPOINT_SHARE = float("inf")
recent.CHECKPOINT_SECONDS = 0.0  # every checkpoint that is due is written, also where iterations take milliseconds
MOST_MEMORY = 1.5e9  # bytes of a process
settings.register_profile("proximo", deadline=None, derandomize=True, database=None, max_examples=60)
settings.load_profile("proximo")


def pytest_collection_finish():
    """Leave the modules that are imported by now out of every garbage collection: they live as long as the process."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _one_thread():
    """A run sets the threads of its process; the next test begins with one again."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _messages_on_stderr():
    """Messages of the library are printed as the command line prints them, so that tests read them from capsys."""
    with printed_messages():
        yield


@pytest.fixture(autouse=True, scope="module")
def _compiled_functions_are_freed():
    """JAX keeps what it has compiled until the process ends. That would take several GB, and make it compile slower."""
    yield
    if "jax" in sys.modules and psutil.Process().memory_info().rss > MOST_MEMORY:
        sys.modules["jax"].clear_caches()
