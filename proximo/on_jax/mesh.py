"""Functions on every device at once: a mesh axis of ranks, over which numbers are added up."""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding, PartitionSpec

from proximo.envs.moments import Moments
from proximo.envs.normalize import Statistics, merge_statistics
from proximo.on_jax.distributed import AXIS, World
from proximo.on_jax.iterate import Keys, TrainState
from proximo.on_jax.optimizer import Adam
from proximo.on_jax.rollout import Episodes, Rollout


def average(x: Any) -> Any:
    """Adds an array (or a tree of them) over all ranks; parts are divided by the rows of all ranks beforehand."""
    return jax.tree.map(lambda part: lax.psum(part, AXIS), x)


def rank() -> Array:
    """This rank's number inside the compiled function."""
    return lax.axis_index(AXIS)


def placed(world: World, tree: Any, *axes: str | None) -> Any:
    """Arrays that every process knows whole, put on the mesh, if there is one: `axes` names the axis that is shared
    out, if any."""
    if world.mesh is None:
        return tree
    sharding = NamedSharding(_mesh(world), PartitionSpec(*axes))

    def put(x: Any) -> Array:
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(put(jax.random.key_data(x)))
        host = np.asarray(x)
        return jax.make_array_from_callback(host.shape, sharding, host.__getitem__)
    return jax.tree.map(put, tree)


def side_by_side(world: World, tree: Any, *axes: str | None) -> Any:
    """Arrays of this process's own rows, joined with those of the others along the axis that `axes` names."""
    sharding = NamedSharding(_mesh(world), PartitionSpec(*axes))
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(sharding, np.asarray(x)), tree)


def here(world: World, tree: Any) -> Any:
    """What is the same everywhere, as this process plays with it: on its own device where there are several."""
    return tree if world.size == 1 else jax.tree.map(lambda x: x.addressable_data(0), tree)


def over_mesh(world: World, iterate: Callable) -> Callable:
    """`iterate` on every device at once. Carry and environments have a leading axis of ranks; all else is shared."""
    mesh, shared, own = _mesh(world), PartitionSpec(), PartitionSpec(AXIS)
    spec: Any = TrainState(shared, own, own, shared, shared)  # type: ignore[arg-type]

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
        every = Episodes(finished, ret, length, episodes.valid.sum(0), metrics)
        return state, stats, lax.with_sharding_constraint(every, NamedSharding(mesh, shared))
    return jax.jit(of_all, donate_argnums=0)


def learn_over_mesh(world: World, learn: Callable, keys: Keys) -> Callable:
    """`learn` on every device at once, from this process's own rollout and memory (numpy): the same for all is the
    rest. Its keys are `keys`, whatever it is handed."""
    shared, rows, steps = PartitionSpec(), PartitionSpec(AXIS), PartitionSpec(None, AXIS)
    numbers = jax.tree.map(lambda key: np.asarray(jax.random.key_data(key)), keys)

    def of_rank(adam: Adam, rollout: Rollout, memory: tuple[Array, ...], numbers: Keys, iteration: Array) -> Any:
        return learn(adam, rollout, memory, Keys(*map(jax.random.wrap_key_data, numbers)), iteration)

    mapped = jax.jit(jax.shard_map(of_rank, mesh=_mesh(world), in_specs=(shared, steps, rows, shared, shared),
                                   out_specs=shared, check_vma=False))

    def learned(adam: Adam, rollout: Rollout, memory: tuple[Array, ...], keys: Keys, iteration: Any) -> Any:
        return mapped(adam, side_by_side(world, rollout, None, AXIS), side_by_side(world, memory, AXIS), numbers,
                      np.int32(iteration))
    return learned


def rows_over_mesh(world: World) -> Callable[[Callable, int], Callable]:
    """How a function of (weights, rows...) runs on all devices of this process, `axis` being that of the rows."""
    def over(f: Callable, axis: int) -> Callable:
        rows = PartitionSpec(*[None] * axis, AXIS)

        def spread(weights: Any, *args: Any) -> Any:
            specs = (PartitionSpec(), *[rows] * len(args))
            return jax.shard_map(f, mesh=_mesh(world), in_specs=specs, out_specs=rows, check_vma=False)(weights, *args)
        return spread
    return over


def _mesh(world: World) -> jax.sharding.Mesh:
    assert world.mesh is not None
    return world.mesh


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[0], tree)


def _lifted(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[None], tree)


def with_common_statistics(env_state: Any, base: Statistics) -> Any:
    """After a reset of every rank, (ranks, ...): what their first observations say together since `base`, on all of
    them alike."""
    base, ranks = jax.device_get((base, env_state.statistics))
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
