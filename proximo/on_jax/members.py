"""The members of a group of runs as one compiled function, which divides them over the cores of a CPU."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec

from proximo.config import Config
from proximo.envs.pure import pack_tree, plain, unpack_tree
from proximo.facts import facts
from proximo.on_jax.advance import Advance, Results, Several, most_iterations, run_several
from proximo.on_jax.device import compiler_options, devices_of_runs
from proximo.on_jax.mesh import put_on_mesh
from proximo.on_jax.networks import on_cpu
from proximo.on_jax.play_inside import InsidePlayer
from proximo.on_jax.train_step import Metrics, TrainState

MEMBERS = "members"  # the axis of the mesh
Values = dict[str, Array]  # field of the configuration -> (), or (members,)
MemberStep = Callable[[Values, TrainState], tuple[TrainState, Metrics]]
RunMember = Callable[..., tuple[TrainState, Results]]  # (values, state, count), of one member or of all


def mesh_of_members(cfg: Config, members: int) -> Mesh:
    """Return the devices over which members are divided."""
    device: jax.Device = jax.config.jax_default_device  # type: ignore[attr-defined]
    return Mesh(np.array(devices_of_runs(device, members, cfg.threads)), (MEMBERS,))


def at_once(mesh: Mesh, members: int) -> int:
    """Return how many members are computed at the same time: on a CPU one by each device, on a GPU all."""
    return mesh.size if on_cpu() else members


def fill_up(items: Sequence[Any], devices: int) -> list[Any]:
    """Repeat the first item at the end until the number of items is a multiple of that of the devices.

    Nobody reads what is computed for the repeated ones. Without them, fewer devices would have to compute more members.
    """
    return [*items, *[items[0]] * (-len(items) % devices)]


def make_group_advance(cfgs: Sequence[Config], player: InsidePlayer, mesh: Mesh) -> Advance:
    """Make what runs the iterations of all members, whose number is filled up to a multiple of that of the devices."""
    step, most = make_member_step(cfgs[0], player), most_iterations(cfgs[0])
    values = put_on_mesh(mesh, differing_values(fill_up(cfgs, mesh.size)), MEMBERS)

    def run(values: Values, state: TrainState, count: Array) -> tuple[TrainState, Results]:
        return run_several(partial(step, values), most, state, count)

    run_share = one_by_one(run) if on_cpu() else jax.vmap(run, in_axes=(0, 0, None))
    run_all = partial(jax.jit(run_members(run_share, mesh), compiler_options=compiler_options()), values)
    return Several(run_all, cfgs[0], ahead=mesh.size > 1 or not on_cpu())


def make_member_step(cfg: Config, player: InsidePlayer) -> MemberStep:
    """Make the function of one iteration of a member, from the values that differ between members and its state."""
    def step(values: Values, state: TrainState) -> tuple[TrainState, Metrics]:
        return player.step_of(replace(cfg, **values))(state)  # type: ignore[arg-type]

    return step


def one_by_one(run: RunMember) -> RunMember:
    """Make the function that computes one member after another.

    On a CPU that is faster than computing them together (vmap) for many members or environments, and up to a tenth
    slower for few (docs/measurements.md). On one device a member has the bits that it has alone. Several devices round
    differently, but the number of members and of devices does not change the results.
    """
    def run_all(values: Values, states: TrainState, count: Array) -> tuple[TrainState, Results]:
        ran: tuple[TrainState, Results] = lax.map(lambda member: run(*member, count=count), (values, states))
        return ran

    return run_all


def run_members(run_share: RunMember, mesh: Mesh) -> RunMember:
    """Make the function that runs some iterations of all members, from the one that does so for those of one device."""
    share = PartitionSpec(MEMBERS)
    run_shares = jax.shard_map(run_share, mesh=mesh, in_specs=(share, share, PartitionSpec()), out_specs=share,
                               check_vma=False)

    def run_all(values: Values, states: TrainState, count: Array) -> tuple[TrainState, Results]:
        after, results = run_shares(values, states, count)
        return after, jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), results)  # (iterations, members, ...)

    return run_all


def differing_values(cfgs: Sequence[Config]) -> Values:
    """Return the numbers that differ between members, by field, (members,) float32 each."""
    given = {name: [getattr(cfg, name) for cfg in cfgs] for name, fact in facts(cfgs[0]).items() if fact.sweep}
    return {name: jnp.asarray(values, jnp.float32) for name, values in given.items() if len({*values}) > 1}


def stack_members(states: Sequence[TrainState]) -> TrainState:
    """Stack the states of all members. numpy does so, because JAX would compile a function for every shape."""
    packed = [pack_tree(state) for state in states]
    stacked: TrainState = unpack_tree({name: np.stack([one[name] for one in packed]) for name in packed[0]}, states[0])
    return stacked


class HostState:
    """The state of all members on the host, where selecting one takes a thousandth of the time.

    It is copied when a member is asked for, once, whatever the number of threads that ask.

    Args:
        reached: Returns the state; see Ended.
    """

    def __init__(self, reached: Callable[[], TrainState]) -> None:
        self._reached, self._lock = reached, Lock()
        self._copied: TrainState | None = None

    def member(self, member: int) -> TrainState:
        """Return one member's part."""
        with self._lock:
            if self._copied is None:
                self._copied = jax.tree.map(lambda x: np.array(plain(x)), self._reached())
        selected: TrainState = select_member(self._copied, member)
        return selected


def select_member(tree: Any, member: int) -> Any:
    """Select one member's part of a state or of results."""
    return jax.tree.map(lambda x: x[member], tree)
