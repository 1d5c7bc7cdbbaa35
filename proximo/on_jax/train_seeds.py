"""Several independent agents trained at once: the compiled iteration, vmapped over seeds."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from proximo.config import Config
from proximo.errors import NumbersError, notify
from proximo.on_jax.begin import first_state
from proximo.on_jax.iterate import TrainState
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.setup import set_up
from proximo.on_jax.snapshot import no_latest, restore
from proximo.on_jax.train import Seen, watched
from proximo.protocols import VecEnv
from proximo.streams import env_seeds
from proximo.types import Iteration


def train_seeds(cfg: Config, make_envs: Callable[[Config, list[int]], VecEnv],
                make_agent: Callable[[VecEnv, Config], Any], loss_fn: Callable = ppo_loss,
                states: list[dict] | None = None) -> Iterator[list[Iteration | None]]:
    """Like train() for the seeds cfg.seed .. cfg.seed + cfg.num_seeds - 1: after every iteration one Iteration a seed,
    in their order, None for those whose numbers are not finite any more. `states` are snapshots, one a seed, of one
    iteration. Raises UsageError where the environments are not pure functions, NumbersError at the end if a seed had
    stopped, and whatever train() raises."""
    cfgs = [replace(cfg, seed=cfg.seed + s) for s in range(cfg.num_seeds)]
    parts = set_up(cfg, make_envs, make_agent, loss_fn, pure=True)
    envs = [parts.envs, *(make_envs(each, env_seeds(each.seed, each.num_envs)) for each in cfgs[1:])]
    try:
        tools = parts.tools
        lanes = [first_state(each, parts.world, own, tools.agent, tools.resets) for each, own in zip(cfgs, envs)]
        if states:
            lanes = [restore(kept, lane, own, True) for kept, lane, own in zip(states, lanes, envs, strict=True)]
        steps = [kept["steps"] for kept in states] if states else [0] * len(cfgs)
        latest = [kept["latest"] for kept in states] if states else [no_latest(cfg.num_envs) for _ in cfgs]
        now = jax.tree.map(lambda *lane: jnp.stack(lane), *lanes)
        running = list(range(len(cfgs)))
        iterate = jax.jit(jax.vmap(parts.iterate), donate_argnums=0)
        for iteration in range(int(lanes[0].iteration) + 1, cfg.num_iterations + 1):
            now, stats, episodes = iterate(now)
            kept = now.envs.statistics if parts.envs.statistics is not None else None
            seen = jax.tree.map(np.array, Seen(stats, episodes, now.adam.ok, kept))
            done: list[Iteration | None] = [None] * len(cfgs)
            for s in running:
                try:
                    done[s] = it = watched(cfgs[s], envs[s], iteration, lane_of(seen, s), steps[s], latest[s],
                                           partial(lane_of, now, s), True)
                    steps[s] = it.steps
                except NumbersError as error:
                    notify(str(error))
            running = [s for s in running if done[s] is not None]
            if not running:
                break
            yield done
        if lost := [str(each.seed) for s, each in enumerate(cfgs) if s not in running]:
            raise NumbersError(f"{len(lost)} of {len(cfgs)} seeds ended early, since their numbers were not finite: "
                               f"{', '.join(lost)}")
    finally:
        for own in envs:
            own.close()


def lane_of(tree: TrainState | Seen, seed: int) -> Any:
    """One seed's part of what all of them share."""
    return jax.tree.map(lambda x: x[seed], tree)
