"""Steps per second of Proximo under JAX and of Stable-Baselines3: CartPole-v1, 4 x 128, one thread, alternating.

    python benchmarks/speed_jax.py                 # inside the compiled function, Gymnasium, EnvPool's XLA handle, SB3
    python benchmarks/speed_jax.py --rounds 5 --seeds 10

Every measurement is a process of its own, pinned to one core. Compiling is timed apart, with an empty cache and again
with the cache that this left. The medians of all rounds are compared.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

WAYS = {"jax": 300_000, "gym": 60_000, "envpool": 60_000, "seeds": 150_000, "sb3": 20_000}  # steps measured
TARGETS = {"jax": 30.0, "gym": 8.0}


def proximo(way: str, seeds: int) -> dict[str, float]:
    """Steps a second after the second iteration, and the seconds before it; runs inside a measurement's process."""
    from proximo.config import Config
    from proximo.on_jax.recipes.ppo import make_agent, make_envs
    from proximo.on_jax.train import train
    from proximo.on_jax.train_seeds import train_seeds

    cfg = Config(total_timesteps=WAYS[way], engine="jax" if way == "seeds" else way, device="cpu",
                 checkpoint_every=10_000)
    began, steps = time.perf_counter(), 0
    if way == "seeds":
        iterations = ([row[0].iteration, sum(it.steps for it in row)] for row in
                      train_seeds(replace(cfg, num_seeds=seeds), make_envs, make_agent))
    else:
        iterations = ([it.iteration, it.steps] for it in train(cfg, make_envs, make_agent))
    for iteration, steps in iterations:
        if iteration == 2:
            first, first_steps = time.perf_counter(), steps
    return {"rate": (steps - first_steps) / (time.perf_counter() - first), "start": first - began}


def stable_baselines3(steps: int) -> dict[str, float]:
    """The same for SB3 with the same hyper-parameters."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    model = PPO("MlpPolicy", make_vec_env("CartPole-v1", 4), n_steps=128, batch_size=128, n_epochs=4,
                learning_rate=2.5e-4, clip_range=0.2, ent_coef=0.01, device="cpu")
    began = time.perf_counter()
    model.learn(512)
    first = time.perf_counter()
    model.learn(steps)
    return {"rate": steps / (time.perf_counter() - first), "start": first - began}


def measured(way: str, seeds: int, cache: str) -> dict[str, float]:
    """One process on one core."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu",
                        "JAX_COMPILATION_CACHE_DIR": cache}
    pin = ["taskset", "-c", "0"] if sys.platform == "linux" else []
    command = [*pin, sys.executable, __file__, "--measure", way, "--seeds", str(seeds)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{way} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=10, help="agents trained at once in the way `seeds`")
    parser.add_argument("--measure", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        answer = stable_baselines3(WAYS["sb3"]) if args.measure == "sb3" else proximo(args.measure, args.seeds)
        print(json.dumps(answer))
        return
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as cache:
        for number in range(args.rounds):
            for way in WAYS:
                found[way].append(measured(way, args.seeds, cache))
                print(f"round {number + 1}  {way:8}{found[way][-1]['rate']:10.0f} steps/s", flush=True)
    base = statistics.median(x["rate"] for x in found["sb3"])
    for way, rounds in found.items():
        rate = statistics.median(x["rate"] for x in rounds)
        again = f", {rounds[1]['start']:.1f} s from the cache" if len(rounds) > 1 else ""
        wanted = f"  (wanted {TARGETS[way]:.0f})" if way in TARGETS else ""
        print(f"{way:8}{rate:10.0f} steps/s {rate / base:6.1f} x SB3{wanted}; first two iterations after "
              f"{rounds[0]['start']:.1f} s{again}")


if __name__ == "__main__":
    main()
