"""Compare the steps per second of Proximo and Stable-Baselines3 with the same hyper-parameters on the same machine.

    python benchmarks/speed.py                           # CartPole-v1, 4 x 128, one thread each
    python benchmarks/speed.py --task halfcheetah
    python benchmarks/speed.py --task breakout --threads 2
    python benchmarks/speed.py --task breakout --threads 2 --ways eager bf16
    python benchmarks/speed.py --task processes --threads 2    # 2 processes x 4 environments against 1 x 8

Every measurement has its own process, which is pinned to as many cores as it has threads. The programs alternate, and
the medians of all rounds are compared. Proximo runs with CSV, TensorBoard and checkpoints on; its rate is read from
metrics.csv without the first tenth. The cost of compilation is reported separately.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TASKS: dict[str, Any] = {
    "cartpole": {
        "steps": 150_000, "sb3_steps": 30_000, "proximo": ["ppo", "--env-id", "CartPole-v1"],
        "ways": ["sb3", "eager", "compile", "compile envpool"],
        "sb3": {"env": "CartPole-v1", "n_envs": 4, "n_steps": 128, "batch_size": 128, "n_epochs": 4,
                "learning_rate": 2.5e-4, "clip_range": 0.2, "ent_coef": 0.01}},
    "halfcheetah": {
        "steps": 40_960, "sb3_steps": 20_480, "proximo": ["ppo_continuous_action", "--env-id", "HalfCheetah-v4"],
        "ways": ["sb3", "eager", "compile"],
        "sb3": {"env": "HalfCheetah-v4", "n_envs": 1, "n_steps": 2048, "batch_size": 64, "n_epochs": 10,
                "learning_rate": 3e-4, "clip_range": 0.2, "ent_coef": 0.0, "normalize": True}},
    "breakout": {
        "steps": 16_384, "sb3_steps": 8_192, "proximo": ["ppo_atari", "--env-id", "BreakoutNoFrameskip-v4"],
        "ways": ["sb3", "eager", "bf16", "two processes"],
        "sb3": {"env": "BreakoutNoFrameskip-v4", "n_envs": 8, "n_steps": 128, "batch_size": 256, "n_epochs": 4,
                "learning_rate": 2.5e-4, "clip_range": 0.1, "ent_coef": 0.01, "atari": True}},
    "processes": {
        "steps": 8_192, "proximo": ["ppo_atari_multigpu", "--env-id", "BreakoutNoFrameskip-v4", "--num-envs", "8"],
        "ways": ["one process", "workers", "envpool", "two processes"]},
}
WORDS = {"eager": [], "bf16": ["--precision", "bf16"], "compile": ["--compile"],
         "compile envpool": ["--compile", "--engine", "envpool"],
         "one process": ["--env-workers", "0"], "workers": ["--env-workers", "2"], "envpool": ["--engine", "envpool"],
         "two processes": ["--env-workers", "0"]}


def stable_baselines3(settings: dict[str, Any], steps: int, threads: int) -> float:
    """Return the steps per second of SB3's PPO after its first iteration."""
    import ale_py
    import gymnasium
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

    class Clock(BaseCallback):
        began, first_steps = 0.0, 0

        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            if self.num_timesteps and not self.began:
                self.began, self.first_steps = time.perf_counter(), self.num_timesteps

    torch.set_num_threads(threads)
    settings = dict(settings)
    env_id, n_envs = settings.pop("env"), settings.pop("n_envs")
    normalize, atari = settings.pop("normalize", False), settings.pop("atari", False)
    if atari:
        gymnasium.register_envs(ale_py)
    envs = (VecFrameStack(make_atari_env(env_id, n_envs, seed=1), 4) if atari
            else make_vec_env(env_id, n_envs, seed=1))
    envs = VecNormalize(envs) if normalize else envs
    model = PPO("CnnPolicy" if atari else "MlpPolicy", envs, gae_lambda=0.95, max_grad_norm=0.5, seed=1, device="cpu",
                policy_kwargs=None if atari else {"net_arch": [64, 64]}, **settings)
    clock = Clock()
    model.learn(steps, callback=clock)
    return (model.num_timesteps - clock.first_steps) / (time.perf_counter() - clock.began)


def proximo(words: list[str], steps: int, way: str, threads: int) -> float:
    """Return the steps per second of a run without its first tenth."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        start, share = [sys.executable], threads
        if way == "two processes":
            start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
            share = max(1, threads // 2)
        command = [*start, "-m", "proximo", "train", *words, "--total-timesteps", str(steps), "--run-dir",
                   str(run), "--logger", "none", "--threads", str(share), *WORDS[way]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        with open(run / "metrics.csv") as file:
            rows = [(int(row["global_step"]), float(row["seconds"])) for row in csv.DictReader(file)]
    start = rows[max(0, len(rows) // 10 - 1)] if len(rows) > 1 else (0, 0.0)
    return (rows[-1][0] - start[0]) / (rows[-1][1] - start[1])


def measure(arguments: list[str], threads: int) -> float:
    """Return one measurement, made in a new process on its own cores."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run(["taskset", "-c", ",".join(map(str, cores)), sys.executable, __file__, *arguments],
                          capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print every measurement, and a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=TASKS, default="cartpole")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ways", nargs="+", choices=["sb3", *WORDS], help="default: those of the task")
    parser.add_argument("--measure", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    task = TASKS[args.task]
    if args.measure:
        sps = (stable_baselines3(task["sb3"], task["sb3_steps"], args.threads) if args.measure == "sb3"
               else proximo(task["proximo"], task["steps"], args.measure, args.threads))
        print(json.dumps(sps))
        return
    ways, found = args.ways or task["ways"], {}
    for way in (way for way in ways if way.startswith("compile")):
        began = time.perf_counter()
        measure(["--task", args.task, "--threads", str(args.threads), "--measure", way], args.threads)
        print(f"{way}: the first run, which may compile, took {time.perf_counter() - began:.0f} s in total")
    for number in range(args.rounds):
        for way in ways:
            sps = measure(["--task", args.task, "--threads", str(args.threads), "--measure", way], args.threads)
            found.setdefault(way, []).append(sps)
            print(f"round {number + 1}  {way:16} {sps:10,.0f} SPS", flush=True)
    base = statistics.median(found[ways[0]])
    print(f"\n| {args.task}, {args.threads} thread(s) | median SPS | lowest | highest | x {ways[0]} |")
    print("|---|---|---|---|---|")
    for way, values in found.items():
        print(f"| {way} | {statistics.median(values):,.0f} | {min(values):,.0f} | {max(values):,.0f} | "
              f"{statistics.median(values) / base:.2f} |")


if __name__ == "__main__":
    main()
