"""Step 10, examples/single_file_ppo.py: the whole of PPO in one file, with its defaults and with those of step 9.

Run it with `python examples/walkthrough/10_single_file.py`.
"""

import importlib.util
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

from curves import Episodes, run

spec = importlib.util.spec_from_file_location("single_file_ppo", Path(__file__).parents[1] / "single_file_ppo.py")
ppo = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ppo)


def train_single_file(seed: int, total_steps: int, **settings: Any) -> Episodes:
    """Train with the loop of single_file_ppo.py, and collect the episodes after each of its iterations."""
    cfg = ppo.Config(seed=seed, total_timesteps=total_steps, **settings)
    envs, episodes = ppo.Environments(cfg), []
    envs.last_returns = deque()  # of any length, because all episodes are wanted
    agent = ppo.Agent(envs.obs.shape[1], envs.num_actions, cfg)
    for numbers in ppo.train(agent, envs, cfg):
        episodes += [(numbers["global_step"], ret) for ret in envs.last_returns]
        envs.last_returns.clear()
    return episodes


if __name__ == "__main__":
    run("10_single_file", {"its defaults": train_single_file,
                           "settings of step 9": partial(train_single_file, learning_rate=3e-3, num_steps=64)},
        before="09_details")
