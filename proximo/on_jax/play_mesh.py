"""Environments that are pure functions of JAX, on several devices: each simulates and learns from a part of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from proximo.envs.arrays.moments import MOST_MERGED, Increments, Moments, Statistics, add_increments, increments_since
from proximo.envs.normalize import Normalizer
from proximo.on_jax.distributed import AXIS, Ranks
from proximo.on_jax.learner import Learner
from proximo.on_jax.mesh import all_reduce_sum, local_copy, mesh_rank, put_on_mesh
from proximo.on_jax.play_inside import make_reset
from proximo.on_jax.snapshot import pack_inside, unpack_inside
from proximo.on_jax.train_step import Metrics, StepFn, TrainState, make_learn, make_play, make_step, stream_key
from proximo.protocols import Episode
from proximo.types import Carry


class MeshPlayer:
    """Player of environments that are pure functions of JAX, on several devices.

    `carry` and `envs` of its states have a leading axis of ranks.
    """

    charts_latest = True

    def __init__(self, ranks: Ranks, mesh: Mesh, envs: Any, normalizer: Normalizer, learner: Learner) -> None:
        self.envs, self.normalizer, self.agent = envs, normalizer, learner.agent
        self.keeps_state = ranks.processes == 1
        self._seed, self._ranks, self._mesh = learner.cfg.seed, ranks, mesh
        play = make_play(learner, envs.pure, normalizer, mesh_rank)
        self.iterate = step_over_mesh(mesh, make_step(play, make_learn(learner, mesh_rank)))
        self._resets = jax.jit(jax.vmap(make_reset(envs.pure, normalizer), in_axes=(0, None)))

    def begin(self, iteration: int, statistics: Statistics | None) -> tuple[Any, Carry]:
        keys = jax.random.split(stream_key(self._seed, "env", iteration), self._mesh.size)
        env_state, after, step = self._resets(keys, statistics)
        memory = tuple(jnp.stack([x] * self._mesh.size) for x in self.agent.initial_state(self.envs.num_envs))
        return env_state, Carry(obs=step.obs, mask=step.mask, first=step.first, state=memory,
                                statistics=merge_reset_statistics(statistics, after))

    def place(self, state: TrainState) -> TrainState:
        mesh = self._mesh
        return TrainState(adam=put_on_mesh(mesh, state.adam), carry=put_on_mesh(mesh, state.carry, AXIS),
                          envs=put_on_mesh(mesh, state.envs, AXIS), keys=put_on_mesh(mesh, state.keys),
                          iteration=put_on_mesh(mesh, state.iteration))

    def rebuild(self, state: TrainState, iteration: int) -> TrainState:
        env_state, carry = self.begin(iteration, self.statistics(state))
        return state._replace(carry=put_on_mesh(self._mesh, carry, AXIS), envs=put_on_mesh(self._mesh, env_state, AXIS))

    def statistics(self, state: TrainState) -> Statistics | None:
        every = state.carry.statistics
        if every is None:
            return None
        one: Statistics = jax.tree.map(lambda x: x.addressable_data(0)[0], every)
        return one._replace(running=np.ravel(local_copy(self._ranks, every.running)))

    def pack(self, state: TrainState) -> dict[str, Any]:
        return pack_inside(state)

    def unpack(self, kept: dict[str, Any], state: TrainState, whole: bool) -> TrainState:
        return unpack_inside(kept, state, whole)


def step_over_mesh(mesh: Mesh, step: StepFn) -> StepFn:
    """Compile a pure step for every device at once. `carry` and `envs` have a leading axis of ranks; everything else of
    the state, and all metrics, are the same on all devices.
    """
    shared, own = PartitionSpec(), PartitionSpec(AXIS)
    spec: Any = TrainState(adam=shared, carry=own, envs=own, keys=shared, iteration=shared)  # type: ignore[arg-type]
    metrics_spec: Any = Metrics(losses=shared, charts=own, episode=own, valid=own)  # type: ignore[arg-type]

    def step_of_rank(state: TrainState) -> tuple[TrainState, Metrics]:
        before = state._replace(carry=drop_axis(state.carry), envs=drop_axis(state.envs))
        after, metrics = step(before)
        merged = merge_statistics_of_ranks(before.carry.statistics, after.carry.statistics)
        after = after._replace(carry=after.carry._replace(statistics=merged))
        metrics = Metrics(metrics.losses, *add_axis(metrics[1:]))
        return after._replace(carry=add_axis(after.carry), envs=add_axis(after.envs)), metrics

    mapped = jax.shard_map(step_of_rank, mesh=mesh, in_specs=(spec,), out_specs=(spec, metrics_spec), check_vma=False)

    def step_of_all(state: TrainState) -> tuple[TrainState, Metrics]:
        state, metrics = mapped(state)
        episode = Episode(*(jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1) for x in metrics.episode))  # (T, N)
        charts = {name: jnp.nanmean(x) for name, x in metrics.charts.items()}
        merged = lax.with_sharding_constraint((charts, episode, metrics.valid.sum(0)), NamedSharding(mesh, shared))
        return state, Metrics(metrics.losses, *merged)

    return jax.jit(step_of_all, donate_argnums=0)


def drop_axis(tree: Any) -> Any:
    """Remove a leading axis of size 1."""
    return jax.tree.map(lambda x: x[0], tree)


def add_axis(tree: Any) -> Any:
    """Add a leading axis of size 1."""
    return jax.tree.map(lambda x: x[None], tree)


def merge_reset_statistics(base: Statistics | None, ranks: Statistics | None) -> Statistics | None:
    """Add up what the resets of all ranks, (ranks, ...), have added to `base`. All ranks get the same result."""
    if base is None or ranks is None:
        return None
    base, local = jax.device_get((base, ranks))
    size = len(ranks.running)

    def merge(base: Moments, local: Moments) -> Moments:
        added = [increments_since(base, Moments(*(x[rank] for x in local))) for rank in range(size)]
        merged = add_increments(base, Increments(*(np.sum(x, 0, np.float64) for x in zip(*added))))
        return Moments(*(jnp.stack([jnp.asarray(x, jnp.float32)] * size) for x in merged))

    return Statistics(obs=merge(base.obs, local.obs), ret=merge(base.ret, local.ret), running=ranks.running)


def merge_statistics_of_ranks(base: Statistics | None, local: Statistics | None) -> Statistics | None:
    """Add up what all ranks saw since `base`, which is equal on all of them; see merge_statistics."""
    if base is None or local is None:
        return None

    def merge(base: Moments, local: Moments) -> Moments:
        return add_increments(base, all_reduce_sum(increments_since(base, local)), MOST_MERGED, jnp)

    return Statistics(obs=merge(base.obs, local.obs), ret=merge(base.ret, local.ret), running=local.running)
