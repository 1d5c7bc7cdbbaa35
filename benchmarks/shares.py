"""Measure steps per second of the variants with images, and the share of environments, acting and learning.

    python benchmarks/shares.py --threads 2
    python benchmarks/shares.py breakout-envpool --iterations 6

Every row is measured in its own process. The first iteration, which allocates memory, does not count. The last column
compares with the most that this machine could reach: the emulation as measured, and all passes of a step through the
network (without recurrent layer and heads) at the rate that they reach alone in minibatches. It varies by a tenth.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

TASKS = {
    "breakout": ("ppo_atari", "BreakoutNoFrameskip-v4", {"env_workers": 0}),
    "breakout-workers": ("ppo_atari", "BreakoutNoFrameskip-v4", {"env_workers": 2}),
    "breakout-envpool": ("ppo_atari", "BreakoutNoFrameskip-v4", {"engine": "envpool"}),
    "pong": ("ppo_atari", "PongNoFrameskip-v4", {}),
    "pong-lstm": ("ppo_atari_lstm", "PongNoFrameskip-v4", {}),
    "starpilot": ("ppo_procgen", "starpilot", {"num_steps": 64, "num_minibatches": 2}),
    "self-play": ("ppo_pettingzoo_ma_atari", "pong_v3", {}),
}


def measure(task: str, iterations: int, threads: int) -> dict[str, float]:
    """Train for `iterations` iterations after the first and return steps per second, shares of time, and the limit."""
    from proximo.catalog import config_class, parts_of
    from proximo.on_torch.loss import ppo_loss
    from proximo.runs.settings.resolve import resolve
    from proximo.runs.shares import measure_shares

    variant, env_id, fields = TASKS[task]
    cfg = resolve(config_class(variant)(env_id=env_id, threads=threads, logger="none", **fields), variant, 1, 1)
    parts = parts_of(variant, "torch")
    found = measure_shares(cfg, variant, parts, ppo_loss, iterations)
    return {"sps": found.sps, "environments": found.share("environment"),
            "acting": found.share("acting") + found.share("evaluation and advantages"),
            "learning": found.share("learning"),
            "limit": limit(cfg, parts, found.seconds["environment"] / cfg.batch_size)}


def limit(cfg: Any, parts: Any, emulation: float) -> float:
    """Estimate the most steps per second, from emulation and passes through the network alone.

    Args:
        cfg: The configuration.
        parts: The parts of the variant.
        emulation: Measured seconds of the environments for one step.
    """
    import torch

    envs = parts.make_envs(cfg, list(range(cfg.num_envs)))
    agent, step = parts.make_agent(envs, cfg), envs.reset()
    rows = cfg.minibatch_size
    obs = torch.from_numpy(step.obs).repeat(-(-rows // cfg.num_envs), 1, 1, 1)[:rows]
    envs.close()
    if agent.recurrent:
        agent = agent.trunk
        forward = agent
    else:
        def forward(x: Any) -> Any:
            return agent.value(x, None, ())
    times = {}
    for name in ("forward", "both", "forward", "both"):  # the first round is a warm-up
        began = time.perf_counter()
        for _ in range(4):
            with torch.set_grad_enabled(name == "both"):
                out = forward(obs).sum()
                if name == "both":
                    out.backward()
        times[name] = (time.perf_counter() - began) / 4 / rows
    return 1 / (emulation + times["forward"] + cfg.update_epochs * times["both"])


def main() -> None:
    """Print one row per task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.tasks[0], args.iterations, args.threads)))
        return
    print(f"| {args.threads} thread(s) | SPS | environments | acting | learning | of the limit |")
    print("|---|---|---|---|---|---|")
    for task in args.tasks:
        done = subprocess.run([sys.executable, __file__, task, "--measure", "--iterations", str(args.iterations),
                               "--threads", str(args.threads)], capture_output=True, text=True, check=False,
                              env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"})  # as on the command line
        if done.returncode:
            sys.exit(done.stderr)
        found = json.loads(done.stdout.splitlines()[-1])
        shares = " | ".join(f"{found[part]:.0%}" for part in ("environments", "acting", "learning"))
        print(f"| {task} | {found['sps']:,.0f} | {shares} | {found['sps'] / found['limit']:.0%} |", flush=True)


if __name__ == "__main__":
    main()
