"""One of several processes that train as one under JAX, for on_jax/test_distributed.py.

`torchrun ... -m tests.support.jax_replicas FOLDER CASE...` trains every case, trains it again from its first
checkpoint, and writes the results of this rank.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from proximo.catalog import parts_of
from proximo.cli.main import main
from proximo.config import Config
from proximo.on_jax.train import train
from proximo.variants import BatchedSim

INSIDE = Config(framework="jax", engine="jax", num_envs=4, num_steps=32, total_timesteps=640, num_minibatches=2,
                update_epochs=2, hidden_sizes=(16, 16), norm_obs=True, norm_reward=True, checkpoint_every=2, threads=1)
CASES = {
    "inside": INSIDE,
    "outside": replace(INSIDE, engine="gym", norm_value=True, target_kl=1e-3, learning_rate=1e-2),
    "pool": replace(INSIDE, engine="envpool", desired_kl=0.01),
    "memory": replace(INSIDE, engine="gym", recurrent="gru", memory_size=8, total_timesteps=384),
    "brax": BatchedSim(framework="jax", env_id="fast", num_envs=4, num_steps=32, total_timesteps=640, hidden_sizes=(16, 16),
                       norm_obs=True, norm_reward=True, checkpoint_every=2, threads=1),
}


def train_case(name: str, folder: Path) -> None:
    """Train a case twice; write NAMErank.npz with the weights and NAMErank.json with everything else."""
    cfg, seeds, reported, kept = CASES[name], [], [], None
    parts = parts_of("ppo_continuous_action_isaacgym" if name == "brax" else "ppo", "jax")

    def noting_envs(cfg: Config, given: list[int]):
        seeds.append(given)
        return parts.make_envs(cfg, given)

    for last in train(cfg, noting_envs, parts.make_agent):
        reported.append([last.steps, last.finished.ret.tolist(), last.finished.row.tolist(), sorted(last.stats.items())])
        if last.iteration == cfg.checkpoint_every:
            kept = last.snapshot()
    weights, statistics = last.weights(), last.statistics.obs
    *_, again = train(cfg, parts.make_envs, parts.make_agent, state=kept)
    np.savez(folder / f"{name}{os.environ['RANK']}.npz", **weights)
    (folder / f"{name}{os.environ['RANK']}.json").write_text(json.dumps({
        "seeds": seeds, "iterations": reported, "mean": np.asarray(statistics.mean).tolist(),
        "count": float(statistics.count), "resumed": all(np.array_equal(weights[k], x)
                                                         for k, x in again.weights().items())}))


def train_command(folder: Path) -> None:
    """Run the whole command and write the exit code of this rank."""
    words = ["--framework", "jax", "--engine", "jax", "--num-steps", "16", "--total-timesteps", "192",
             "--checkpoint-every", "2", "--hidden-sizes", "8", "8", "--logger", "none", "--run-dir", str(folder / "run")]
    code = main(["train", "ppo", *words])
    (folder / f"code{os.environ['RANK']}").write_text(str(code))


if __name__ == "__main__":
    for case in sys.argv[2:]:
        if case == "command":
            train_command(Path(sys.argv[1]))
        elif case == "die" and os.environ["RANK"] == "1":
            os._exit(7)
        else:
            train_case("inside" if case == "die" else case, Path(sys.argv[1]))
