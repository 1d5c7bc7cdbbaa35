"""Several independent agents trained at once: one compiled function, vmapped over seeds."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from proximo.config import Config
from proximo.errors import NumbersError, UsageError, warn
from proximo.on_jax.distributed import join
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.play_inside import InsidePlayer
from proximo.on_jax.setup import MakeAgent, MakeEnvs, first_state, make_inside_player
from proximo.on_jax.snapshot import restore
from proximo.on_jax.train import History, read_results
from proximo.types import Iteration


def train_seeds(cfg: Config, make_envs: MakeEnvs, make_agent: MakeAgent, loss_fn: Callable[..., Any] = ppo_loss,
                states: list[dict[str, Any]] | None = None) -> Iterator[list[Iteration | None]]:
    """Train like train() with the seeds cfg.seed ... cfg.seed + cfg.num_seeds - 1.

    Args:
        cfg: The hyper-parameters.
        make_envs: (cfg, seeds) -> environments that are pure functions of JAX.
        make_agent: See train().
        loss_fn: See train().
        states: One snapshot per seed, all of the same iteration, to continue from.

    Yields:
        After every update one Iteration per seed, in their order; None for a seed whose numbers are not finite.

    Raises:
        UsageError: The environments are not pure functions of JAX, or several devices were asked for.
        NumbersError: At the end, if the numbers of a seed were not finite.
    """
    if join(cfg).size > 1:
        raise UsageError(f"num_seeds={cfg.num_seeds} trains on one device. Leave out --device-ids and torchrun.")
    cfgs = [replace(cfg, seed=cfg.seed + s) for s in range(cfg.num_seeds)]
    players: list[InsidePlayer] = []
    try:
        players.extend(make_inside_player(each, make_envs, make_agent, loss_fn) for each in cfgs)
        yield from iterate_seeds(cfgs, players, states)
    finally:
        for player in players:
            player.envs.close()


def iterate_seeds(cfgs: list[Config], players: list[InsidePlayer],
                  kept: list[dict[str, Any]] | None) -> Iterator[list[Iteration | None]]:
    """Do what train_seeds does, with the player of each seed."""
    states = [first_state(player, each.seed) for each, player in zip(cfgs, players)]
    if kept is not None:
        states = [player.unpack(one, restore(one, state), True) for one, state, player
                  in zip(kept, states, players, strict=True)]
    histories = [History(each, kept[s] if kept else None) for s, each in enumerate(cfgs)]
    iterate, running = jax.jit(jax.vmap(players[0].step), donate_argnums=0), list(range(len(cfgs)))
    now = jax.tree.map(lambda *each: jnp.stack(each), *states)
    for iteration in range(int(states[0].iteration) + 1, cfgs[0].num_iterations + 1):
        now, metrics = iterate(now)
        results = read_results(now, metrics, players[0])
        done: list[Iteration | None] = [None] * len(cfgs)
        for s in list(running):
            try:
                done[s] = histories[s].add(iteration, select_seed(results, s), players[s], partial(select_seed, now, s))
            except NumbersError as error:
                warn(str(error))
                running.remove(s)
        if not running:
            break
        yield done
    if lost := [str(each.seed) for s, each in enumerate(cfgs) if s not in running]:
        raise NumbersError(f"{len(lost)} of {len(cfgs)} seeds ended early because their numbers were not finite: "
                           f"{', '.join(lost)}")


def select_seed(tree: Any, seed: int) -> Any:
    """Select one seed's part of a state or of results."""
    return jax.tree.map(lambda x: x[seed], tree)
