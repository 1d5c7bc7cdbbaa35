"""What the programs of the walk-through share: train with several seeds, write a CSV file, draw a picture.

Environment variables: WALKTHROUGH_STEPS (8000), WALKTHROUGH_SEEDS (3), WALKTHROUGH_FOLDER (runs/walkthrough).
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

Episodes = list[tuple[int, float]]  # for each episode: the environment step at its end, and its return


def run(name: str, variants: dict[str, Callable[[int, int], Episodes]], before: str = "") -> Any:
    """Train each variant with each seed; write NAME.csv and NAME.png, where the last variant of `before` is grey."""
    torch.set_num_threads(1)  # more threads make networks this small slower
    folder = Path(os.environ.get("WALKTHROUGH_FOLDER", "runs/walkthrough"))
    total_steps, num_seeds = (int(os.environ.get(f"WALKTHROUGH_{x}", y)) for x, y in (("STEPS", 8_000), ("SEEDS", 3)))
    folder.mkdir(parents=True, exist_ok=True)
    grid, curves = np.linspace(0, total_steps, 101), {}
    for variant, train in variants.items():
        curves[variant] = np.array([smooth(train(seed, total_steps), grid) for seed in range(1, num_seeds + 1)])
        end = curves[variant][:, -1]
        print(f"{name} {variant:<24} {end.mean():6.1f}   seeds {end.min():6.1f} to {end.max():6.1f}", flush=True)
    with open(folder / f"{name}.csv", "w") as file:
        for variant, lines in curves.items():
            for seed, curve in enumerate(lines, 1):
                print(variant, seed, total_steps, *curve.round(2), sep=",", file=file)
    path = folder / f"{before}.csv"
    rows = [line.split(",") for line in path.read_text().splitlines()] if before and path.exists() else []
    last = np.array([row[2:] for row in rows if row[0] == rows[-1][0]], float)  # number of steps, curve
    earlier = [(np.linspace(0, last[0, 0], 101), last[:, 1:])] if len(last) else []
    return draw(folder / f"{name}.png", grid, curves, earlier)


def smooth(episodes: Episodes, grid: np.ndarray, last: int = 20) -> np.ndarray:
    """Return, for each step of the grid, the mean return of the `last` episodes that had ended by then."""
    if not episodes:
        raise SystemExit(f"No episode has ended within {grid[-1]:.0f} steps. Choose a larger WALKTHROUGH_STEPS.")
    steps, returns = np.array(episodes).T
    ends = np.searchsorted(steps, grid, side="right").clip(min=1)
    return np.array([returns[max(0, end - last):end].mean() for end in ends])


def draw(path: Path, grid: np.ndarray, curves: dict[str, np.ndarray], earlier: list[tuple[np.ndarray, ...]]) -> Any:
    """Draw one panel for each variant: a line for the mean of the seeds, a band from the worst to the best.

    `earlier` has the steps and the curves that are drawn in grey.
    """
    from matplotlib.figure import Figure
    columns, rows = min(len(curves), 4), -(-len(curves) // 4)
    figure = Figure((1.2 + 2.8 * columns + (len(curves) == 1), 0.4 + 2.2 * rows), dpi=90, layout="constrained")
    for i, (variant, curve) in enumerate(curves.items(), 1):
        axes = figure.add_subplot(rows, columns, i)
        for (steps, lines), color in zip([*earlier, (grid, curve)], ["grey"] * len(earlier) + ["tab:blue"]):
            axes.plot(steps, lines.mean(0), color=color)
            axes.fill_between(steps, lines.min(0), lines.max(0), color=color, alpha=0.25, linewidth=0)
        axes.set(title=variant, xlabel="environment steps", ylabel="return", ylim=(0, 515), xlim=(0, grid[-1]))
        axes.label_outer()
        if i + columns > len(curves):  # nothing is below
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("environment steps")
    figure.savefig(path)
    return figure
