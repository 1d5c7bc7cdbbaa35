"""Measure the first run with --compile, with empty caches, and the next one: CartPole, one thread.

    python benchmarks/first_compile.py --rounds 3                # this checkout
    python benchmarks/first_compile.py OLD . --rounds 3          # two checkouts, alternating

"first" is a run of two iterations that compiles, "cached" the same run again, SPS a longer one afterwards. Seconds are
medians: of the clock, and of all cores together (with the compilers that the run has started).
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
WORDS = ["train", "ppo", "--env-id", "CartPole-v1", "--compile", "--threads", "1", "--logger", "none"]


def train(checkout: Path, caches: Path, steps: int) -> dict[str, float]:
    """Train with a checkout and return seconds of the clock, seconds of all cores, and SPS.

    Args:
        checkout: The top folder of a checkout.
        caches: A folder for the caches of Proximo and of torch, and for temporary files.
        steps: Environment steps.
    """
    (caches / "tmp").mkdir(exist_ok=True)
    env = os.environ | {"PYTHONPATH": str(checkout), "XDG_CACHE_HOME": str(caches / "xdg"),
                        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"), "TMPDIR": str(caches / "tmp")}
    with tempfile.TemporaryDirectory() as folder:
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, "-m", "proximo", *WORDS, "--total-timesteps", str(steps), "--run-dir",
                        f"{folder}/run"], check=True, env=env, cwd=folder, capture_output=True)
        after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
        sps = json.loads(Path(folder, "run", "summary.json").read_text())["sps"]
    return {"clock": seconds, "cores": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, "SPS": sps}


def main() -> None:
    """Print one row for each checkout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[HERE])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200_000, help="of the run that measures SPS")
    args = parser.parse_args()
    found: dict[Path, list[list[float]]] = {path.resolve(): [] for path in args.checkouts}
    for _ in range(args.rounds):
        for checkout, rounds in found.items():
            with tempfile.TemporaryDirectory() as caches:
                first, cached, longer = (train(checkout, Path(caches), steps) for steps in (1024, 1024, args.steps))
            rounds.append([first["clock"], first["cores"], cached["clock"], cached["cores"], longer["SPS"]])
    print("| checkout | first s | of all cores | cached s | of all cores | SPS |\n|---|---|---|---|---|---|")
    for checkout, rounds in found.items():
        middle = [statistics.median(column) for column in zip(*rounds, strict=True)]
        print(f"| {checkout} | " + " | ".join(f"{x:.1f}" for x in middle[:4]) + f" | {middle[4]:,.0f} |")


if __name__ == "__main__":
    main()
