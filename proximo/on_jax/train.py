"""Proximal policy optimization as a generator. Logging, saving and stopping are done by the loop that calls it."""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import numpy as np

from proximo.config import Config
from proximo.envs.calls import call_envs
from proximo.envs.custom.pure import naming_traced_code
from proximo.envs.episodes import finished_episodes
from proximo.envs.state.gym import has_envs
from proximo.envs.state.newest import only_newest
from proximo.errors import reading_checkpoint, warn
from proximo.on_jax.advance import Results, make_advance
from proximo.on_jax.checks import not_finite
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.player import Player
from proximo.on_jax.setup import set_up
from proximo.on_jax.snapshot import fits, restore, snapshot
from proximo.on_jax.train_step import TrainState
from proximo.problems import checked
from proximo.protocols import LossFn, MakeAgent, MakeEnvs
from proximo.types import Iteration


@only_newest
def train(cfg: Config, make_envs: MakeEnvs, make_agent: MakeAgent, loss_fn: LossFn = ppo_loss,
          state: dict[str, Any] | None = None, set_up: Callable[..., Any] = set_up) -> Generator[Iteration, None, None]:
    """Proximal policy optimization (Schulman et al. 2017, algorithm 1). Yields one Iteration after every update.

    Args:
        cfg: The hyper-parameters.
        make_envs: (cfg, seeds) -> environments, one per seed. If their state cannot be saved, they are made again every
            cfg.checkpoint_every iterations, and at a resume.
        make_agent: (spec, cfg) -> the agent, a flax.nnx.Module; see proximo.protocols.Agent.
        loss_fn: (LossInputs, cfg) -> the loss and named statistics.
        state: The snapshot() of an earlier Iteration, to continue from.
        set_up: Makes everything from these arguments; `change_learner` of it makes another update.

    Raises:
        UsageError: The configuration, the environments or the snapshot do not fit.
        EnvError: An environment failed.
        NumbersError: The loss or its gradient is not finite.
    """
    cfg = checked(cfg)
    player, now = set_up(cfg, make_envs, make_agent, loss_fn, state)
    try:
        player.keeps_state &= not state or has_envs(state, cfg)
        now, begin_again = resume(player, now, state, cfg) if state else (now, False)
        now, history, advance = player.place(now), History(cfg, state), make_advance(cfg, player)
        done, every = int(now.iteration), cfg.checkpoint_every
        while done < cfg.num_iterations:
            if begin_again or (not player.keeps_state and done > 0 and done % every == 0):
                now, begin_again = player.rebuild(now, done + 1), False
            with naming_traced_code():
                now, ended = advance(now, done)
            for results, reached in ended:
                done += 1
                yield history.add(done, results, player, reached)
    finally:
        player.envs.close()


@reading_checkpoint()
def resume(player: Player, state: TrainState, kept: dict[str, Any], cfg: Config) -> tuple[TrainState, bool]:
    """Restore a snapshot into the state of a new run. Returns too whether the environments must be made again."""
    whole = player.keeps_state and fits(kept, state)
    if player.keeps_state and not whole:
        warn("The environments of this checkpoint are divided over another number of devices. They are made again.")
    return player.unpack(kept, restore(kept, state, cfg), whole), not whole


class History:
    """What the host remembers of a run from one iteration to the next.

    Attributes:
        steps: Environment steps so far (valid rows), over all ranks.
        latest: Return and length of the latest episode of every environment, NaN where none has finished.
    """

    def __init__(self, cfg: Config, kept: dict[str, Any] | None) -> None:
        self._cfg, self.steps = cfg, kept["steps"] if kept else 0
        self.latest = {name: np.array(x) for name, x in kept["latest"].items()} if kept else {}
        if len(self.latest.get("ret", ())) != cfg.num_envs:  # a new run, or another number of environments
            self.latest = {name: np.full(cfg.num_envs, np.nan) for name in ("ret", "length")}

    def add(self, iteration: int, results: Results, player: Player, state: Callable[[], TrainState]) -> Iteration:
        """Add the results of an iteration; `state` returns the state after it.

        Raises:
            NumbersError: A gradient was not finite. EnvError: because of an observation.
        """
        if not results.ok:
            raise not_finite(state().carry, f"iteration {iteration} (seed {self._cfg.seed})", self.steps)
        metrics, latest = results.metrics, self.latest
        finished, self.steps = finished_episodes(metrics.episode, metrics.valid, self.steps)
        latest["ret"][finished.row], latest["length"][finished.row] = finished.ret, finished.length  # later rows win
        stats = {f"losses/{name}": float(x) for name, x in metrics.losses.items()}
        stats |= {f"charts/{name}": float(x) for name, x in metrics.charts.items()}
        stats["charts/learning_rate"] = float(self._cfg.learning_rate_at(iteration)) * float(results.scale)
        if player.charts_latest:
            stats |= mean_latest(latest)
        steps, statistics = self.steps, results.statistics
        return Iteration(iteration=iteration, steps=steps, stats=stats, finished=finished,
                         snapshot=lambda: snapshot(now := state(), steps, latest, statistics,
                                                   player.pack(now) if player.keeps_state else {}),
                         weights=lambda: {name: np.array(x) for name, x in state().adam.weights.items()},
                         call_envs=partial(call_envs, player.envs), spec=player.normalizer.spec,
                         players=player.envs.players, statistics=statistics, keeps_state=player.keeps_state)


def mean_latest(latest: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the means over the environments in which an episode has finished; NaN where there is none."""
    count = np.count_nonzero(known := ~np.isnan(latest["ret"]))
    return {f"charts/avg_episodic_{name}": float(latest[field][known].sum() / count) if count else float("nan")
            for name, field in (("return", "ret"), ("length", "length"))}
