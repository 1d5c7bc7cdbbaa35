"""Learning on several devices at once: a mesh of ranks, over which arrays are divided and summed."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from proximo.on_jax.distributed import AXIS, Ranks
from proximo.on_jax.learner import Adam, Learner
from proximo.on_jax.train_step import Keys, LearnFn, TrainState, make_learn, stream_keys
from proximo.types import Rollout


def all_reduce_sum(x: Any) -> Any:
    """Add an array, or a tree of them, over all ranks, inside a compiled function of the mesh."""
    return jax.tree.map(lambda part: lax.psum(part, AXIS), x)


def mesh_rank() -> Array:
    """Return this rank's number, inside a compiled function of the mesh."""
    return lax.axis_index(AXIS)


def put_on_mesh(mesh: Mesh, tree: Any, *axes: str | None) -> Any:
    """Put arrays that every process holds whole on the mesh.

    Args:
        mesh: The devices of all ranks.
        tree: The arrays.
        axes: For each array axis the name of the mesh axis that it is divided over, or None. Without any, every device
            gets a copy.
    """
    sharding = NamedSharding(mesh, PartitionSpec(*axes))

    def put(x: Any) -> Array:
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(put(jax.random.key_data(x)))
        host = np.asarray(x)
        return jax.make_array_from_callback(host.shape, sharding, host.__getitem__)

    return jax.tree.map(put, tree)


def join_rows(mesh: Mesh, tree: Any, *axes: str | None) -> Any:
    """Join arrays of this process's rows with those of the other processes, along the axis that `axes` names."""
    sharding = NamedSharding(mesh, PartitionSpec(*axes))
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(sharding, np.asarray(x)), tree)


def local_copy(ranks: Ranks, tree: Any) -> Any:
    """Return what is equal on all ranks as this process uses it alone: on its own device if there are several."""
    return tree if ranks.processes == 1 else jax.tree.map(lambda x: x.addressable_data(0), tree)


def place_for_learning(ranks: Ranks, state: TrainState) -> TrainState:
    """Put what learning reads on the mesh, if there is one, where environments are outside the compiled function."""
    if ranks.mesh is None:
        return state
    memory = state.carry.state if ranks.processes > 1 else put_on_mesh(ranks.mesh, state.carry.state, AXIS)
    return state._replace(adam=put_on_mesh(ranks.mesh, state.adam), carry=state.carry._replace(state=memory))


def compile_learn(ranks: Ranks, learner: Learner) -> LearnFn:
    """Compile what follows playing, where environments are outside the compiled function."""
    if ranks.mesh is None:
        return jax.jit(make_learn(learner))
    return learn_over_mesh(ranks.mesh, make_learn(learner, mesh_rank), stream_keys(learner.cfg.seed))


def learn_over_mesh(mesh: Mesh, learn: LearnFn, keys: Keys) -> LearnFn:
    """Compile `learn` for every device at once, where each process plays its own environments.

    The compiled function takes the rollout and the recurrent state of this process; everything else is the same in all
    processes.
    """
    shared, rows, steps = PartitionSpec(), PartitionSpec(AXIS), PartitionSpec(None, AXIS)
    key_data = jax.tree.map(lambda key: np.asarray(jax.random.key_data(key)), keys)

    def learn_of_rank(adam: Adam, rollout: Rollout, memory: tuple[Array, ...], key_data: Keys,
                      iteration: Array) -> tuple[Adam, dict[str, Array]]:
        return learn(adam, rollout, memory, Keys(*map(jax.random.wrap_key_data, key_data)), iteration)

    mapped = jax.jit(jax.shard_map(learn_of_rank, mesh=mesh, in_specs=(shared, steps, rows, shared, shared),
                                   out_specs=shared, check_vma=False))

    def learn_of_all(adam: Adam, rollout: Rollout, memory: tuple[Array, ...], _keys: Keys,
                     iteration: Any) -> tuple[Adam, dict[str, Array]]:
        # `_keys` are not on the mesh: `key_data` has the same ones
        return mapped(adam, join_rows(mesh, rollout, None, AXIS), join_rows(mesh, memory, AXIS), key_data,
                      np.int32(iteration))

    return learn_of_all


def divide_rows(mesh: Mesh, f: Callable[..., Any], axis: int) -> Callable[..., Any]:
    """Divide a function of (weights, rows...) over all devices of this process, along an axis of rows."""
    rows = PartitionSpec(*[None] * axis, AXIS)

    def divided(weights: Any, *args: Any) -> Any:
        specs = (PartitionSpec(), *[rows] * len(args))
        return jax.shard_map(f, mesh=mesh, in_specs=specs, out_specs=rows, check_vma=False)(weights, *args)

    return divided
