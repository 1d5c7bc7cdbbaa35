"""Several devices of one process that learn as one (detail A2): a mesh axis over which numbers are added up."""

from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec

from proximo.config import Config
from proximo.envs.normalize import Moments, Statistics, merge_statistics, start_statistics
from proximo.errors import UsageError
from proximo.on_jax.iterate import TrainState
from proximo.on_jax.rollout import Episodes

AXIS = "ranks"


def number_of_ranks(cfg: Config) -> int:
    """One rank for each of cfg.device_ids; UsageError for sizes that do not fit."""
    ranks, present = len(cfg.device_ids) or 1, jax.local_device_count()
    if ranks == 1:
        return 1
    if max(cfg.device_ids) >= present:
        raise UsageError(f"--device-ids names device {max(cfg.device_ids)}; JAX sees {present}, numbered from 0")
    if cfg.num_envs % ranks:
        raise UsageError(f"num_envs={cfg.num_envs} does not divide into {ranks} devices; use a multiple")
    rows = cfg.num_envs // ranks * (1 if cfg.recurrent != "none" else cfg.num_steps)
    if rows % cfg.num_minibatches:
        raise UsageError(f"each of {ranks} devices holds {rows} rows, which do not divide into "
                         f"num_minibatches={cfg.num_minibatches}; change num_envs, num_steps or num_minibatches")
    return ranks


def of_one_rank(cfg: Config, ranks: int) -> Config:
    """The configuration inside one rank: its share of the environments, as many iterations as all."""
    if ranks == 1:
        return cfg
    share = cfg.num_envs // ranks
    return replace(cfg, num_envs=share, total_timesteps=cfg.num_iterations * share * cfg.num_steps)


def average(x: Any) -> Any:
    """Adds an array (or a tree of them) over all ranks; parts are divided by the rows of all ranks beforehand."""
    return jax.tree.map(lambda part: lax.psum(part, AXIS), x)


def rank() -> Array:
    """This rank's number inside the compiled function."""
    return lax.axis_index(AXIS)


def over_mesh(cfg: Config, iterate: Callable) -> Callable:
    """`iterate` on every device at once. Carry and environments have a leading axis of ranks; all else is shared."""
    mesh = Mesh(np.array(jax.local_devices())[list(cfg.device_ids)], (AXIS,))
    shared: Any = PartitionSpec()
    own: Any = PartitionSpec(AXIS)
    spec = TrainState(shared, own, own, shared, shared)

    def of_rank(state: TrainState) -> tuple[TrainState, dict[str, Array], Episodes]:
        before = state._replace(carry=_first(state.carry), envs=_first(state.envs))
        after, stats, episodes = iterate(before)
        if hasattr(after.envs, "statistics"):
            merged = merge_over_ranks(before.envs.statistics, after.envs.statistics)
            after = after._replace(envs=after.envs._replace(statistics=merged))
        episodes = jax.tree.map(lambda x: x[None], episodes)
        return after._replace(carry=_lifted(after.carry), envs=_lifted(after.envs)), stats, episodes

    mapped = jax.shard_map(of_rank, mesh=mesh, in_specs=(spec,), out_specs=(spec, shared, own), check_vma=False)

    def of_all(state: TrainState) -> tuple[TrainState, dict[str, Array], Episodes]:
        state, stats, episodes = mapped(state)
        finished, ret, length = (jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1) for x in episodes[:3])  # (T, N)
        metrics = {name: jnp.nanmean(x) for name, x in episodes.metrics.items()}
        return state, stats, Episodes(finished, ret, length, episodes.valid.sum(0), metrics)
    return jax.jit(of_all, donate_argnums=0)


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[0], tree)


def _lifted(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[None], tree)


def with_common_statistics(env_state: Any, num_envs: int) -> Any:
    """After a reset of every rank, (ranks, ...): what their first observations say together, on all of them alike."""
    base = start_statistics(num_envs, env_state.statistics.obs.mean.shape[1:])
    ranks = jax.device_get(env_state.statistics)
    every = [jax.tree.map(itemgetter(r), ranks) for r in range(len(ranks.running))]
    sums: list[np.ndarray] = []

    def noted(x: np.ndarray) -> np.ndarray:
        sums.append(x)
        return x

    for local in every:
        merge_statistics(base, local, noted)
    merged = merge_statistics(base, every[0], lambda _: np.sum(sums, 0))._replace(running=ranks.running[0])
    wide = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x, jnp.float32)] * len(every)), merged)
    return env_state._replace(statistics=wide._replace(running=env_state.statistics.running))


def merge_over_ranks(base: Statistics, local: Statistics) -> Statistics:
    """One statistic for all ranks: what each saw since `base` (equal on all ranks), added up; see merge_statistics."""
    def merged(base: Moments, local: Moments) -> Moments:
        number = local.count - base.count
        first = (local.mean - base.mean) * local.count
        second = local.var * local.count - base.var * base.count + (local.mean - base.mean) * first
        number, first, second = average((number, first, second))
        total = base.count + number
        shift = first / total
        spread = jnp.maximum(base.var * base.count + second - shift * first, 0)
        return Moments(base.mean + shift, spread / total, total)

    return Statistics(merged(base.obs, local.obs), merged(base.ret, local.ret), local.running)
