"""One of several processes that train as one, for test_distributed.py.

`torchrun ... -m tests.support.replicas FOLDER CASE...` trains every case and writes what this rank ends with: weights,
statistics, seeds of environments, number of minibatches.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

from proximo.cli.main import main
from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.on_torch.assemble import assemble
from proximo.on_torch.train import train
from proximo.variants import Continuous

CASES = {
    "cartpole": Config(num_envs=4, num_steps=32, total_timesteps=6 * 128, checkpoint_every=2, hidden_sizes=(16, 16),
                       threads=1),
    "target_kl": Continuous(env_id="Pendulum-v1", num_envs=4, num_steps=32, num_minibatches=4, total_timesteps=6 * 128,
                            checkpoint_every=2, target_kl=0.003, desired_kl=0.001, learning_rate=1e-3, hidden_sizes=(16, 16), threads=1),
    "lstm": Config(recurrent="lstm", num_envs=8, num_steps=16, total_timesteps=3 * 128, num_minibatches=2,
                   hidden_sizes=(16, 16), memory_size=8, threads=1),
    "acting": Config(env_id="tests.support.probes:Acting-v0", num_envs=8, num_steps=32, learning_rate=1e-2,
                     anneal_lr=False, total_timesteps=15 * 256, hidden_sizes=(16, 16), threads=1),
}


def train_case(name: str, folder: Path) -> None:
    """Write the weights to NAMErank.npz and everything else to NAMErank.json."""
    rank, all_seeds, iterations = int(os.environ["RANK"]), [], []

    def make_envs(cfg: Config, seeds: list[int]):
        all_seeds.append(seeds)
        return make_gym(cfg, seeds)

    for last in train(CASES[name], make_envs, assemble):
        iterations.append({"minibatches": int(last.snapshot()["adam"]["step"]), "steps": last.steps,
                           "returns": last.finished.ret.tolist(), "rows": last.finished.row.tolist()} | last.stats)
    np.savez(folder / f"{name}{rank}.npz", **last.weights())
    statistics = last.statistics
    (folder / f"{name}{rank}.json").write_text(json.dumps({
        "seeds": all_seeds, "iterations": iterations, "obs_mean": statistics and statistics.obs.mean.tolist(),
        "ret_var": statistics and float(statistics.ret.var)}))


def train_command(folder: Path) -> None:
    """Run the whole command and write its exit code to codeRANK."""
    words = ["--num-steps", "16", "--total-timesteps", "192", "--checkpoint-every", "2", "--hidden-sizes", "8", "8",
             "--logger", "none", "--threads", "1", "--run-dir", str(folder / "run")]
    code = main(["train", "ppo", *words])
    (folder / f"code{os.environ['RANK']}").write_text(str(code))


if __name__ == "__main__":
    for case in sys.argv[2:]:
        if case == "command":
            train_command(Path(sys.argv[1]))
        else:
            train_case(case, Path(sys.argv[1]))
