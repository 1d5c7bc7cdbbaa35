"""Compare the steps per second of Proximo and other implementations of PPO with equal hyper-parameters.

    python benchmarks/peers/run.py --rounds 3 --environments /envs \
        --source purejaxrl=/checkouts/purejaxrl --source cleanrl=/checkouts/cleanrl
    python benchmarks/peers/run.py --regime halfcheetah --environments /envs --source leanrl=/checkouts/LeanRL

Regimes: CartPole-v1 in four settings (small, many, wide, wide-short) and with ten seeds at once, on one core (seeds)
and on two (seeds-two), halfcheetah, and breakout, which has two cores. small-gpu, wide-gpu and breakout-gpu are the
same on an NVIDIA GPU with 16 cores; in the other regimes no GPU is visible. Each peer has a script beside this one, and
runs, pinned to its cores, in its environment of the folder that install.py made, or in the interpreter that `--python`
names. `--source` is a checkout of a peer that no package index has, or that consists of scripts. A peer whose library
or checkout is missing is left out, with a message. The programs alternate; the table has the medians of all rounds.
The first run of LeanRL compiles for several minutes.

Proximo runs as its command does, with CSV, TensorBoard and checkpoints on. A script prints one line of JSON: `rate` in
environment steps per second without compilation, `start` in seconds until that is over, and `differs`, the settings in
which the peer is not equal.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from install import ENVIRONMENTS

HERE = Path(__file__).parent
COMMON = {"gamma": 0.99, "gae_lambda": 0.95, "value": 0.5, "max_grad_norm": 0.5, "seeds": 1, "cores": 1,
          "device": "cpu"}
GPU = {"device": "cuda", "cores": 16}
CARTPOLE = COMMON | {"env": "CartPole-v1", "learning_rate": 2.5e-4, "clip": 0.2, "entropy": 0.01}
SMALL = CARTPOLE | {"envs": 4, "steps": 128, "epochs": 4, "minibatches": 4}
SEEDS = SMALL | {"seeds": 10}
WIDE = CARTPOLE | {"envs": 2048, "steps": 32, "epochs": 4, "minibatches": 4}
BREAKOUT = COMMON | {"env": "Breakout", "envs": 8, "steps": 128, "epochs": 4, "minibatches": 4, "cores": 2,
                     "learning_rate": 2.5e-4, "clip": 0.1, "entropy": 0.01}
REGIMES: dict[str, dict[str, Any]] = {
    "small": SMALL, "seeds": SEEDS, "seeds-two": SEEDS | {"cores": 2}, "many": SMALL | {"envs": 256}, "wide": WIDE,
    "wide-short": WIDE | {"epochs": 1, "minibatches": 2},
    "halfcheetah": COMMON | {"env": "HalfCheetah-v4", "envs": 1, "steps": 2048, "epochs": 10, "minibatches": 32,
                             "learning_rate": 3e-4, "clip": 0.2, "entropy": 0.0},
    "breakout": BREAKOUT, "breakout-gpu": BREAKOUT | GPU, "small-gpu": SMALL | GPU, "wide-gpu": WIDE | GPU}
SCALE = {"small": {"proximo-jax": 400_000, "proximo-compile": 200_000, "proximo-eager": 60_000, "rejax": 400_000,
                   "purejaxrl": 400_000, "sb3": 30_000, "sbx": 40_000, "cleanrl": 30_000, "pufferlib": 60_000,
                   "samplefactory": 20_000},
         "seeds": {"proximo-jax": 200_000, "rejax": 200_000, "purejaxrl": 200_000},  # of each of ten seeds
         "seeds-two": {"proximo-jax": 200_000, "rejax": 200_000, "purejaxrl": 200_000},
         "many": {"proximo-jax": 2_000_000, "proximo-envpool": 1_000_000, "proximo-compile": 1_000_000,
                  "proximo-eager": 500_000, "pufferlib": 500_000, "sb3": 200_000},
         "wide": {"proximo-jax": 2_000_000, "rejax": 2_000_000, "purejaxrl": 2_000_000, "pufferlib": 1_000_000},
         "wide-short": {"proximo-jax": 4_000_000, "rejax": 4_000_000, "purejaxrl": 4_000_000,
                        "pufferlib": 2_000_000},
         "halfcheetah": {"proximo-compile": 61_440, "proximo-jax": 61_440, "proximo-eager": 30_720, "leanrl": 61_440,
                         "sb3": 20_480, "sbx": 20_480, "cleanrl": 20_480},
         "breakout": {"proximo-eager": 16_384, "proximo-bf16": 16_384, "proximo-two": 16_384,
                      "proximo-two-bf16": 16_384, "leanrl": 31_744, "sb3": 8_192, "cleanrl": 8_192},
         "breakout-gpu": {"proximo-envpool": 61_440, "proximo-envpool-inductor": 61_440, "proximo-compile": 40_960,
                          "leanrl": 61_440, "sb3": 8_192, "cleanrl": 8_192},
         "small-gpu": {"proximo-jax": 400_000, "rejax": 400_000, "purejaxrl": 400_000},
         "wide-gpu": {"proximo-jax": 40_000_000, "rejax": 40_000_000, "purejaxrl": 40_000_000}}  # steps measured


def measure(peer: str, settings: dict[str, Any], python: str, source: str, core: int) -> dict[str, Any]:
    """Run one peer's script; a failure is a dict with `failed`."""
    name, _, way = peer.partition("-")
    words = [python, str(HERE / f"{name}_peer.py"), json.dumps(settings), source or way]
    threads, cores = str(settings["cores"]), f"{core}-{core + settings['cores'] - 1}"
    env = os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    if settings["device"] == "cpu":
        env |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    if name == "proximo":
        env["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1]), *filter(None, [env.get("PYTHONPATH")])])
    try:
        done = subprocess.run(["taskset", "-c", cores, *words], capture_output=True, text=True, env=env, timeout=900)
    except subprocess.TimeoutExpired:
        return {"failed": "it did not end within 900 s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"failed": (done.stderr.strip().splitlines() or ["no result"])[-1][:160]}
    return json.loads(lines[-1])


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Return the medians as lines of Markdown, fastest first."""
    rates = {peer: statistics.median(row["rate"] for row in rows) for peer, rows in found.items() if rows}
    lines = ["| | SPS, median | lowest | highest | seconds before | not equal |", "|---|---|---|---|---|---|"]
    for peer in sorted(rates, key=lambda name: -rates[name]):
        rows = found[peer]
        each = sorted(row["rate"] for row in rows)
        start = statistics.median(row["start"] for row in rows)
        lines.append(f"| {peer} | {rates[peer]:,.0f} | {each[0]:,.0f} | {each[-1]:,.0f} | {start:.1f} | "
                     f"{rows[0].get('differs', '')} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--regime", choices=REGIMES, default="small")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", nargs="*", help="only these")
    parser.add_argument("--core", type=int, default=0, help="the first core to pin to")
    parser.add_argument("--environments", type=Path, help="the folder that install.py made")
    for flag in ("--python", "--source"):
        parser.add_argument(flag, action="append", default=[], metavar="PEER=PATH")
    given = parser.parse_args()
    pythons, sources = (dict(pair.split("=", 1) for pair in pairs) for pairs in (given.python, given.source))
    if given.environments:
        folder = given.environments.resolve()
        pythons = {peer: str(folder / name / "bin" / "python") for name, (peers, _) in ENVIRONMENTS.items()
                   for peer in peers} | pythons
    scale = {peer: steps for peer, steps in SCALE[given.regime].items() if not given.peers or peer in given.peers}
    found: dict[str, list[dict[str, Any]]] = {peer: [] for peer in scale}
    for _ in range(given.rounds):
        for peer, steps in list(scale.items()):
            settings = REGIMES[given.regime] | {"total": steps}
            row = measure(peer, settings, pythons.get(peer, sys.executable), sources.get(peer, ""), given.core)
            if "failed" in row:
                print(f"{peer} is left out: {row['failed']}", file=sys.stderr)
                del scale[peer]
                continue
            found[peer].append(row)
            print(f"{peer}: {row['rate']:,.0f}", file=sys.stderr)
    print(table(found))


if __name__ == "__main__":
    main()
