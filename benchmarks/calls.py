"""Compare one JAX iteration per call of the compiled function with several: CartPole, 4 x 128, one thread.

    python benchmarks/calls.py --rounds 3 --most 1 16

Each run is a process of its own, with log and checkpoints; the runs alternate. The first round fills JAX's cache and
does not count. The table has the steps per second that summary.json says.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import sys
import proximo
from proximo.on_jax import advance

advance.MOST = int(sys.argv[1])
proximo.train("ppo", framework="jax", total_timesteps=int(sys.argv[2]), threads=1, seed=1, run_dir=sys.argv[3])
"""


def measure(most: int, steps: int) -> float:
    """Return the steps per second of a run with at most so many iterations per call."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = [sys.executable, "-c", PROGRAM, str(most), str(steps), str(run)]
        subprocess.run(words, check=True, capture_output=True)
        return float(json.loads((run / "summary.json").read_text())["sps"])


def main() -> None:
    """Print a line for each number of iterations per call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1_500_000)
    parser.add_argument("--most", type=int, nargs="+", default=[1, 16], help="iterations per call")
    args = parser.parse_args()
    found: dict[int, list[float]] = {most: [] for most in args.most}
    for number in range(args.rounds + 1):
        for most, rates in found.items():
            rate = measure(most, args.steps)
            if number:
                rates.append(rate)
    print("| iterations per call | SPS, median | lowest | highest |\n|---|---|---|---|")
    for most, rates in found.items():
        print(f"| {most} | {statistics.median(rates):,.0f} | {min(rates):,.0f} | {max(rates):,.0f} |")


if __name__ == "__main__":
    main()
