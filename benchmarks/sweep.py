"""Measure the steps per second of `proximo sweep`: how many members one compiled function trains, and how fast.

    python benchmarks/sweep.py --members 1 4 16 64 --iterations 40

CartPole-v1, 4 x 128, one thread; the members differ in their learning rate. Every number of members has its own
process. Measured is the loop of training without the log, after two iterations, whose seconds include compilation.
"""

import argparse
import json
import os
import subprocess
import sys
import time

from proximo.config import Config


def measure(members: int, iterations: int) -> dict[str, float]:
    """Return the steps per second of all members together, and the seconds of the first two iterations."""
    from proximo.catalog import parts_of
    from proximo.on_jax.train_group import train_group

    parts, base = parts_of("ppo", "jax"), Config()
    cfgs = [Config(framework="jax", engine="jax", device="cpu", threads=1, learning_rate=1e-4 * (1 + member),
                   total_timesteps=base.batch_size * (2 + iterations)) for member in range(members)]
    began = time.perf_counter()
    for row in train_group(cfgs, parts.make_envs, parts.make_agent):
        it = row[0]
        assert it is not None
        if it.iteration == 2:
            first = time.perf_counter()
    return {"rate": members * iterations * base.batch_size / (time.perf_counter() - first), "start": first - began}


def main() -> None:
    """Read the command line, measure every number of members, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--iterations", type=int, default=40, help="iterations measured, after two that compile")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.iterations)))
        return
    print("| members | SPS, all members | SPS, each | first two iterations |\n|---|---|---|---|")
    for members in args.members:
        command = [sys.executable, __file__, "--measure", str(members), "--iterations", str(args.iterations)]
        done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"},
                              capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        rate = found["rate"]
        print(f"| {members} | {rate:,.0f} | {rate / members:,.0f} | {found['start']:.1f} s |", flush=True)


if __name__ == "__main__":
    main()
