"""The algorithm on one screen: collect, estimate advantages, update. Who logs, saves or stops stands outside."""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from proximo.config import Config
from proximo.envs.normalize import Statistics
from proximo.errors import NumbersError, notify
from proximo.on_jax.iterate import TrainState
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.rollout import Episodes
from proximo.on_jax.setup import finished_rows, named_arrays, on_devices, rebuilt, set_up
from proximo.on_jax.snapshot import fits, no_latest, restore, snapshot, statistics_of
from proximo.protocols import VecEnv
from proximo.runs.log import mean_of
from proximo.types import Iteration


def train(cfg: Config, make_envs: Callable[[Config, list[int]], VecEnv], make_agent: Callable[[VecEnv, Config], Any],
          loss_fn: Callable = ppo_loss, state: dict | None = None) -> Generator[Iteration, None, None]:
    """Proximal policy optimization (Schulman et al. 2017, algorithm 1). Yields after every iteration; `state` is an
    earlier Iteration's snapshot(). Raises UsageError, EnvError, NumbersError.

    Environments whose state cannot be kept are rebuilt every cfg.checkpoint_every iterations, resumed or not."""
    parts = set_up(cfg, make_envs, make_agent, loss_fn)
    if state and "envs" not in state:  # several processes made this checkpoint
        parts = parts._replace(keeps_state=False)
    try:
        anew = state is not None and not fits(state, parts.state)
        if anew:
            notify("the checkpoint's environments were shared out over another number of devices: they begin anew")
        first = restore(state, parts.state, parts.envs, parts.keeps_state and not anew) if state else parts.state
        now = on_devices(parts, first)
        steps, latest = (state["steps"], state["latest"]) if state else (0, no_latest(cfg.num_envs))
        for iteration in range(int(now.iteration) + 1, cfg.num_iterations + 1):
            due = not parts.keeps_state and iteration > 1 and (iteration - 1) % cfg.checkpoint_every == 0
            if due or anew:
                parts, now = rebuilt(cfg, parts, now, make_envs, iteration)
                anew = False
            now, stats, episodes = parts.iterate(now)
            seen = jax.tree.map(np.array, Seen(stats, episodes, now.adam.ok, statistics_of(parts.envs, now)))
            yield (done := watched(cfg, parts.envs, iteration, seen, steps, latest, partial(same, now),
                                   parts.keeps_state, parts.world.rank))
            steps = done.steps
    finally:
        parts.envs.close()


class Seen(NamedTuple):
    """What of an iteration is read on the host: by np.array, since jax.device_get takes four times as long."""

    stats: dict[str, Any]
    episodes: Episodes
    ok: Any  # () bool: every gradient was finite
    statistics: Statistics | None  # of normalisation inside the compiled function


def same(state: TrainState) -> TrainState:
    """The state of an iteration that has just ended; the next one takes its memory."""
    return state


def watched(cfg: Config, envs: VecEnv, iteration: int, seen: Seen, steps: int, latest: dict[str, np.ndarray],
            state: Callable[[], TrainState], keeps_state: bool, rank: int = 0) -> Iteration:
    """One iteration as others see it; `steps` are the decisions before it, `latest` is brought up to date."""
    if not seen.ok:
        raise NumbersError(f"the loss or its gradient is not finite in iteration {iteration} (seed {cfg.seed}), after "
                           f"{steps} steps; the weights are those before it. Lower --learning-rate or look at the "
                           "rewards")
    finished, steps = finished_rows(seen.episodes, steps)
    charts = {f"losses/{name}": float(x) for name, x in seen.stats.items()}
    charts |= {f"charts/{name}": float(x) for name, x in seen.episodes.metrics.items()}
    charts["charts/learning_rate"] = cfg.learning_rate_at(iteration)
    latest["ret"][finished.row], latest["length"][finished.row] = finished.ret, finished.length  # later rows win
    if envs.arrays == "jax":
        charts["charts/avg_episodic_return"] = mean_of(latest["ret"][~np.isnan(latest["ret"])])
        charts["charts/avg_episodic_length"] = mean_of(latest["length"][~np.isnan(latest["ret"])])
    if seen.statistics is not None:
        envs.statistics = seen.statistics
    return Iteration(iteration, steps, charts, finished,
                     lambda: snapshot(state(), steps, latest, envs, keeps_state),
                     lambda: named_arrays(state().adam.weights), envs, rank, keeps_state)
