"""Everything that continues a run exactly, as plain dicts of numpy arrays, numbers and strings; and back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from proximo.config import Config
from proximo.envs.arrays.moments import Statistics
from proximo.envs.normalize import pack_statistics, unpack_statistics
from proximo.envs.pure import check_state, pack_tree, unpack_tree
from proximo.envs.state.gym import check_masks
from proximo.errors import UsageError
from proximo.models.weights import SAME_NETWORK
from proximo.on_jax.train_step import TrainState
from proximo.types import Carry


def snapshot(state: TrainState, steps: int, latest: dict[str, np.ndarray], statistics: Statistics | None,
             envs: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a checkpoint; `envs` is the environments' part, as Player.pack returns it."""
    return {"iteration": int(state.iteration), "steps": steps, "adam": pack_tree(state.adam),
            "statistics": pack_statistics(statistics), "latest": {name: x.copy() for name, x in latest.items()}} | envs


def restore(kept: dict[str, Any], state: TrainState, cfg: Config) -> TrainState:
    """Put everything of a snapshot but the environments' part into the state of a new run.

    The factor of the learning rate keeps its limits where the learning rate has changed, and is 1 without desired_kl.

    Raises:
        UsageError: The snapshot is of another network.
    """
    expected, found = pack_tree(state.adam), kept["adam"]
    if {name: x.shape for name, x in expected.items()} != {name: np.shape(x) for name, x in found.items()}:
        sizes = [sum(np.size(x) for name, x in arrays.items() if name.startswith(".weights"))
                 for arrays in (found, expected)]
        name = next(name for name in {**found, **expected}
                    if name not in found or name not in expected or np.shape(found[name]) != expected[name].shape)
        raise UsageError(f"The checkpoint has a network of {sizes[0]} weights, but this run's network has {sizes[1]}: "
                         f"{name} is different. {SAME_NETWORK}")
    adam = unpack_tree(found, state.adam)
    scale = 1.0 if cfg.desired_kl is None else cfg.adapted_scale(adam.scale, cfg.desired_kl)
    adam = adam._replace(scale=jnp.asarray(scale, adam.scale.dtype))
    return state._replace(adam=adam, iteration=jnp.int32(kept["iteration"]))


def fits(kept: dict[str, Any], state: TrainState) -> bool:
    """Return whether the environments of a snapshot, if it has any, are divided over as many devices as this run's.

    Raises:
        UsageError: Only the snapshot's, or only this run's, have masks of actions.
    """
    expected = {name: x.shape for name, x in pack_carry(state.carry).items()}
    if "carry" in kept:
        check_masks(".mask" in kept["carry"], ".mask" in expected)
    return "carry" not in kept or expected == {name: np.shape(x) for name, x in kept["carry"].items()}


def pack_carry(carry: Carry) -> dict[str, Any]:
    """Return a carry as a dict of arrays, without the statistics, which a snapshot has apart."""
    return pack_tree(carry._replace(statistics=None))


def unpack_carry(kept: dict[str, Any], carry: Carry) -> Carry:
    """Return what pack_carry packed, with the statistics of `carry`."""
    restored: Carry = unpack_tree(kept, carry._replace(statistics=None))
    return restored._replace(statistics=carry.statistics)


def pack_inside(state: TrainState) -> dict[str, Any]:
    """Return the environments' part of a snapshot, where the state holds them."""
    return {"carry": pack_carry(state.carry), "envs": pack_tree(state.envs)}


def unpack_inside(kept: dict[str, Any], state: TrainState, whole: bool) -> TrainState:
    """Restore statistics and what pack_inside returned; `whole` False restores only the statistics.

    Raises:
        UsageError: The snapshot is of other environments.
    """
    state = unpack_statistics_inside(kept, state, whole)
    if not whole:
        return state
    check_state(kept["envs"], state.envs)
    return state._replace(carry=unpack_carry(kept["carry"], state.carry), envs=unpack_tree(kept["envs"], state.envs))


def unpack_statistics_inside(kept: dict[str, Any], state: TrainState, whole: bool) -> TrainState:
    """Restore statistics of normalisation, on every rank; `whole` False keeps the running returns of new episodes."""
    fresh, before = state.carry.statistics, unpack_statistics(kept["statistics"])
    if fresh is None or before is None:
        return state

    def restored(x: np.ndarray, like: Any) -> Any:
        return jnp.broadcast_to(jnp.asarray(x, like.dtype), like.shape)

    running = jnp.asarray(before.running, fresh.running.dtype).reshape(fresh.running.shape) if whole else fresh.running
    statistics = Statistics(obs=jax.tree.map(restored, before.obs, fresh.obs),
                            ret=jax.tree.map(restored, before.ret, fresh.ret), running=running)
    return state._replace(carry=state.carry._replace(statistics=statistics))
