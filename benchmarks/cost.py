"""Measure what training costs as the work grows: environments, width of the network, size of an observation, seeds.

    python benchmarks/cost.py --out runs/cost          # the tables, and the picture OUT/cost.png

CartPole-v1, 8 environments x 32 steps, 4 epochs x 4 minibatches, 2 layers of 64, one thread; each axis changes one of
these. Every point has its own process. "Steps per CPU-second" divides the steps by the CPU time of the whole process
after its first iteration, which compiles: other programs on the machine disturb it less than the clock's time. Memory
is the peak of the process, with its libraries. Points that exist in OUT are not measured again.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AXES = {"environments": (4, 16, 64, 256, 1024, 4096), "width": (64, 128, 256, 512, 1024),
        "observation": (4, 64, 1024, 16384), "seeds": (1, 4, 16, 64)}
LABELS = {"width": "units of each layer", "observation": "numbers in an observation", "seeds": "seeds at once"}
WAYS: dict[str, dict[str, Any]] = {"torch": {}, "torch --compile": {"compile": True}, "jax": {"framework": "jax"}}
UNTIL, LEAST = 3.0, 2  # CPU-seconds and iterations that are measured


class Numbers(gymnasium.Env[Any, Any]):
    """An environment that costs nothing: `size` numbers, which do not change, and episodes of 100 steps."""

    def __init__(self, size: int) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.numbers, self.steps = np.ones(size, np.float32), 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return self.numbers, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.numbers, 1.0, False, self.steps == 100, {}


def training(axis: str, size: int, way: str) -> tuple[Any, int]:
    """Return the iterations of training of one point, and the steps of an iteration."""
    import proximo

    envs = size if axis == "environments" else 8
    fields: dict[str, Any] = {"num_envs": envs, "num_steps": 32, "threads": 1, "total_timesteps": 10**9} | WAYS[way]
    if axis == "width":
        fields["hidden_sizes"] = (size, size)
    if axis == "seeds" and size > 1:
        from proximo.catalog import parts_of
        from proximo.config import Config
        from proximo.on_jax.train_group import train_group

        parts, cfgs = parts_of("ppo", "jax"), [Config(engine="jax", seed=seed, **fields) for seed in range(size)]
        return train_group(cfgs, parts.make_envs, parts.make_agent), envs * 32 * size
    env = (lambda: Numbers(size)) if axis == "observation" else "CartPole-v1"
    return proximo.iterations("ppo", env, **fields), envs * 32


def measure(axis: str, size: int, way: str) -> dict[str, float]:
    """Return the steps per CPU-second and the peak of memory in MiB."""
    iterations, steps = training(axis, size, way)
    next(iterations)
    began, count = time.process_time(), 0
    while count < LEAST or time.process_time() - began < UNTIL:
        next(iterations)
        count += 1
    return {"rate": count * steps / (time.process_time() - began),
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def measured(axis: str, size: int, way: str, out: Path) -> dict[str, float] | None:
    """Measure one point in a process of its own, or read what was measured; None where the way cannot do it."""
    if axis == "seeds" and size > 1 and way != "jax":
        return None
    file = out / f"{axis}-{size}-{way.replace(' ', '')}.json"
    if not file.exists():
        command = [sys.executable, __file__, "--measure", axis, str(size), way]
        done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"},
                              stdout=subprocess.PIPE, text=True, check=True)
        file.write_text(done.stdout.splitlines()[-1])
    found: dict[str, float] = json.loads(file.read_text())
    return found


def table(axis: str, points: dict[tuple[str, int], dict[str, float] | None]) -> str:
    """Return the table of one axis: a row for each size, two columns for each way."""
    def cells(size: int) -> list[str]:
        row = [points[way, size] for way in WAYS]
        return [f"{one['rate']:,.0f} | {one['memory']:,.0f}" if one else " | " for one in row]

    head = f"| {axis} | " + " | ".join(f"{way} | MiB" for way in WAYS) + " |\n" + "|---" * (1 + 2 * len(WAYS)) + "|\n"
    return head + "\n".join(f"| {size:,} | {' | '.join(cells(size))} |" for size in AXES[axis]) + "\n"


def draw(axes: "list[Axes]", axis: str, points: dict[tuple[str, int], dict[str, float] | None]) -> None:
    """Draw speed into the first and memory into the second of two axes."""
    from proximo.models.pictures import PALETTE

    for way, color in zip(WAYS, PALETTE, strict=False):
        found = [(size, one) for size in AXES[axis] if (one := points[way, size])]
        for panel, name in zip(axes, ("rate", "memory"), strict=True):
            panel.plot([size for size, _ in found], [one[name] for _, one in found], "o-", color=color, label=way, ms=4)
    for panel in axes:
        panel.set(xscale="log", yscale="log", xlabel=LABELS.get(axis, axis))
        panel.grid(alpha=0.3)
    axes[1].set(yscale="linear", ylim=(0, None))


def main() -> None:
    """Measure every point, print the tables, and save the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/cost"), help="folder of the points and the picture")
    parser.add_argument("--axes", nargs="+", choices=list(AXES), default=list(AXES))
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        axis, size, way = args.measure
        print(json.dumps(measure(axis, int(size), way)))
        return
    from matplotlib.figure import Figure

    from proximo.models.pictures import save_figure

    args.out.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(3.4 * len(args.axes), 6), layout="constrained")
    panels = figure.subplots(2, len(args.axes), squeeze=False)
    for column, axis in enumerate(args.axes):
        points = {(way, size): measured(axis, size, way, args.out) for way in WAYS for size in AXES[axis]}
        print(table(axis, points), flush=True)
        draw([panels[0, column], panels[1, column]], axis, points)
    panels[0, 0].set_ylabel("steps per CPU-second")
    panels[1, 0].set_ylabel("peak memory, MiB")
    panels[0, 0].legend()
    save_figure(figure, args.out / "cost.png")


if __name__ == "__main__":
    main()
