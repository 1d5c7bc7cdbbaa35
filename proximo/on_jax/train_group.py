"""Several independent agents trained at once by one compiled function, one for each seed or set of values."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from jax.sharding import Mesh

from proximo.config import Config
from proximo.envs.custom.pure import naming_traced_code
from proximo.envs.state.newest import Newest
from proximo.errors import EnvError, NumbersError, UsageError, reading_checkpoint, warn
from proximo.facts import facts
from proximo.on_jax.checks import check_calls, check_constants
from proximo.on_jax.distributed import join
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.members import (
    MEMBERS,
    HostState,
    at_once,
    differing_values,
    fill_up,
    make_group_advance,
    mesh_of_members,
    select_member,
    stack_members,
)
from proximo.on_jax.mesh import put_on_mesh
from proximo.on_jax.parameters import make_bind
from proximo.on_jax.play_inside import InsidePlayer
from proximo.on_jax.setup import first_state, make_inside_player
from proximo.on_jax.snapshot import restore
from proximo.on_jax.train import History
from proximo.on_jax.train_step import TrainState, stream_key
from proximo.problems import checked
from proximo.protocols import MakeAgent, MakeEnvs
from proximo.types import Iteration


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
    if join(cfgs[0], len(cfgs)).size > 1:
        raise UsageError(f"{len(cfgs)} runs at once train in one process, and not over several devices as one. Leave "
                         "out --device-ids and torchrun.")
    mesh = mesh_of_members(cfgs[0], len(cfgs))
    player = make_inside_player(cfgs[0], make_envs, make_agent, loss_fn, at_once(mesh, len(cfgs)))
    try:
        begun = first_states(cfgs, player, make_agent)
        if states is not None:
            begun = continue_members(cfgs, player, begun, states)
        yield from iterate_group(cfgs, player, begun, states, mesh)
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
        UsageError: The agents have different constants, or cannot be called.
    """
    normalizer = player.normalizer
    agents = [make_agent(normalizer.spec, cfg) for cfg in cfgs]
    check_constants(agents)
    statistics = normalizer.start()
    states = [first_state(player, cfg.seed, player.begin_with(stream_key(cfg.seed, "env"), statistics), agent)
              for cfg, agent in zip(cfgs, agents)]
    player.normalizer = normalizer._replace(spec=normalizer.spec._replace(masked=states[0].carry.mask is not None))
    check_calls(make_bind(agents[0])(states[0].adam.weights), states[0].carry)
    return states


def iterate_group(cfgs: Sequence[Config], player: InsidePlayer, states: Sequence[TrainState],
                  kept: list[dict[str, Any]] | None, mesh: Mesh) -> Iterator[list[Iteration | None]]:
    """Do what train_group does, from the states of all members and the snapshots that they come from."""
    histories = [History(cfg, kept[m] if kept else None) for m, cfg in enumerate(cfgs)]
    now = put_on_mesh(mesh, stack_members(fill_up(states, mesh.size)), MEMBERS)
    advance, newest, total = make_group_advance(cfgs, player, mesh), Newest(), cfgs[0].num_iterations
    running = list(range(len(cfgs)))
    iteration = int(states[0].iteration)
    while running and iteration < total:
        with naming_traced_code():
            now, ended = advance(now, iteration)
        for results, reached in ended:
            iteration, state = iteration + 1, HostState(reached)
            newest.number, done = iteration, list[Iteration | None]([None] * len(cfgs))
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
