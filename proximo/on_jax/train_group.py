"""Several independent agents trained at once, one for each seed or set of values: one compiled function, vmapped."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proximo.config import Config
from proximo.envs.pure import pack_tree, plain, unpack_tree
from proximo.errors import EnvError, NumbersError, UsageError, reading_checkpoint, warn
from proximo.facts import facts
from proximo.newest import Newest
from proximo.on_jax.advance import read_results
from proximo.on_jax.checks import check_constants, naming_traced_code
from proximo.on_jax.distributed import join
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.play_inside import InsidePlayer
from proximo.on_jax.setup import MakeAgent, first_state, make_inside_player
from proximo.on_jax.snapshot import restore
from proximo.on_jax.train import History
from proximo.on_jax.train_step import Metrics, TrainState, stream_key
from proximo.problems import checked
from proximo.protocols import MakeEnvs
from proximo.types import Iteration

Values = dict[str, Array]  # field of the configuration -> (), or (members,)


def train_group(cfgs: Sequence[Config], make_envs: MakeEnvs, make_agent: MakeAgent,
                loss_fn: Callable[..., Any] = ppo_loss,
                states: list[dict[str, Any]] | None = None) -> Iterator[list[Iteration | None]]:
    """Train like train() with each of several configurations.

    Args:
        cfgs: The hyper-parameters of each member. They may differ in the seed and in numbers that proximo sweep takes
            (Facts.sweep): these are arrays in the compiled function, all other values are constants of it.
        make_envs: (cfg, seeds) -> environments that are pure functions of JAX. It is called once, with the first
            configuration.
        make_agent: See train(). It is called for each member, for first weights; everything else of the networks is
            that of the first configuration.
        loss_fn: See train().
        states: One snapshot per member, all of the same iteration, to continue from.

    Yields:
        After every update one Iteration per member, in their order; None for one whose numbers are not finite.

    Raises:
        UsageError: The environments are not pure functions of JAX, or several devices were asked for.
        NumbersError: At the end, if the numbers of a member were not finite.
    """
    cfgs = [checked(cfg) for cfg in cfgs]
    check_members(cfgs)
    if join(cfgs[0]).size > 1:
        raise UsageError(f"{len(cfgs)} runs at once train on one device. Leave out --device-ids and torchrun.")
    player = make_inside_player(cfgs[0], make_envs, make_agent, loss_fn, len(cfgs))
    try:
        begun = first_states(cfgs, player, make_agent)
        if states is not None:
            begun = continue_members(cfgs, player, begun, states)
        yield from iterate_group(cfgs, player, begun, states)
    finally:
        player.envs.close()


def check_members(cfgs: Sequence[Config]) -> None:
    """Raise UsageError if configurations differ in a field that is a constant of the compiled function."""
    first = cfgs[0]
    constant = [name for name, fact in facts(first).items()
                if name != "seed" and fact.group != "logging" and not fact.sweep]
    if wrong := [name for name in constant if any(getattr(cfg, name) != getattr(first, name) for cfg in cfgs)]:
        raise UsageError(f"The runs differ in {', '.join(wrong)}. Runs that train at once may differ in the seed and "
                         f"in {', '.join(name for name, fact in facts(first).items() if fact.sweep)}.")


def first_states(cfgs: Sequence[Config], player: InsidePlayer, make_agent: MakeAgent) -> list[TrainState]:
    """Return the state of each member before its first iteration.

    Every member has an agent of its own, because layers that are not Proximo's have their first weights already.

    Raises:
        UsageError: The agents have different constants.
    """
    agents = [make_agent(player.normalizer.spec, cfg) for cfg in cfgs]
    check_constants(agents)
    statistics = player.normalizer.start()
    return [first_state(player, cfg.seed, player.begin_with(stream_key(cfg.seed, "env"), statistics), agent)
            for cfg, agent in zip(cfgs, agents)]


def iterate_group(cfgs: Sequence[Config], player: InsidePlayer, states: Sequence[TrainState],
                  kept: list[dict[str, Any]] | None) -> Iterator[list[Iteration | None]]:
    """Do what train_group does, from the states of all members and the snapshots that they come from."""
    histories = [History(cfg, kept[m] if kept else None) for m, cfg in enumerate(cfgs)]
    iterate, newest = jax.jit(jax.vmap(make_member_step(cfgs[0], player)), donate_argnums=1), Newest()
    running, values, now = list(range(len(cfgs))), differing_values(cfgs), stack_members(states)
    for iteration in range(int(states[0].iteration) + 1, cfgs[0].num_iterations + 1):
        newest.number = iteration
        with naming_traced_code():
            now, metrics = iterate(values, now)
        results, state = read_results(now, metrics, player.statistics(now)), HostState(now)
        done: list[Iteration | None] = [None] * len(cfgs)
        for m in list(running):
            try:
                done[m] = histories[m].add(iteration, select_member(results, m), player, partial(state.member, m))
            except (NumbersError, EnvError) as error:
                warn(f"{member_name(cfgs, m)}: {error}")
                running.remove(m)
        if not running:
            break
        yield [it and newest.guarded(it) for it in done]
    if lost := [member_name(cfgs, m) for m in range(len(cfgs)) if m not in running]:
        raise NumbersError(f"{len(lost)} of {len(cfgs)} runs ended early because their numbers were not finite: "
                           f"{'; '.join(lost)}")


def make_member_step(cfg: Config,
                     player: InsidePlayer) -> Callable[[Values, TrainState], tuple[TrainState, Metrics]]:
    """Make the function of one iteration of a member, from the values that differ between members and its state."""
    def step(values: Values, state: TrainState) -> tuple[TrainState, Metrics]:
        return player.step_of(replace(cfg, **values))(state)  # type: ignore[arg-type]

    return step


def differing_values(cfgs: Sequence[Config]) -> Values:
    """Return the numbers that differ between members, by field, (members,) float32 each."""
    given = {name: [getattr(cfg, name) for cfg in cfgs] for name, fact in facts(cfgs[0]).items() if fact.sweep}
    return {name: jnp.asarray(values, jnp.float32) for name, values in given.items() if len({*values}) > 1}


def member_name(cfgs: Sequence[Config], member: int) -> str:
    """Name a member by its seed and the values that differ between members."""
    return ", ".join(f"{name}={getattr(cfgs[member], name)}" for name in (*differing_values(cfgs), "seed"))


@reading_checkpoint()
def continue_members(cfgs: Sequence[Config], player: InsidePlayer, states: Sequence[TrainState],
                     kept: Sequence[dict[str, Any]]) -> list[TrainState]:
    """Restore the snapshot of each member. Limits are computed from the arrays that the compiled function reads."""
    values = differing_values(cfgs)
    return [player.unpack(one, restore(one, state, replace(cfg, **select_member(values, m))), True)
            for m, (cfg, one, state) in enumerate(zip(cfgs, kept, states, strict=True))]


def stack_members(states: Sequence[TrainState]) -> TrainState:
    """Stack the states of all members. numpy does so, because JAX would compile a function for every shape."""
    packed = [pack_tree(state) for state in states]
    stacked: TrainState = unpack_tree({name: np.stack([one[name] for one in packed]) for name in packed[0]}, states[0])
    return stacked


class HostState:
    """The state of all members on the host, where selecting one takes a thousandth of the time.

    It is copied when a member is asked for, once, whatever the number of threads that ask.
    """

    def __init__(self, state: TrainState) -> None:
        self._state, self._lock = state, Lock()
        self._copied: TrainState | None = None

    def member(self, member: int) -> TrainState:
        """Return one member's part."""
        with self._lock:
            if self._copied is None:
                self._copied = jax.tree.map(lambda x: np.array(plain(x)), self._state)
        selected: TrainState = select_member(self._copied, member)
        return selected


def select_member(tree: Any, member: int) -> Any:
    """Select one member's part of a state or of results."""
    return jax.tree.map(lambda x: x[member], tree)
