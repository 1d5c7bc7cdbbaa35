"""Pairs of processes for the tests of both frameworks: under torchrun, as two nodes, or started one by one."""

import itertools
import os
import socket
import subprocess
import sys
from importlib.metadata import version

import numpy as np

FIRST, LAST = 20_000, 29_999
"""Ports of the tests: below those that Linux gives to outgoing connections (from 32,768), so that none of them is taken between the
search and its use, and apart from those that JAX's coordinator derives from them (10,000 to 19,999)."""

COMPILE_FAST = ("--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
                "--xla_cpu_parallel_codegen_split_count=1")
"""XLA's flags (XLA_FLAGS) of the tests: compiling an iteration takes a fifth of the time, and it runs as fast."""
if version("jaxlib").startswith(("0.6.", "0.7.", "0.8.", "0.9.", "0.10.")):  # XLA ends a process with an unknown flag
    COMPILE_FAST += " --xla_cpu_use_fusion_emitters=false"

_next = itertools.count(os.getpid() * 131)  # processes that test beside this one begin elsewhere


def is_free(port):
    """Return whether nobody listens at a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def free_ports(count):
    """Return `count` ports at which nobody listens; none of them is given twice in a process."""
    candidates = (FIRST + number % (LAST - FIRST + 1) for number in itertools.islice(_next, LAST - FIRST + 1))
    return list(itertools.islice(filter(is_free, candidates), count))


def free_port():
    """Return one port at which nobody listens."""
    return free_ports(1)[0]


def start(words, before=(), **env):
    """Start `python -m WORDS` with pipes and one thread, through the command `before` if there is one."""
    return subprocess.Popen([*before, sys.executable, "-m", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=os.environ | {"OMP_NUM_THREADS": "1"} | env)


def launch(module, folder, *cases, launcher=("--standalone", "--nproc_per_node=2"), **env):
    """Start torchrun with `-m module FOLDER CASE...`."""
    return start(["torch.distributed.run", *launcher, "-m", module, str(folder), *cases], **env)


def run_two_nodes(module, folder, case, **env):
    """Run two torchrun agents on loopback, one process each, both with local rank 0. Both must succeed."""
    address = ("--nnodes=2", "--nproc_per_node=1", "--master_addr=127.0.0.1", f"--master_port={free_port()}")
    nodes = [launch(module, folder, case, launcher=(*address, f"--node_rank={k}"), **env) for k in (0, 1)]
    stderr = [node.communicate(timeout=300)[1] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], stderr


def run_lines_on_two_ranks(lines, folder):
    """Run command lines in two processes, each line on a port of its own. All must succeed.

    Returns:
        The standard error of the first rank.
    """
    (folder / "lines").write_text("\n".join(lines))
    ports = ",".join(map(str, free_ports(len(lines))))
    ranks = [start(["tests.support.ranks", str(rank), "2", ports, str(folder / "lines")], XLA_FLAGS=COMPILE_FAST)
             for rank in range(2)]
    outputs = [process.communicate(timeout=400) for process in ranks]
    for stdout, stderr in outputs:
        codes = [line for line in stdout.splitlines() if line.startswith("row ")]
        assert codes == [f"row {number} 0" for number in range(len(lines))], stderr[-2000:]
    return outputs[0][1]


def load_weights(folder, case, rank):
    """Return the weights that a rank wrote after training a case, by name."""
    with np.load(folder / f"{case}{rank}.npz") as file:
        return dict(file)


def same_on_both(one, other, case):
    """Return whether both ranks ended with the same weights in both folders."""
    return all(np.array_equal(load_weights(one, case, rank)[name], x) for rank in (0, 1)
               for name, x in load_weights(other, case, rank).items())
