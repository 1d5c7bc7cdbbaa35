"""Measure training with a VectorEnv of Gymnasium beside single environments, for several numbers of environments.

    taskset -c 1 python benchmarks/vector_envs.py --rounds 3

Both ways have the same settings and alternate, each in a process of its own; medians of steps per second are printed.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SIZES = {4: (128, 150_000), 64: (32, 1_000_000), 256: (32, 1_000_000), 1024: (8, 1_000_000)}  # steps, total timesteps


def train(num_envs: int, vector: bool) -> float:
    """Train on CartPole-v1 with --compile; return steps per second without set-up and compilation."""
    import gymnasium

    import proximo

    def make_envs(cfg: Any, seeds: Any) -> Any:
        return gymnasium.make_vec("CartPole-v1", num_envs=len(seeds))

    num_steps, total = SIZES[num_envs]
    with tempfile.TemporaryDirectory() as folder:
        run = proximo.train("ppo", env_id="CartPole-v1", num_envs=num_envs, num_steps=num_steps, total_timesteps=total,
                            compile=True, threads=1, logger="none", run_dir=str(Path(folder, "run")),
                            make_envs=make_envs if vector else None)
        return float(json.loads(Path(run, "summary.json").read_text())["sps"])


def main() -> None:
    """Measure, or (with --one) train once and print the speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, type=int, metavar=("ENVS", "VECTOR"))
    args = parser.parse_args()
    if args.one:
        print(train(args.one[0], bool(args.one[1])))
        return
    for num_envs in SIZES:
        found: dict[int, list[float]] = {0: [], 1: []}
        for _ in range(args.rounds):
            for vector in found:
                words = [sys.executable, __file__, "--one", str(num_envs), str(vector)]
                out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
                found[vector].append(float(out.split()[-1]))
        single, vector_env = (statistics.median(found[kind]) for kind in (0, 1))
        print(f"{num_envs:>5} environments: single {single:,.0f}, VectorEnv {vector_env:,.0f} "
              f"({vector_env / single:.2f} x)", flush=True)


if __name__ == "__main__":
    main()
