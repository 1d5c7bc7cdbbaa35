"""Sample Factory 2 in its serial mode: `samplefactory_peer.py SETTINGS`."""

import contextlib
import json
import logging
import os
import sys
import tempfile
import time
from typing import Any

import gymnasium as gym
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner


class Clock(AlgoObserver):
    """Notes the time and the steps after every update."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        """Called by the runner."""
        self.seen.append((time.perf_counter(), runner.env_steps.get(0, 0)))


def make_env(name: str, cfg: Any, env_config: Any, render_mode: str | None = None) -> gym.Env:
    """Return one environment."""
    return gym.make(name)


def main(settings: dict[str, Any]) -> None:
    """Train, and print the result."""
    start, clock = time.perf_counter(), Clock()
    register_env("CartPole-v1", make_env)
    flags = {"env": "CartPole-v1", "experiment": "peer", "device": "cpu", "serial_mode": True, "async_rl": False,
             "num_workers": 1, "num_envs_per_worker": settings["envs"], "worker_num_splits": 1,
             "rollout": settings["steps"], "recurrence": 1, "use_rnn": False,
             "batch_size": settings["envs"] * settings["steps"] // settings["minibatches"],
             "num_batches_per_epoch": settings["minibatches"], "num_epochs": settings["epochs"],
             "train_for_env_steps": settings["total"], "learning_rate": settings["learning_rate"],
             "gamma": settings["gamma"], "gae_lambda": settings["gae_lambda"], "ppo_clip_ratio": settings["clip"],
             "ppo_clip_value": settings["clip"], "exploration_loss_coeff": settings["entropy"],
             "value_loss_coeff": settings["value"], "max_grad_norm": settings["max_grad_norm"], "with_wandb": False,
             "nonlinearity": "tanh", "policy_initialization": "orthogonal", "normalize_input": False,
             "normalize_returns": False, "actor_critic_share_weights": False, "save_every_sec": 10**6}
    with tempfile.TemporaryDirectory() as folder:
        words = [f"--{name}={value}" for name, value in flags.items()]
        words += [f"--train_dir={folder}", "--encoder_mlp_layers", "64", "64"]
        _, runner = make_runner(parse_full_cfg(parse_sf_args(words)[0], words))
        runner.register_observer(clock)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            runner.init()
            runner.run()
    (began, first), (end, last) = clock.seen[1], clock.seen[-1]
    print(json.dumps({"rate": (last - first) / (end - began), "start": began - start,
                      "differs": "learning rate not annealed; serial mode; writes TensorBoard"}))


if __name__ == "__main__":  # its processes import this file again
    logging.disable(logging.INFO)
    main(json.loads(sys.argv[1]))
