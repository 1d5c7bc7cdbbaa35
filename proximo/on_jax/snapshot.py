"""Everything that continues a run exactly, as plain dicts of numpy arrays, numbers and strings; and back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from proximo.envs.normalize import Statistics
from proximo.envs.pure import pack_tree, unpack_tree
from proximo.errors import UsageError
from proximo.on_jax.train_step import TrainState


def snapshot(state: TrainState, steps: int, latest: dict[str, np.ndarray], envs: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a checkpoint; `envs` is the environments' part, as Player.pack returns it."""
    return {"iteration": int(state.iteration), "steps": steps, "adam": pack_tree(state.adam),
            "latest": {name: x.copy() for name, x in latest.items()}} | envs


def restore(kept: dict[str, Any], state: TrainState) -> TrainState:
    """Put everything of a snapshot but the environments' part into the state of a new run.

    Raises:
        UsageError: The snapshot is of another network.
    """
    expected, found = pack_tree(state.adam), kept["adam"]
    if {name: x.shape for name, x in expected.items()} != {name: np.shape(x) for name, x in found.items()}:
        sizes = [sum(np.size(x) for name, x in arrays.items() if name.startswith(".weights"))
                 for arrays in (found, expected)]
        raise UsageError(f"The checkpoint has another network: {sizes[0]} weights. This run's network has {sizes[1]}.")
    return state._replace(adam=unpack_tree(found, state.adam), iteration=jnp.int32(kept["iteration"]))


def fits(kept: dict[str, Any], state: TrainState) -> bool:
    """Return whether the environments of a snapshot, if it has any, are divided over as many devices as this run's."""
    expected = {name: x.shape for name, x in pack_tree(state.carry).items()}
    return "carry" not in kept or expected == {name: np.shape(x) for name, x in kept["carry"].items()}


def pack_inside(state: TrainState, statistics: Statistics | None, keeps_state: bool) -> dict[str, Any]:
    """Return the environments' part of a snapshot, where the state holds them; `statistics` are those of one rank."""
    kept = {} if statistics is None else {"statistics": pack_tree(statistics)}
    return kept | ({"carry": pack_tree(state.carry), "envs": pack_tree(state.envs)} if keeps_state else {})


def unpack_inside(kept: dict[str, Any], state: TrainState, whole: bool) -> TrainState:
    """Restore what pack_inside returned; `whole` False restores only statistics of normalisation."""
    state = unpack_statistics_inside(kept, state, whole)
    if not whole:
        return state
    return state._replace(carry=unpack_tree(kept["carry"], state.carry), envs=unpack_tree(kept["envs"], state.envs))


def unpack_statistics_inside(kept: dict[str, Any], state: TrainState, whole: bool) -> TrainState:
    """Restore statistics of normalisation, on every rank; `whole` False keeps the running returns of new episodes."""
    if "statistics" not in kept:
        return state
    fresh, before = state.envs.statistics, unpack_tree(kept["statistics"], state.envs.statistics)
    before = before if whole else before._replace(running=fresh.running)
    statistics = jax.tree.map(lambda x, like: jnp.broadcast_to(x, like.shape), before, fresh)
    return state._replace(envs=state.envs._replace(statistics=statistics))
