"""The program around the training loop of an ejected file.

TRAIN, LOSS, ASSEMBLE, MAKE_ENVS, MAKE_BOX and FIND_ID are names by then, ACTIONS and OBSERVATIONS the spaces that the
file is made for, STICKY whether its ids of games mean sticky actions.
"""

import argparse
import math
import time
from collections import deque
from dataclasses import fields
from typing import Any

import gymnasium as gym
import numpy as np

from proximo.config import Config
from proximo.protocols import Spec

ACTIONS = OBSERVATIONS = ""
STICKY = False


def make_agent(spec: Spec, cfg: Any) -> Any:
    return ASSEMBLE(spec, cfg, MAKE_BOX)  # type: ignore[name-defined]  # noqa: F821


def kind_of(space: Any) -> str:
    """Name what this program depends on: the class of a space, its axes, and whether its numbers begin with 0."""
    kind = f"{len(space.shape)}-dimensional {type(space).__name__}" if space.shape else type(space).__name__
    return f"{kind} that begins with {space.start}" if np.any(getattr(space, "start", 0)) else kind


def refuse_other_spaces(env_id: str) -> None:
    """End the program if an environment has actions or observations that this file is not made for."""
    env = gym.make(FIND_ID(env_id), disable_env_checker=True)  # type: ignore[name-defined]  # noqa: F821
    actions, observations = kind_of(env.action_space), kind_of(env.observation_space)
    env.close()
    if (actions, observations) != (ACTIONS, OBSERVATIONS):
        raise SystemExit(f"env_id={env_id} has {actions} actions and {observations} observations. This file is "
                         f"for {ACTIONS} actions and {OBSERVATIONS} observations. Eject one with --env-id {env_id}.")


def refuse_other_games(env_id: str) -> None:
    """End the program if an id means sticky actions, and this file has none, or the other way round."""
    sticky = env_id.endswith("-v0") or (env_id.startswith("ALE/") and env_id.endswith("-v5"))
    if sticky != STICKY:
        raise SystemExit(f"env_id={env_id} means {'' if sticky else 'no '}sticky actions, unlike the id that this file "
                         f"is made for. Eject one with --env-id {env_id}.")


def main() -> None:
    """Read the flags, train, show the progress, and write progress-SEED.csv and weights-SEED.npz."""
    parser = argparse.ArgumentParser(allow_abbrev=False, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name, default in ((field.name, field.default) for field in fields(Config)):
        if not isinstance(default, tuple):
            parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default, help="value")
    cfg = Config(**vars(parser.parse_args()))
    batch, parts = cfg.num_envs * cfg.num_steps, cfg.num_minibatches
    if not (cfg.num_envs > 0 < parts and 0 < batch <= cfg.total_timesteps and batch % parts == 0):
        parser.error("num-envs * num-steps must be above 0, divisible by num-minibatches, at most total-timesteps.")
    refuse_other_spaces(cfg.env_id)
    start, returns = time.perf_counter(), deque[float](maxlen=100)
    with open(f"progress-{cfg.seed}.csv", "w", newline="") as file:
        for it in TRAIN(cfg, MAKE_ENVS, make_agent, LOSS, None):  # type: ignore[name-defined]  # noqa: F821
            returns.extend(it.finished.ret.tolist())
            mean = sum(returns) / len(returns) if returns else math.nan
            speed = int(it.steps / (time.perf_counter() - start))
            row = {"global_step": it.steps, "SPS": speed, "episodic_return": mean, **it.stats}
            if it.iteration == 1:
                print(*row, sep=",", file=file)
            print(*row.values(), sep=",", file=file)
            print(f"step {it.steps}  return {mean:.2f}  SPS {speed}", flush=True)
    np.savez(f"weights-{cfg.seed}.npz", **it.weights())  # type: ignore[arg-type]
