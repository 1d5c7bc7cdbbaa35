"""Measure the cost of returning the memory of large minibatches: the IMPALA network on 2048 images, one thread.

    python benchmarks/keep_memory.py --rounds 3

Processes alternate between glibc's default behaviour and proximo.on_torch.device.keep_memory; medians are compared.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time


def measure(kept: bool, rows: int, passes: int) -> dict[str, float]:
    """Return milliseconds and page faults per row (forward and backward), and the peak memory in MiB.

    Args:
        kept: Whether to call keep_memory.
        rows: Images per pass.
        passes: Passes to average over, after a first one that allocates.
    """
    import torch

    from proximo.on_torch.device import keep_memory
    from proximo.on_torch.networks import ImpalaCNN

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if kept:
        keep_memory()
    network, images = ImpalaCNN((3, 64, 64)), torch.randint(0, 255, (rows, 3, 64, 64), dtype=torch.uint8)
    for number in range(passes + 1):
        if number == 1:
            began, faults = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        network(images).sum().backward()
    seconds = time.perf_counter() - began
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    return {"ms": 1000 * seconds / passes / rows, "faults": faults / passes / rows,
            "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main() -> None:
    """Print the medians of both behaviours."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure == "kept", args.rows, args.passes)))
        return
    found: dict[str, list[dict[str, float]]] = {"returned": [], "kept": []}
    for _ in range(args.rounds):
        for way, rounds in found.items():
            done = subprocess.run([sys.executable, __file__, "--measure", way, "--rows", str(args.rows), "--passes",
                                   str(args.passes)], env=os.environ | {"OMP_NUM_THREADS": "1"}, text=True,
                                  capture_output=True, check=True)
            rounds.append(json.loads(done.stdout))
    for way, rounds in found.items():
        median = {name: statistics.median(x[name] for x in rounds) for name in rounds[0]}
        print(f"{way:10}{median['ms']:8.2f} ms/row   {median['faults']:8.1f} page faults/row"
              f"{median['MiB']:8.0f} MiB at peak")


if __name__ == "__main__":
    main()
