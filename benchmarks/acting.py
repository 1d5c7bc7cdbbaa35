"""Measure how long a trained agent takes to choose actions, and how long its network alone takes.

    python benchmarks/acting.py --rounds 7

Every model is trained for one iteration, and gets one observation, then eight. Model.act with the most likely action,
Model.act with a sampled one, and the policy's network under torch.no_grad alternate in one process, with one thread.
The table has the medians of all rounds in microseconds of processor time for each call.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "CartPole-v1": ("ppo", {"env_id": "CartPole-v1"}),
    "CartPole-v1, LSTM": ("ppo", {"env_id": "CartPole-v1", "recurrent": "lstm"}),
    "Hopper-v4": ("ppo_continuous_action", {"env_id": "Hopper-v4"}),
    "Breakout": ("ppo_atari", {"env_id": "BreakoutNoFrameskip-v4"}),
}


def timed(call: Callable[[], Any], seconds: float) -> float:
    """Return the microseconds of processor time of one call, of as many calls as fit into a time."""
    count, began = 0, time.process_time()
    while (now := time.process_time()) - began < seconds:
        for _ in range(20):
            call()
        count += 20
    return (now - began) / count * 1e6


def calls_of(model: Any, obs: Any, rows: int) -> dict[str, Callable[[], Any]]:
    """Return what is compared, by the name of its column."""
    import torch

    agent, given = model.module, torch.from_numpy(obs.reshape(rows, *model.spec.obs_shape))
    first, state = torch.zeros(rows, dtype=torch.bool), agent.initial_state(rows)

    def network() -> Any:
        with torch.no_grad():
            if hasattr(agent, "trunk"):
                return agent.head(agent.memory(agent.trunk(given), first, state)[0], None)
            return agent.head(given, None)

    return {"`act`, most likely": lambda: model.act(obs, deterministic=True), "`act`, sampled": lambda: model.act(obs),
            "network alone": network}


def measure(variant: str, fields: dict[str, Any], rows: int, args: argparse.Namespace) -> dict[str, float]:
    """Return the median of each call in microseconds."""
    import numpy as np

    import proximo

    steps = {"num_steps": 8, "num_minibatches": 1, "num_envs": 1, "total_timesteps": 8, "threads": 1}
    model = next(iter(proximo.iterations(variant, **fields, **steps))).model()
    shape = ((rows,) if rows > 1 else ()) + model.spec.obs_shape
    numbers = np.random.default_rng(0).normal(size=shape)
    obs = (numbers * 40 + 100).astype(np.uint8) if model.spec.obs_dtype == np.uint8 else numbers.astype(np.float32)
    calls = calls_of(model, obs, rows)
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(args.rounds + 1):
        for name, call in calls.items():
            took = timed(call, args.seconds)
            if number:  # the first round warms up
                found[name].append(took)
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    """Print a line for each model and number of observations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each call in each round")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS), metavar="TASK")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for number, (task, rows) in enumerate((task, rows) for task in args.tasks for rows in (1, 8)):
        found = measure(*TASKS[task], rows, args)
        if not number:
            print(f"| model | observations | {' | '.join(found)} |\n|---|---|{'---|' * len(found)}")
        print(f"| {task} | {rows} | {' | '.join(f'{one:,.0f}' for one in found.values())} |", flush=True)


if __name__ == "__main__":
    main()
