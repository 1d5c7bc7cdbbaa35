"""A Ray cluster of several nodes on this machine, in a process of its own: `python -m tests.support.ray_cluster NODES`.

It prints the address, and reads commands: "kill" ends the oldest node at once, "add" adds one. It listens on 127.0.0.1
only, and clients need its token.
"""

import os
import subprocess
import sys
from contextlib import contextmanager

from proximo.bench.places.ray import OWN_CLUSTER

ENVIRONMENT = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4, **OWN_CLUSTER,
               "RAY_USAGE_STATS_ENABLED": "0"}


class RayCluster:
    """The other end of the process."""

    def __init__(self, process):
        self._process = process
        self.address = self._answer()

    def _answer(self):
        return next((line for line in self._process.stdout if line.startswith("> ")), "> ").strip()[2:]

    def tell(self, word):
        """Carry a command out."""
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        assert self._answer() == word


@contextmanager
def ray_cluster(nodes):
    """Start a cluster whose nodes have one core each; its head trains nothing."""
    process = subprocess.Popen([sys.executable, "-m", "tests.support.ray_cluster", str(nodes)], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               env=os.environ | ENVIRONMENT)
    try:
        yield RayCluster(process)
    finally:
        process.stdin.close()
        process.wait(30)


def main():
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(int(sys.argv[1]))]
    print(f"> {cluster.address}", flush=True)
    for line in sys.stdin:
        if line.strip() == "kill":
            cluster.remove_node(nodes.pop(0), allow_graceful=False)
        else:
            nodes.append(cluster.add_node(num_cpus=1))
        print(f"> {line.strip()}", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
