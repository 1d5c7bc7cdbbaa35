"""All that continues a run exactly, as plain dicts of numpy arrays, numbers and strings; and back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from proximo.envs.normalize import Statistics, pack_statistics, unpack_statistics
from proximo.envs.pure import pack_tree, unpack_tree
from proximo.errors import UsageError
from proximo.on_jax.iterate import TrainState
from proximo.protocols import VecEnv


def snapshot(state: TrainState, steps: int, latest: dict[str, np.ndarray], envs: VecEnv, keeps_state: bool) -> dict:
    """A checkpoint's content, without the environments' part where that cannot be kept."""
    kept: dict[str, Any] = {"iteration": int(state.iteration), "steps": steps, "adam": pack_tree(state.adam),
                            "latest": {name: x.copy() for name, x in latest.items()}}
    inside = envs.arrays == "jax"
    if envs.statistics is not None:
        kept["statistics"] = pack_tree(statistics_of(envs, state)) if inside else pack_statistics(envs.statistics)
    if keeps_state:
        kept |= {"carry": pack_tree(state.carry), "envs": pack_tree(state.envs) if inside else envs.state()}
    return kept


def fits(kept: dict, state: TrainState) -> bool:
    """Whether the environments of a checkpoint, if it has any, are shared out over as many devices as this run's."""
    like = {name: x.shape for name, x in pack_tree(state.carry).items()}
    return "carry" not in kept or like == {name: np.shape(x) for name, x in kept["carry"].items()}


def restore(kept: dict, state: TrainState, envs: VecEnv, keeps_state: bool) -> TrainState:
    """The state to go on from; `state` is that of a run that begins. UsageError where it is of another network."""
    like, found = pack_tree(state.adam), kept["adam"]
    if {name: x.shape for name, x in like.items()} != {name: np.shape(x) for name, x in found.items()}:
        raise UsageError("the checkpoint holds another network than this run's: "
                         f"{sum(np.size(x) for x in found.values())} numbers, wanted "
                         f"{sum(x.size for x in like.values())}")
    inside = envs.arrays == "jax"
    state = state._replace(adam=unpack_tree(found, state.adam), iteration=jnp.int32(kept["iteration"]))
    if "statistics" in kept and inside:
        fresh, before = state.envs.statistics, unpack_tree(kept["statistics"], state.envs.statistics)
        before = before if keeps_state else before._replace(running=fresh.running)
        statistics = jax.tree.map(lambda x, like: jnp.broadcast_to(x, like.shape), before, fresh)  # one for each rank
        state = state._replace(envs=state.envs._replace(statistics=statistics))
    elif "statistics" in kept:
        statistics, fresh = unpack_statistics(kept["statistics"]), envs.statistics.running
        envs.statistics = statistics if keeps_state else statistics._replace(running=fresh)
    if not keeps_state:
        return state
    carry = unpack_tree(kept["carry"], state.carry)
    if inside:
        return state._replace(carry=carry, envs=unpack_tree(kept["envs"], state.envs))
    envs.load(kept["envs"])
    outside = [None if x is None else np.asarray(x) for x in (carry.obs, carry.mask, carry.first)]
    return state._replace(carry=carry._replace(obs=outside[0], mask=outside[1], first=outside[2]))


def statistics_of(envs: VecEnv, state: TrainState) -> Statistics | None:
    """Of normalisation where it is a part of the compiled function."""
    if envs.arrays != "jax" or envs.statistics is None:
        return None
    statistics = state.envs.statistics  # with several ranks one for each, all the same
    several = statistics.ret.mean.ndim > 0
    return jax.tree.map(lambda x: x.addressable_data(0)[0], statistics) if several else statistics


def no_latest(num_envs: int) -> dict[str, np.ndarray]:
    """Of each environment the latest finished episode: none yet."""
    return {"ret": np.full(num_envs, np.nan), "length": np.full(num_envs, np.nan)}
