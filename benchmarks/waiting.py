"""Measure steps per second with --env-groups 2 and --overlap, where a step of the environments takes time.

    python benchmarks/waiting.py --rounds 3

The environment waits in each step without using a core, as a simulator does that runs elsewhere. Every row is trained
in its own process, in turns; the first two iterations do not count. Medians over the rounds are printed.
"""

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

ROWS = {"-": "", "`--env-groups 2`": "--env-groups 2", "`--overlap`": "--overlap", "both": "--env-groups 2 --overlap"}
ENVS, STEPS = 16, 64
SIZES = f"--num-envs {ENVS} --num-steps {STEPS} --env-workers 2 --hidden-sizes 256 256 --threads 1"


class Waiting(gymnasium.Env[Any, Any]):
    """Random observations; a step takes `pause` seconds."""

    observation_space = spaces.Box(-1, 1, (32,), np.float32)
    action_space = spaces.Discrete(4)

    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Wait, and end one episode in a hundred."""
        time.sleep(self.pause)
        return self._observe(), 1.0, self.np_random.random() < 0.01, False, {}

    def _observe(self) -> Any:
        return self.np_random.uniform(-1, 1, 32).astype(np.float32)


def measure(words: str, pause: float, iterations: int) -> float:
    """Train, and return environment steps per second after the second iteration."""
    with tempfile.TemporaryDirectory() as place:
        command = (f"{sys.executable} -m proximo train ppo --env-file {__file__}:Waiting --env-kwargs pause={pause} "
                   f"{SIZES} {words} --total-timesteps {iterations * ENVS * STEPS} --checkpoint-every {iterations} "
                   f"--logger none --run-dir {place}/run")
        subprocess.run(command.split(), check=True, capture_output=True)
        with open(Path(place) / "run" / "metrics.csv") as file:
            rows = list(csv.DictReader(file))
    first, last = rows[1], rows[-1]
    return (int(last["global_step"]) - int(first["global_step"])) / (float(last["seconds"]) - float(first["seconds"]))


def main() -> None:
    """Print one row per way to play."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--pause", type=float, default=0.0005, help="seconds of a step of one environment")
    args = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in ROWS}
    for _ in range(args.rounds):
        for name, words in ROWS.items():
            found[name].append(measure(words, args.pause, args.iterations))
            print(f"{name}: {found[name][-1]:,.0f} SPS", file=sys.stderr, flush=True)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n\n| flags | SPS | of the first row | all rounds |")
    print("|---|---|---|---|")
    base = statistics.median(found["-"])
    for name, values in found.items():
        median = statistics.median(values)
        print(f"| {name} | {median:,.0f} | {median / base:.2f} | {', '.join(f'{x:,.0f}' for x in values)} |")


if __name__ == "__main__":
    main()
