"""Compare the steps per second of Proximo under JAX with Stable-Baselines3 or torch, on one thread.

    python benchmarks/speed_jax.py --rounds 3      # CartPole-v1, 4 x 128: inside the compiled function, EnvPool's XLA
                                                   # handle (both scanned and unrolled), Gymnasium, ten seeds, SB3
    python benchmarks/speed_jax.py --task breakout --rounds 2 --iterations 3   # Breakout-v5, 8 x 128, through EnvPool

Every measurement has its own process, which is pinned to one core. The programs alternate, and the medians of all
rounds are compared. The seconds before the third iteration, which include compilation, are reported separately: with
an empty cache (round 1), and with the cache that it leaves (round 2). Milliseconds of an iteration on Breakout are
divided into emulation, acting (everything else while playing) and update.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from proximo.config import Config

CARTPOLE = {"jax": 300_000, "jax-unrolled": 300_000, "gym": 60_000, "envpool": 60_000, "envpool-unrolled": 60_000,
            "seeds": 150_000, "sb3": 20_000}  # steps measured
BREAKOUT = {"torch": "ppo_atari_envpool", "jax": "ppo_atari_envpool", "unrolled": "ppo_atari_envpool_xla_jax",
            "scanned": "ppo_atari_envpool_xla_jax_scan"}  # variants
TARGETS = {"jax": 30.0, "gym": 8.0}  # times the base
COMPILE_TARGET = 10.0  # seconds


@dataclass(frozen=True)
class Unrolled(Config):
    """Compiles the loops over epochs and minibatches as repeated code."""

    @property
    def unrolls(self) -> bool:
        """See Config."""
        return True


def measure_cartpole(way: str, seeds: int) -> dict[str, float]:
    """Return the steps per second after the second iteration, and the seconds until then. Runs in its own process."""
    from proximo.catalog import parts_of
    from proximo.on_jax.train_group import train_group

    parts, engine = parts_of("ppo", "jax"), "jax" if way == "seeds" else way.removesuffix("-unrolled")
    kind: Any = Unrolled if way.endswith("-unrolled") else Config
    cfg = kind(framework="jax", total_timesteps=CARTPOLE[way], engine=engine, device="cpu", checkpoint_every=10_000,
               threads=1)
    began, steps = time.perf_counter(), 0
    cfgs = [replace(cfg, seed=seed) for seed in range(1, seeds + 1)]
    trained: Any = train_group(cfgs, parts.make_envs, parts.make_agent) if way == "seeds" \
        else ([it] for it in parts.train(cfg, parts.make_envs, parts.make_agent))
    for row in trained:
        iteration, steps = row[0].iteration, sum(it.steps for it in row)
        if iteration == 2:
            first, first_steps = time.perf_counter(), steps
    return {"rate": (steps - first_steps) / (time.perf_counter() - first), "start": first - began}


def measure_sb3(steps: int) -> dict[str, float]:
    """Do the same for Stable-Baselines3 with the same hyper-parameters."""
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


class TimedEnvs:
    """Environments that record when their steps begin and end."""

    def __init__(self, envs: Any) -> None:
        self.envs = envs
        self.spans: list[tuple[float, float]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.envs, name)

    def step(self, action: Any) -> Any:
        """See VecEnv.step."""
        began = time.perf_counter()
        step = self.envs.step(action)
        self.spans.append((began, time.perf_counter()))
        return step


def measure_outside(cfg: Config, parts: Any, iterations: int) -> dict[str, float]:
    """Measure Breakout where playing is a loop in Python."""
    made: list[TimedEnvs] = []

    def make_timed(cfg: Config, seeds: list[int]) -> TimedEnvs:
        made.append(TimedEnvs(parts.make_envs(cfg, seeds)))
        return made[0]

    ends = [time.perf_counter()]
    cfg = replace(cfg, total_timesteps=cfg.batch_size * (2 + iterations))
    for it in parts.train(cfg, make_timed, parts.make_agent):
        ends.append(time.perf_counter())
        if it.iteration == 2:
            made[0].spans.clear()
    spans, steps = made[0].spans, cfg.num_steps
    emulation = sum(end - began for began, end in spans)
    played = sum(spans[i + steps - 1][1] - spans[i][0] for i in range(0, len(spans), steps))
    return divide(cfg, iterations, ends[2] - ends[0], ends[-1] - ends[2], played, emulation)


def measure_pool(cfg: Config, parts: Any, iterations: int) -> dict[str, float]:
    """Measure Breakout through EnvPool's XLA handle. Emulation is timed in another pool, with random actions."""
    import jax

    from proximo.on_jax.loss import ppo_loss
    from proximo.on_jax.setup import set_up

    began = time.perf_counter()
    player: Any
    player, state = set_up(cfg, parts.make_envs, parts.make_agent, ppo_loss)
    for number in range(2 + iterations):
        if number == 2:
            first, playing = time.perf_counter(), 0.0
        start = time.perf_counter()
        played = jax.block_until_ready(player.play(state))
        playing += time.perf_counter() - start if number >= 2 else 0.0
        iteration = state.iteration + 1
        adam, _ = jax.block_until_ready(player.learn(state.adam, played.rollout, state.carry.state, state.keys,
                                                     iteration))
        state = state._replace(adam=adam, carry=played.carry, envs=played.envs, iteration=iteration)
    whole = time.perf_counter() - first
    player.envs.close()
    return divide(cfg, iterations, first - began, whole, playing, time_emulation(cfg, iterations))


def time_emulation(cfg: Config, iterations: int) -> float:
    """Return the seconds that a pool takes for the steps of some iterations, with random actions."""
    import numpy as np

    from proximo.envs.envpool import make_envpool

    pool = make_envpool(cfg, list(range(cfg.num_envs)))
    pool.reset()
    actions = np.random.default_rng(0).integers(0, pool.action_space.n, (iterations * cfg.num_steps, cfg.num_envs))
    start = time.perf_counter()
    for action in actions.astype(np.int32):
        pool.step(action)
    emulation = time.perf_counter() - start
    pool.close()
    return emulation


def divide(cfg: Config, iterations: int, start: float, whole: float, played: float,
           emulation: float) -> dict[str, float]:
    """Divide the seconds of some iterations into milliseconds of one: emulation, acting and update."""
    each = 1000 / iterations
    return {"rate": iterations * cfg.batch_size / whole, "start": start, "emulation": emulation * each,
            "acting": (played - emulation) * each, "update": (whole - played) * each}


def measure_breakout(way: str, iterations: int, num_steps: int) -> dict[str, float]:
    """Measure Breakout-v5 in one way. Runs in its own process."""
    from proximo.catalog import config_class, parts_of

    framework: Any = "torch" if way == "torch" else "jax"
    parts, kind = parts_of(BREAKOUT[way], framework), config_class(BREAKOUT[way])
    cfg = kind(framework=framework, device="cpu", threads=1, checkpoint_every=10_000, num_steps=num_steps,
               clip_vloss=False)
    measure_way: Callable[..., dict[str, float]] = measure_outside if way in ("torch", "jax") else measure_pool
    return measure_way(cfg, parts, iterations)


def run_measurement(way: str, args: argparse.Namespace, cache: str) -> dict[str, float]:
    """Measure one way in a process on one core, with a cache of compiled functions."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu",
                        "JAX_COMPILATION_CACHE_DIR": cache}
    pin = ["taskset", "-c", "0"] if sys.platform == "linux" else []
    command = [*pin, sys.executable, __file__, "--measure", way, "--task", args.task, "--seeds", str(args.seeds),
               "--iterations", str(args.iterations), "--num-steps", str(args.num_steps)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{way} failed:\n{done.stderr[-3000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def describe(way: str, rounds: list[dict[str, float]], base: float, base_name: str, task: str) -> str:
    """Return one line of the result."""
    median = {name: statistics.median(x[name] for x in rounds) for name in rounds[0]}
    target = f" (target {TARGETS[way]:.0f})" if task == "cartpole" and way in TARGETS else ""
    again = f", {rounds[1]['start']:.1f} s with the cache" if len(rounds) > 1 else ""
    late = f" (target: below {COMPILE_TARGET:.0f})" if rounds[0]["start"] > COMPILE_TARGET else ""
    parts = "".join(f"; {name} {median[name]:.0f} ms" for name in ("emulation", "acting", "update") if name in median)
    return (f"{way:18}{median['rate']:10.0f} steps/s {median['rate'] / base:6.2f} x {base_name}{target}{parts}; first "
            f"two iterations after {rounds[0]['start']:.1f} s{late}{again}")


def main() -> None:
    """Read the command line, measure every way in turn, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=("cartpole", "breakout"), default="cartpole")
    parser.add_argument("--ways", nargs="+", help="only these of " + ", ".join([*CARTPOLE, *BREAKOUT]))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=10, help="number of agents trained at once in the way `seeds`")
    parser.add_argument("--iterations", type=int, default=3, help="iterations of Breakout, after two that compile")
    parser.add_argument("--num-steps", type=int, default=128, help="T of Breakout")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure and args.task == "breakout":
        print(json.dumps(measure_breakout(args.measure, args.iterations, args.num_steps)))
    elif args.measure == "sb3":
        print(json.dumps(measure_sb3(CARTPOLE["sb3"])))
    elif args.measure:
        print(json.dumps(measure_cartpole(args.measure, args.seeds)))
    else:
        compare(args)


def compare(args: argparse.Namespace) -> None:
    """Measure every way in every round and print what was found."""
    ways = args.ways or list(CARTPOLE if args.task == "cartpole" else BREAKOUT)
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as cache:
        for number in range(args.rounds):
            for way in ways:
                found[way].append(run_measurement(way, args, cache))
                print(f"round {number + 1}  {way:18}{found[way][-1]['rate']:10.0f} steps/s", flush=True)
    base = "sb3" if args.task == "cartpole" else "torch"
    base = base if base in ways else ways[-1]
    rate = statistics.median(x["rate"] for x in found[base])
    for way, rounds in found.items():
        print(describe(way, rounds, rate, base, args.task))


if __name__ == "__main__":
    main()
