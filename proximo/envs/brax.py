"""Brax: thousands of environments that JAX simulates as one batch, in place of Isaac Gym, which is discontinued."""

import importlib.util
import os
import warnings
from collections.abc import Sequence

from proximo.envs.render import use_egl_when_headless
from proximo.errors import UsageError, nearest, notify
from proximo.protocols import VecEnv
from proximo.variants import BatchedSim

BACKENDS = {  # for each task, the faster one of Brax's pipelines that simulates it well
    "ant": "spring", "halfcheetah": "spring", "hopper": "spring", "humanoid": "spring", "humanoidstandup": "spring",
    "walker2d": "spring", "inverted_pendulum": "generalized", "inverted_double_pendulum": "generalized",
    "pusher": "generalized", "reacher": "generalized", "swimmer": "generalized", "fast": "generalized",
}
ISAAC = {"Ant": "ant", "Humanoid": "humanoid", "HumanoidAMP": "humanoid", "Cartpole": "inverted_pendulum",
         "Anymal": "ant", "AnymalTerrain": "ant"}
ISAAC_ONLY = ("AllegroHand", "BallBalance", "FrankaCabinet", "FrankaCubeStack", "Ingenuity", "Quadcopter",
              "ShadowHand", "Trifinger")


def make_brax(cfg: BatchedSim, seeds: Sequence[int]) -> VecEnv:
    """Make environments of a task of Brax. Steps hold JAX arrays on the device that JAX found.

    Args:
        cfg: Its `env_id` is a task of Brax, or a task of Isaac Gym, which is replaced by the nearest one of Brax.
        seeds: One seed per environment; the first one seeds the batch.

    Raises:
        UsageError: The task is unknown, or Brax is not installed.
    """
    task = brax_task(cfg.env_id)
    if importlib.util.find_spec("brax") is None:
        raise UsageError(f'{cfg.env_id} needs brax: pip install "proximo[brax]"')
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave torch its share of a GPU
    use_egl_when_headless()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from brax import envs

        env = envs.get_environment(task, backend=BACKENDS[task])
    from proximo.envs.brax_pure import BraxEnvs, BraxPure

    return BraxEnvs(BraxPure(env, len(seeds), cfg.num_steps, cfg.reward_scaler), cfg.env_id, seeds[0])


def brax_task(env_id: str) -> str:
    """Return Brax's name of a task, with a message if another task takes its place.

    Raises:
        UsageError: Brax has no such task.
    """
    if env_id in BACKENDS:
        return env_id
    lower = {name.lower(): task for name, task in [*ISAAC.items(), *zip(BACKENDS, BACKENDS)]}
    task = lower.get(env_id.lower())
    if task is None:
        cause = "has no counterpart in Brax." if env_id in ISAAC_ONLY else \
            f"is unknown to Brax.{nearest(env_id, lower)}"
        raise UsageError(f"env_id={env_id} {cause} Use {', '.join(sorted(BACKENDS))}.")
    notify(f"{env_id} runs as Brax's {task} ({BACKENDS[task]} physics)")
    return task
