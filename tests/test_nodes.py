"""Several nodes on one machine: network namespaces with addresses of their own, between which the network can fail."""

import itertools
import os
import shutil
import subprocess
import time

import pytest

from proximo.runs.folder.checkpoint import checkpoints
from tests.support.runs import SMALL, same_logs, same_weights
from tests.support.torchrun import start

PORT = 29400
_numbers = itertools.count()


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True)


class Network:
    """Two nodes, 10.77.0.1 and 10.77.0.2, connected by a virtual cable; each sees only itself and the other."""

    def __init__(self):
        name = f"proximo-{os.getpid()}-{next(_numbers)}"
        self.nodes = [f"{name}-{node}" for node in (1, 2)]

    def connect(self):
        """Return why it is not possible; "": it was."""
        one, other = self.nodes
        steps = [("netns", "add", one), ("netns", "add", other),
                 ("link", "add", "cable", "netns", one, "type", "veth", "peer", "name", "cable", "netns", other)]
        for number, node in enumerate(self.nodes, 1):
            steps += [("-n", node, "addr", "add", f"10.77.0.{number}/24", "dev", "cable"),
                      ("-n", node, "link", "set", "lo", "up"), ("-n", node, "link", "set", "cable", "up")]
        for words in steps:
            if (done := ip(*words)).returncode:
                return f"ip {' '.join(words)}: {done.stderr.strip()}"
        return ""

    def start(self, node, words, **env):
        """Start `python -m WORDS` on node 1 or 2."""
        inside = ("ip", "netns", "exec", self.nodes[node - 1])
        return start(words, inside, GLOO_SOCKET_IFNAME="cable", **env)

    def pull_the_cable(self):
        assert ip("-n", self.nodes[0], "link", "set", "cable", "down").returncode == 0

    def remove(self):
        for node in self.nodes:
            ip("netns", "del", node)


@pytest.fixture
def network():
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and the program ip")
    network = Network()
    try:
        if problem := network.connect():
            pytest.skip(f"network namespaces are not permitted here ({problem})")
        yield network
    finally:
        network.remove()


@pytest.mark.long
def test_two_nodes_with_addresses_of_their_own_equal_two_processes_of_one(network, tmp_path):
    """Bit for bit: weights and logs."""
    def command(run):
        return ["-m", "proximo", "train", "ppo", *SMALL, "--threads", "1", "--run-dir", str(tmp_path / run)]

    agents = [network.start(node, ["torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d",
                                   f"--rdzv-endpoint=10.77.0.1:{PORT}", f"--rdzv-conf=is_host={node % 2}",
                                   f"--local-addr=10.77.0.{node}", *command("nodes")]) for node in (1, 2)]
    said = [agent.communicate(timeout=200)[1] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], said
    whole = start(["torch.distributed.run", "--standalone", "--nproc-per-node=2", *command("one")])
    assert (whole.communicate(timeout=200), whole.returncode)[1] == 0
    assert same_weights(tmp_path / "nodes", tmp_path / "one") and same_logs(tmp_path / "nodes", tmp_path / "one")


@pytest.mark.long
def test_a_partition_ends_in_one_sentence_on_every_node(network, tmp_path):
    """The cable is pulled in mid-run: nobody is told that the connection is gone, so that only the timeout helps."""
    run, seconds = tmp_path / "run", 8
    words = (f"proximo train ppo --num-envs 4 --num-steps 16 --total-timesteps 100000000 "
             f"--checkpoint-every 1 --logger none --collective-timeout {seconds} --run-dir {run}").split()
    shared = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "10.77.0.1",
              "MASTER_PORT": str(PORT)}
    ranks = [network.start(rank + 1, words, RANK=str(rank), **shared) for rank in (0, 1)]
    while not checkpoints(run) and all(rank.poll() is None for rank in ranks):
        time.sleep(0.1)
    network.pull_the_cable()
    began = time.monotonic()
    for number, rank in enumerate(ranks):
        said = rank.communicate(timeout=120)[1]
        sentences = [line for line in said.splitlines() if "Another process of this run" in line]
        assert rank.returncode == 6 and len(sentences) == 1 and "Traceback" not in said, (number, rank.returncode, said)
    assert time.monotonic() - began < seconds + 60  # and what a busy machine needs to say so
