"""Measure the steps per second of `proximo sweep`: how many members one compiled function trains, and how fast.

    python benchmarks/sweep.py --members 1 4 16 64 --iterations 40 --threads 2

CartPole-v1, 4 x 128; the members differ in their learning rate. Every number of members has its own process, which is
pinned to as many cores as there are threads. Measured is the loop of training without the log, after eight iterations,
in which calls grow; the seconds of the first two include compilation.
"""

import argparse
import json
import os
import subprocess
import sys
import time

from proximo.config import Config

WARM_UP = 8  # iterations


def measure(members: int, iterations: int, threads: int) -> dict[str, float]:
    """Return the steps per second of all members together, and the seconds of the first two iterations."""
    from proximo.catalog import parts_of
    from proximo.on_jax.train_group import train_group

    parts, base = parts_of("ppo", "jax"), Config()
    cfgs = [Config(framework="jax", engine="jax", device="cpu", threads=threads, learning_rate=1e-4 * (1 + member),
                   total_timesteps=base.batch_size * (WARM_UP + iterations)) for member in range(members)]
    began = time.perf_counter()
    for row in train_group(cfgs, parts.make_envs, parts.make_agent):
        it = row[0]
        assert it is not None
        if it.iteration == 2:
            start = time.perf_counter() - began
        if it.iteration == WARM_UP:
            warm = time.perf_counter()
    return {"rate": members * iterations * base.batch_size / (time.perf_counter() - warm), "start": start}


def main() -> None:
    """Read the command line, measure every number of members, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--iterations", type=int, default=40, help="iterations measured, after the first eight")
    parser.add_argument("--threads", type=int, default=1, help="cores, from the first one on")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.iterations, args.threads)))
        return
    print("| members | SPS, all members | SPS, each | first two iterations |\n|---|---|---|---|")
    for members in args.members:
        command = ["taskset", "-c", f"0-{args.threads - 1}", sys.executable, __file__, "--measure", str(members),
                   "--iterations", str(args.iterations), "--threads", str(args.threads)]
        done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"},
                              capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        rate = found["rate"]
        print(f"| {members} | {rate:,.0f} | {rate / members:,.0f} | {found['start']:.1f} s |", flush=True)


if __name__ == "__main__":
    main()
