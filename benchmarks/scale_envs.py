"""Draw what 4 and 16 times the environments do to learning: with --scale-envs, and with --num-envs alone.

    python benchmarks/scale_envs.py --out runs/scale --steps 500000       # the picture is OUT/scale-envs.png

CartPole-v1, 4 environments as a base, five seeds in one compiled function of JAX. --scale-envs K keeps the size of the
minibatches and the learning rate and adds minibatches (Beukman et al. 2026, arXiv 2603.06009); --num-envs alone makes
the minibatches K times as large. Runs that exist are not repeated.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from proximo.models.curves import Curve, average_over_seeds, read_episodes, rolling_mean
from proximo.models.pictures import PALETTE, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BASE, FACTORS, SOLVED, SEEDS = 4, (1, 4, 16), 475.0, 5  # CartPole-v1 counts as solved at 475
RULES = {"scaled": "--scale-envs", "naive": "--num-envs"}


def train(folder: Path, rule: str, factor: int, steps: int) -> list[Path]:
    """Train all seeds of one setting, and return their folders."""
    value = factor if rule == "scaled" else BASE * factor
    words = (f"train ppo --framework jax --engine jax --num-seeds {SEEDS} --threads 1 --total-timesteps {steps} "
             f"--logger none --resume auto {RULES[rule]} {value} --run-dir").split()
    subprocess.run([sys.executable, "-m", "proximo", *words, str(folder)], check=True, capture_output=True,
                   env=os.environ | {"JAX_PLATFORMS": "cpu"})
    return sorted(folder.glob("seed-*"))


def read_curve(run: Path) -> Curve:
    """Read the episodes of one seed."""
    episodes = read_episodes(run)
    return Curve(variant="ppo", config={}, steps=episodes.step, values=episodes.ret)


def steps_until_solved(curve: Curve) -> float:
    """Return the steps after which the mean of the last 100 episodes is at least 475 for the first time."""
    reached = np.flatnonzero(rolling_mean(curve.values)[99:] >= SOLVED)
    return float(curve.steps[99 + reached[0]]) if len(reached) else np.inf


def table_row(rule: str, factor: int, runs: list[Path]) -> str:
    """Return a row of the table."""
    curves, config = [read_curve(run) for run in runs], json.loads((runs[0] / "config.json").read_text())["config"]
    solved = [steps_until_solved(curve) for curve in curves]
    middle = float(np.median(solved))
    last = [curve.values[-100:].mean() for curve in curves]
    size = config["num_envs"] * config["num_steps"] // config["num_minibatches"]
    return (f"| {'-' if factor == 1 else RULES[rule]} | {config['num_envs']} | {config['num_minibatches']} x {size} | "
            f"{'not reached' if np.isinf(middle) else f'{middle:,.0f}'} | {np.isfinite(solved).sum()} of {len(runs)} | "
            f"{np.mean(last):.0f} |")


def draw(panel: "Axes", title: str, curves: dict[int, list[Curve]]) -> None:
    """Draw the curves of one rule."""
    for color, (factor, found) in zip(PALETTE, curves.items()):
        at, mean, deviation = average_over_seeds(found)
        panel.plot(at, mean, color=color, linewidth=1.8, label=f"{BASE * factor} environments")
        panel.fill_between(at, mean - deviation, mean + deviation, color=color, alpha=0.2, linewidth=0)
    panel.set_title(title, fontsize=11)
    panel.set(xlabel="environment steps", ylim=(0, 510))
    panel.grid(color="0.9", linewidth=0.8)
    panel.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Train what is missing, draw the picture and print the table."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/scale-envs"))
    parser.add_argument("--steps", type=int, default=500_000)
    args = parser.parse_args()
    runs = {(rule, factor): train(args.out / f"{rule}-{factor}", rule, factor, args.steps)
            for rule in RULES for factor in FACTORS if (rule, factor) != ("naive", 1)}
    runs["naive", 1] = runs["scaled", 1]
    figure = Figure(figsize=(9, 3.6), dpi=100, layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, (rule, flag) in zip(panels, RULES.items()):
        draw(panel, f"more environments with {flag}", {factor: [read_curve(run) for run in runs[rule, factor]]
                                                       for factor in FACTORS})
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panels[0].set_ylabel("episodic return")
    panels[0].legend(loc="lower right", fontsize=8)
    save_figure(figure, args.out / "scale-envs.png")
    print("| flag | environments | minibatches x rows | steps until 475, median | seeds | last 100 episodes |\n"
          "|---|---|---|---|---|---|")
    for factor in FACTORS:
        for rule in RULES:
            if (rule, factor) != ("naive", 1):
                print(table_row(rule, factor, runs[rule, factor]))


if __name__ == "__main__":
    main()
