"""Compare iterations on JAX whose rows are worked through in parts with iterations that take all rows at once.

    python benchmarks/parts.py --envs 2048 --steps 32 --minibatches 2 --epochs 1

CartPole-v1 on one core; both kinds alternate in one process. The result is the CPU time of an iteration, the median of
all rounds, in milliseconds.
"""

import argparse
import os
import statistics
import time
from typing import Any

WHOLE = 2**30  # rows of a part


def main() -> None:
    """Read the command line, run all rounds and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--minibatches", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--core", type=int, default=0, help="the core to pin to")
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.core})
    os.environ["NPROC"] = "1"  # read when JAX starts

    from proximo import Config, iterations
    from proximo.on_jax import row_parts

    cfg = Config(framework="jax", engine="jax", threads=1, num_envs=args.envs, num_steps=args.steps,
                 num_minibatches=args.minibatches, update_epochs=args.epochs,
                 total_timesteps=args.envs * args.steps * (args.rounds + 2))
    spent: dict[str, list[float]] = {}
    runs: dict[str, Any] = {"in parts": (row_parts.ROWS, iterations(cfg)), "all rows": (WHOLE, iterations(cfg))}
    for _ in range(args.rounds + 1):  # the first round compiles
        for name, (rows, run) in runs.items():
            row_parts.ROWS = rows
            began = time.process_time()
            next(run)
            spent.setdefault(name, []).append(1000 * (time.process_time() - began))
    for name, times in spent.items():
        print(f"{name:10}{statistics.median(times[1:]):8.1f} ms")


if __name__ == "__main__":
    main()
