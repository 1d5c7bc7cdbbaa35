"""Pairs of processes for the tests of both frameworks: under torchrun, as two nodes, or as ranks by hand."""

import os
import socket
import subprocess
import sys

import numpy as np


def free_port():
    """A port of loopback with some free ones behind it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return min(free.getsockname()[1], 65000)


def start(words, **env):
    return subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=os.environ | {"OMP_NUM_THREADS": "1"} | env)


def launch(module, folder, *cases, launcher=("--standalone", "--nproc_per_node=2"), **env):
    """torchrun of `-m module FOLDER CASE...`."""
    return start(["torch.distributed.run", *launcher, "-m", module, str(folder), *cases], **env)


def two_nodes(module, folder, case, **env):
    """Two torchrun agents on loopback, one process each, both with local rank 0; both must end well."""
    address = ("--nnodes=2", "--nproc_per_node=1", "--master_addr=127.0.0.1", f"--master_port={free_port()}")
    nodes = [launch(module, folder, case, launcher=(*address, f"--node_rank={k}"), **env) for k in (0, 1)]
    said = [node.communicate(timeout=300)[1] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said


def play_lines(lines, folder):
    """Two ranks run the command lines, each line on a port of its own; all must end well. What the first rank said."""
    (folder / "lines").write_text("\n".join(lines))
    port = str(free_port())
    ranks = [start(["tests.support.ranks", str(rank), "2", port, str(folder / "lines")]) for rank in range(2)]
    said = [process.communicate(timeout=400) for process in ranks]
    for answers, faults in said:
        codes = [answer for answer in answers.splitlines() if answer.startswith("row ")]
        assert codes == [f"row {number} 0" for number in range(len(lines))], faults[-2000:]
    return said[0][1]


def weights_of(folder, case, rank):
    with np.load(folder / f"{case}{rank}.npz") as file:
        return dict(file)


def same_on_both(pair, nodes, case):
    """Whether both ranks ended with the same weights in both folders."""
    return all(np.array_equal(weights_of(pair, case, rank)[name], x) for rank in (0, 1)
               for name, x in weights_of(nodes, case, rank).items())
