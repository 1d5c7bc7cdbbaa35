"""Processes of one run that die, stop or never come: the others end in time with exit code 6 and name them."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, nullcontext

import pytest

from proximo.on_torch.rendezvous import wait_for_listener
from tests.support.faults import KEPT_VARIABLES, End, check_end, sentences
from tests.support.torchrun import free_port, start

pytestmark = [pytest.mark.area("Processes of a distributed run"), pytest.mark.faults]

SLOW = 600  # seconds, for what a machine that does much else does within seconds otherwise
TIMEOUT = 20  # --collective-timeout: on a busy machine, processes start several seconds apart


def start_rank(rank, port, folder, size=2, timeout=TIMEOUT, framework="torch"):
    """Start one of several processes as a cluster does, without torchrun, which would end the others itself."""
    words = (f"proximo train ppo --num-envs {2 * size} --num-steps 16 --total-timesteps 100000000 --checkpoint-every 1 "
             f"--logger none --collective-timeout {timeout} --framework {framework} --run-dir {folder / 'run'}")
    return start(words.split(), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size),
                 MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), JAX_PLATFORMS="cpu")


def end_of(process, within):
    """Wait for the end of a process, at most so many seconds."""
    out, err = process.communicate(timeout=within)
    return End(process.returncode, out, sentences(err))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize(("size", "lost"), [(2, 0), (2, 1), (3, 1)])
def test_a_process_that_is_lost_is_named(how, size, lost, tmp_path):
    """The ranks that are left end within the time, and name only the lost one."""
    port = free_port()
    ranks = [start_rank(rank, port, tmp_path, size) for rank in range(size)]
    try:
        while not (tmp_path / "run" / "checkpoints").exists() and all(rank.poll() is None for rank in ranks):
            time.sleep(0.1)
        ranks[lost].send_signal(how)
        for rank in {*range(size)} - {lost}:
            end = end_of(ranks[rank], TIMEOUT + 60)
            check_end(end, 6, f"cannot be reached: rank {lost} of {size} (", "proximo resume")
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


SUMS_AT_COMMAND = """
import sys
import torch
from proximo.config import Config
from proximo.on_torch.distributed import all_reduce_sum, join
total = all_reduce_sum(join(Config(num_envs=3)))
try:
    for line in sys.stdin:
        total(torch.zeros(1))
        print("added", flush=True)
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""


def test_a_process_that_notices_the_loss_after_all_others_have_left(tmp_path):
    """In a fixed order: rank 1 is killed, rank 0 notices it and ends, and only then rank 2 communicates."""
    (tmp_path / "sums.py").write_text(SUMS_AT_COMMAND)
    port = str(free_port())
    ranks = [subprocess.Popen([sys.executable, str(tmp_path / "sums.py")], text=True, bufsize=1,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              env=os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3",
                                                "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
             for rank in range(3)]
    try:
        for process in ranks:
            process.stdin.write("add\n")
        assert [process.stdout.readline() for process in ranks] == ["added\n"] * 3
        ranks[1].kill()
        ranks[1].wait()
        for rank in (0, 2):
            said = ranks[rank].communicate("add\n", timeout=120)[0]
            assert said.startswith("PeerError Another process of this run has ended or cannot be reached: rank 1 of 3 (")
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize(("rank", "sentence"), [(0, f"Rank 1 of 2 did not start within {TIMEOUT} s (--collective-timeout)."),
                                                (1, "Rank 1 of 2 could not reach the others at 127.0.0.1:")])
def test_a_process_that_never_comes(rank, sentence, framework, tmp_path):
    end = end_of(start_rank(rank, free_port(), tmp_path, framework=framework), TIMEOUT + 60)
    check_end(end, 6, sentence)


@pytest.mark.parametrize("rank", [0, 1])
def test_sigterm_ends_the_wait_for_a_process(rank, tmp_path):
    """Rank 0 waits for rank 1; rank 1 waits for the answer of a store that is stopped."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) if rank else nullcontext() as listener, ExitStack() as opened:
        process = start_rank(rank, port, tmp_path, timeout=3000)
        opened.callback(process.kill)
        if listener is None:
            wait_for_listener("127.0.0.1", port, SLOW)
        else:
            listener.settimeout(SLOW)
            opened.enter_context(listener.accept()[0])
        process.send_signal(signal.SIGTERM)
        assert end_of(process, SLOW).code == 143  # it would wait for 3000 s


@pytest.mark.parametrize("variables", [{"RANK": "1"}, {"WORLD_SIZE": "2"}, {"RANK": "0", "WORLD_SIZE": "x"}])
def test_stray_variables_of_a_launcher(variables, tmp_path):
    cleared = {name: value for name, value in os.environ.items() if name in KEPT_VARIABLES}
    process = start(["proximo", "train", "ppo", "--run-dir", str(tmp_path / "run")], **cleared, **variables)
    check_end(end_of(process, 60), 2)
