"""Steps per second of Proximo under JAX, beside Stable-Baselines3 or torch, one thread, alternating.

    python benchmarks/speed_jax.py --rounds 3      # CartPole-v1 4 x 128: inside the compiled function and EnvPool's
                                                   # XLA handle (both scanned and unrolled), Gymnasium, ten seeds, SB3
    python benchmarks/speed_jax.py --task breakout --rounds 2 --iterations 3   # Breakout-v5 8 x 128 through EnvPool

Every measurement is a process of its own, pinned to one core. Compiling is timed apart: the first two iterations with
an empty cache (round 1) and again with the cache that this left (round 2). The medians of all rounds are compared.
Breakout's milliseconds of an iteration are split into emulation, acting (all else while playing) and update.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from typing import Any

from proximo.config import Config

CARTPOLE = {"jax": 300_000, "jax-unrolled": 300_000, "gym": 60_000, "envpool": 60_000, "envpool-unrolled": 60_000,
            "seeds": 150_000, "sb3": 20_000}  # steps measured
BREAKOUT = {"torch": "ppo_atari_envpool", "jax": "ppo_atari_envpool", "unrolled": "ppo_atari_envpool_xla_jax",
            "scanned": "ppo_atari_envpool_xla_jax_scan"}  # variants
TARGETS = {"jax": 30.0, "gym": 8.0}
COMPILE_TARGET = 10.0  # seconds


@dataclass(frozen=True)
class Unrolled(Config):
    """With the loops over epochs and minibatches written out."""

    unroll: bool = True


def cartpole(way: str, seeds: int) -> dict[str, float]:
    """Steps a second after the second iteration, and the seconds before it; runs inside a measurement's process."""
    from proximo.on_jax.recipes.ppo import make_agent, make_envs

    from proximo.on_jax.train import train
    from proximo.on_jax.train_seeds import train_seeds

    engine: Any = "jax" if way == "seeds" else way.removesuffix("-unrolled")
    kind = Unrolled if way.endswith("-unrolled") else Config
    cfg = kind(total_timesteps=CARTPOLE[way], engine=engine, device="cpu", checkpoint_every=10_000, threads=1)
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


class Timed:
    """A suite that notes when its steps begin and end."""

    def __init__(self, envs: Any):
        self.envs, self.spans = envs, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.envs, name)

    def step(self, action: Any) -> Any:
        began = time.perf_counter()
        step = self.envs.step(action)
        self.spans.append((began, time.perf_counter()))
        return step


def outside(cfg: Config, train: Any, make_envs: Any, make_agent: Any, iterations: int) -> dict[str, float]:
    """Breakout where playing is a loop in Python."""
    made: list[Timed] = []

    def timed(cfg: Config, given: list[int]) -> Timed:
        made.append(Timed(make_envs(cfg, given)))
        return made[0]

    ends = [time.perf_counter()]
    for it in train(replace(cfg, total_timesteps=cfg.batch_size * (2 + iterations)), timed, make_agent):
        ends.append(time.perf_counter())
        if it.iteration == 2:
            made[0].spans.clear()
    spans, steps = made[0].spans, cfg.num_steps
    emulation = sum(end - began for began, end in spans)
    played = sum(spans[i + steps - 1][1] - spans[i][0] for i in range(0, len(spans), steps))
    return split(cfg, iterations, ends[2] - ends[0], ends[-1] - ends[2], played, emulation)


def inside(cfg: Config, make_envs: Any, make_agent: Any, iterations: int) -> dict[str, float]:
    """Breakout through EnvPool's XLA handle; emulation is timed in a pool of its own that acts at random."""
    import jax
    import numpy as np

    from proximo.envs.envpool import make_envpool_atari
    from proximo.on_jax.begin import inner
    from proximo.on_jax.iterate import make_play
    from proximo.on_jax.loss import ppo_loss
    from proximo.on_jax.setup import set_up

    began = time.perf_counter()
    parts = set_up(cfg, make_envs, make_agent, ppo_loss)
    play, state, playing = jax.jit(make_play(cfg, inner(cfg, parts.envs), parts.tools.bound)), parts.state, 0.0
    for number in range(2 + iterations):
        if number == 2:
            first, playing = time.perf_counter(), 0.0
        start = time.perf_counter()
        played = jax.block_until_ready(play(state))
        playing += time.perf_counter() - start
        adam, _ = jax.block_until_ready(parts.tools.learn(state.adam, played.rollout, state.carry.state, state.keys,
                                                          state.iteration + 1))
        state = state._replace(adam=adam, carry=played.carry, envs=played.envs, iteration=state.iteration + 1)
    whole = time.perf_counter() - first
    parts.envs.close()
    pool = make_envpool_atari(cfg, list(range(cfg.num_envs)))
    pool.reset()
    actions = np.random.default_rng(0).integers(0, pool.action_space.n, (iterations * cfg.num_steps, cfg.num_envs))
    start = time.perf_counter()
    for action in actions.astype(np.int32):
        pool.step(action)
    emulation = time.perf_counter() - start
    pool.close()
    return split(cfg, iterations, first - began, whole, playing, emulation)


def split(cfg: Config, iterations: int, start: float, whole: float, played: float,
          emulation: float) -> dict[str, float]:
    """Seconds of several iterations as a measurement: milliseconds of one."""
    each = 1000 / iterations
    return {"rate": iterations * cfg.batch_size / whole, "start": start, "emulation": emulation * each,
            "acting": (played - emulation) * each, "update": (whole - played) * each}


def breakout(way: str, iterations: int, num_steps: int) -> dict[str, float]:
    """Breakout-v5 in one way; runs inside a measurement's process."""
    from proximo.catalog import parts_of
    from proximo.variants import AtariEnvpool, AtariXLA

    variant, framework = BREAKOUT[way], "torch" if way == "torch" else "jax"
    recipe, same = parts_of(variant, framework), {"device": "cpu", "threads": 1, "checkpoint_every": 10_000,
                                                   "num_steps": num_steps, "clip_vloss": False}
    if way in ("torch", "jax"):
        cfg: Config = AtariEnvpool(framework=framework, **same)  # type: ignore[arg-type]
        return outside(cfg, recipe.train, recipe.make_envs, recipe.make_agent, iterations)
    cfg = AtariXLA(unroll=way == "unrolled", **same)  # type: ignore[arg-type]
    return inside(cfg, recipe.make_envs, recipe.make_agent, iterations)


def measured(way: str, args: argparse.Namespace, cache: str) -> dict[str, float]:
    """One process on one core."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu",
                        "JAX_COMPILATION_CACHE_DIR": cache}
    pin = ["taskset", "-c", "0"] if sys.platform == "linux" else []
    command = [*pin, sys.executable, __file__, "--measure", way, "--task", args.task, "--seeds", str(args.seeds),
               "--iterations", str(args.iterations), "--num-steps", str(args.num_steps)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{way} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def told(way: str, rounds: list[dict[str, float]], base: float, base_name: str, task: str) -> str:
    """One line of the result."""
    median = {name: statistics.median(x[name] for x in rounds) for name in rounds[0]}
    wanted = f" (wanted {TARGETS[way]:.0f})" if task == "cartpole" and way in TARGETS else ""
    again = f", {rounds[1]['start']:.1f} s from the cache" if len(rounds) > 1 else ""
    late = f" (wanted below {COMPILE_TARGET:.0f})" if rounds[0]["start"] > COMPILE_TARGET else ""
    parts = "".join(f"; {name} {median[name]:.0f} ms" for name in ("emulation", "acting", "update") if name in median)
    return (f"{way:18}{median['rate']:10.0f} steps/s {median['rate'] / base:6.2f} x {base_name}{wanted}{parts}; first "
            f"two iterations after {rounds[0]['start']:.1f} s{late}{again}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=("cartpole", "breakout"), default="cartpole")
    parser.add_argument("--ways", nargs="+", help="only these, of " + ", ".join([*CARTPOLE, *BREAKOUT]))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=10, help="agents trained at once in the way `seeds`")
    parser.add_argument("--iterations", type=int, default=3, help="of Breakout, after two that compile")
    parser.add_argument("--num-steps", type=int, default=128, help="of Breakout")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure and args.task == "breakout":
        print(json.dumps(breakout(args.measure, args.iterations, args.num_steps)))
        return
    if args.measure:
        print(json.dumps(stable_baselines3(CARTPOLE["sb3"]) if args.measure == "sb3" else
                         cartpole(args.measure, args.seeds)))
        return
    ways = args.ways or list(CARTPOLE if args.task == "cartpole" else BREAKOUT)
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as cache:
        for number in range(args.rounds):
            for way in ways:
                found[way].append(measured(way, args, cache))
                print(f"round {number + 1}  {way:18}{found[way][-1]['rate']:10.0f} steps/s", flush=True)
    wanted = "sb3" if args.task == "cartpole" else "torch"
    base = wanted if wanted in ways else ways[-1]
    rate = statistics.median(x["rate"] for x in found[base])
    for way, rounds in found.items():
        print(told(way, rounds, rate, base, args.task))


if __name__ == "__main__":
    main()
