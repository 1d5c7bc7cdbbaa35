"""Compare training with JAX on one core with and without the options of XLA that Proximo sets (on_jax/device.py).

    python benchmarks/xla_options.py --rounds 5 --core 1

Every measurement is a command in its own process, with logs and checkpoints. Both ways alternate, and each first fills
a cache of compiled functions. The table has the medians of all rounds, and whether the weights are the same.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TASKS = {
    "CartPole-v1, 4 x 128": "ppo --env-id CartPole-v1 --total-timesteps 1000000",
    "Pendulum-v1, 1 x 2048": "ppo_continuous_action --env-id Pendulum-v1 --total-timesteps 300000",
    "CartPole-v1, 2,048 x 32": "ppo --env-id CartPole-v1 --num-envs 2048 --num-steps 32 --total-timesteps 3000000",
    "CartPole-v1, 4 x 128, LSTM": "ppo --env-id CartPole-v1 --recurrent lstm --total-timesteps 100000",
    "CartPole-v1, 4 x 128, ten seeds": "ppo --env-id CartPole-v1 --num-seeds 10 --total-timesteps 200000"}
WAYS = ("with", "without")
CHILD = """
import sys
from proximo.cli.main import main
from proximo.on_jax import device
if sys.argv[1] == "without":
    device.IN_ORDER.clear()
sys.exit(main(sys.argv[2:]))
"""


def measure(way: str, task: str, core: int, folder: Path) -> tuple[float, str]:
    """Train once; return the steps per second of all seeds together and a hash of the weights."""
    words = ["train", *task.split(), "--framework", "jax", "--threads", "1", "--seed", "1", "--logger", "none",
             "--run-dir", str(folder)]
    env = os.environ | {"JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(folder.parent / f"cache-{way}")}
    subprocess.run([sys.executable, "-c", CHILD, way, *words], env=env, check=True, capture_output=True,
                   preexec_fn=lambda: os.sched_setaffinity(0, [core]))
    runs = sorted(path.parent for path in folder.rglob("summary.json"))
    weights = hashlib.sha256(b"".join((run / "model" / "tensors.safetensors").read_bytes() for run in runs))
    return sum(json.loads((run / "summary.json").read_text())["sps"] for run in runs), weights.hexdigest()


def main() -> None:
    """Measure all tasks and print their medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--core", type=int, default=0, help="the core to pin to")
    given = parser.parse_args()
    print("| SPS, median (lowest, highest) | with the options | without | ratio | weights |\n|---|---|---|---|---|")
    for name, task in TASKS.items():
        rates: dict[str, list[float]] = {way: [] for way in WAYS}
        hashes = set()
        with tempfile.TemporaryDirectory() as folder:
            for turn in range(-1, given.rounds):
                for way in WAYS:
                    rate, weights = measure(way, task, given.core, Path(folder) / f"{way}-{turn}")
                    hashes.add(weights)
                    if turn >= 0:
                        rates[way].append(rate)
        medians = [statistics.median(rates[way]) for way in WAYS]
        cells = [f"{mid:,.0f} ({min(rates[way]):,.0f}, {max(rates[way]):,.0f})" for way, mid in zip(WAYS, medians)]
        print(f"| {name} | {cells[0]} | {cells[1]} | {medians[0] / medians[1]:.2f} | "
              f"{'same bits' if len(hashes) == 1 else 'differ'} |", flush=True)


if __name__ == "__main__":
    main()
