"""What stands ready before the first step: environments, agent, optimizer, compiled functions."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proximo.config import Config
from proximo.errors import UsageError, notify
from proximo.on_jax.begin import first_carry, first_state, inner, made, reset_from, with_agreed
from proximo.on_jax.distributed import AXIS, World, agreed_statistics, episodes_of_all, join, share_of
from proximo.on_jax.iterate import (
    Play,
    TrainState,
    alone,
    at,
    make_iterate,
    make_learn,
    make_play,
    make_play_host,
    stream_keys,
    written_out,
)
from proximo.on_jax.learner import Learner
from proximo.on_jax.mesh import (
    average,
    here,
    learn_over_mesh,
    over_mesh,
    placed,
    rank,
    rows_over_mesh,
)
from proximo.on_jax.networks import Weights, binder, numpy_binder, on_cpu
from proximo.on_jax.rollout import Carry, Episodes, Policy, Storage, compiled_policy
from proximo.on_jax.snapshot import statistics_of
from proximo.protocols import VecEnv
from proximo.types import FinishedEpisodes

HOST_ROWS = 64  # up to so many environments, numpy acts faster than a compiled function is called


class Tools(NamedTuple):
    """What outlives the environments: an agent and the functions compiled for it."""

    agent: Any  # describes the network; its weights are elsewhere
    bound: Callable[[Weights], Any]
    learner: Learner
    policy: Policy
    noise: Callable
    learn: Callable
    resets: Callable  # of pure environments on all ranks: (keys, statistics) -> (state, step)


class Parts(NamedTuple):
    """Everything train() works with."""

    world: World
    envs: VecEnv
    tools: Tools
    iterate: Callable  # TrainState -> (TrainState, stats, Episodes)
    state: TrainState
    inside: bool  # environments are pure functions within the compiled one
    keeps_state: bool  # environments are part of the snapshot; otherwise they are rebuilt at every checkpoint


def set_up(cfg: Config, make_envs: Callable, make_agent: Callable, loss_fn: Callable, pure: bool = False) -> Parts:
    """Join the other processes and make everything; what train() begins with is in order but not yet on the devices
    (on_devices). `pure`: leave the iteration uncompiled (it is vmapped first); UsageError where it cannot be."""
    if problems := cfg.problems():
        raise UsageError("\n".join(problems))
    world = join(cfg)
    if pure and world.ranks > 1:
        raise UsageError(f"--num-seeds trains on one device; leave --device-ids {cfg.device_ids} and torchrun out")
    envs = made(cfg, world, make_envs, 0)
    try:
        inside = envs.arrays == "jax" and envs.state() is not None
        if pure and not inside:
            raise UsageError(f"{cfg.env_id} is not simulated inside the compiled function; --num-seeds needs "
                             "--engine jax or brax")
        if envs.arrays == "jax" and not inside and len(world.local_ranks) > 1:
            raise UsageError(f"EnvPool's XLA handle steps one pool on one device, so {world.ranks} --device-ids cannot "
                             "share it; start one process for each device with torchrun instead")
        tools = make_tools(cfg, world, envs, make_agent(envs, share_of(cfg, world.ranks)), loss_fn)
        state = first_state(cfg, world, envs, tools.agent, tools.resets)
        keeps_state = world.size == 1 and envs.state() is not None
        if not keeps_state:
            notify(f"the state of {cfg.env_id} is not kept: its environments are rebuilt every {cfg.checkpoint_every} "
                "iterations, so that a resumed run equals an uninterrupted one")
        if pure:
            iterate = make_iterate(make_play(cfg, inner(cfg, envs), tools.bound), tools.learn)
        else:
            iterate = compiled_iterate(cfg, world, envs, tools, state.carry)
        return Parts(world, envs, tools, iterate, state, inside, keeps_state)
    except BaseException:
        envs.close()
        raise


def make_tools(cfg: Config, world: World, envs: Any, agent: Any, loss_fn: Callable) -> Tools:
    """The agent as functions of its weights; nothing is compiled before it is called."""
    bound, several, own = binder(agent), world.ranks > 1, share_of(cfg, world.ranks)
    learner = Learner(bound, loss_fn, average if several else lambda x: x, written_out(cfg))
    learn = make_learn(own, learner, rank if several else alone)

    def noise(keys: Any, iteration: Array) -> Array:
        each = [agent.head.noise(at(keys.action, iteration, r), own.num_steps, own.num_envs)
                for r in world.local_ranks]
        return jnp.concatenate(each, axis=1) if several else each[0]

    if len(world.local_ranks) > 1:
        policy = compiled_policy(bound, agent.evaluates_later, rows_over_mesh(world))
    else:
        small = agent.evaluates_later and own.num_envs <= HOST_ROWS and on_cpu()
        policy = compiled_policy(bound, agent.evaluates_later, on_host=numpy_binder(agent) if small else None)
    outside = several and not (envs.arrays == "jax" and envs.state() is not None)
    compiled = learn_over_mesh(world, learn, stream_keys(cfg.seed)) if outside else jax.jit(learn)
    resets = jax.jit(jax.vmap(partial(reset_from, cfg, envs), in_axes=(0, None)))
    return Tools(agent, bound, learner, policy, jax.jit(noise), compiled, resets)


def compiled_iterate(cfg: Config, world: World, envs: VecEnv, tools: Tools, carry: Carry) -> Callable:
    """One compiled function where the environments are pure. With EnvPool's handle there are two, since collecting is
    compiled anew for every pool; with numpy suites playing stays outside."""
    own = share_of(cfg, world.ranks)
    if envs.arrays != "jax":
        mask_size = None if carry.mask is None else carry.mask.shape[-1]
        storage = Storage(envs, cfg.num_steps, tools.agent.head, mask_size)
        play = make_play_host(envs, tools.policy, storage, tools.noise)
    elif envs.state() is not None:
        play = make_play(own, inner(cfg, envs), tools.bound, rank if world.ranks > 1 else alone)
        iterate = make_iterate(play, tools.learn)
        return over_mesh(world, iterate) if world.ranks > 1 else jax.jit(iterate, donate_argnums=0)
    else:
        play = jax.jit(make_play(own, inner(cfg, envs), tools.bound, lambda: world.rank))
    return make_iterate(agreed_play(world, envs, play) if world.ranks > 1 else play, tools.learn)


def agreed_play(world: World, envs: VecEnv, play: Callable[[TrainState], Play]) -> Callable[[TrainState], Play]:
    """Playing in this process's own environments, after which all know of all episodes and normalise alike."""
    def agreed(state: TrainState) -> Play:
        outside = envs.statistics
        played = play(state._replace(adam=here(world, state.adam)))
        played = played._replace(episodes=episodes_of_all(world, jax.device_get(played.episodes)))
        if outside is None:
            return played
        if envs.arrays != "jax":
            envs.statistics = agreed_statistics(world, outside, envs.statistics)
            return played
        return played._replace(envs=with_agreed(world, state.envs.statistics, played.envs))
    return agreed


def on_devices(parts: Parts, state: TrainState) -> TrainState:
    """The state where the functions that go on from it expect it: with several ranks, on all their devices."""
    world = parts.world
    if world.ranks == 1:
        return state
    adam = placed(world, state.adam)
    if parts.inside:
        return TrainState(adam, placed(world, state.carry, AXIS), placed(world, state.envs, AXIS),
                          placed(world, state.keys), placed(world, state.iteration))
    memory = state.carry.state if world.size > 1 else placed(world, state.carry.state, AXIS)
    return state._replace(adam=adam, carry=state.carry._replace(state=memory))


def rebuilt(cfg: Config, parts: Parts, state: TrainState, make_envs: Callable,
            iteration: int) -> tuple[Parts, TrainState]:
    """Fresh environments in place of the old, seeded by the iteration, with the same statistics."""
    old, world = parts.envs, parts.world
    statistics = statistics_of(old, state)
    if parts.inside:
        env_state, carry = first_carry(cfg, world, old, parts.tools.agent, parts.tools.resets, iteration,
                                  statistics)
        return parts, state._replace(carry=placed(world, carry, AXIS), envs=placed(world, env_state, AXIS))
    old.close()
    fresh = made(cfg, world, make_envs, iteration)
    if old.arrays != "jax" and old.statistics is not None:
        fresh.statistics = old.statistics._replace(running=fresh.statistics.running)
    env_state, carry = first_carry(cfg, world, fresh, parts.tools.agent, parts.tools.resets, iteration,
                                  statistics)
    iterate = compiled_iterate(cfg, world, fresh, parts.tools, carry)
    return parts._replace(envs=fresh, iterate=iterate), state._replace(carry=carry, envs=env_state)


def finished_rows(episodes: Episodes, steps: int) -> tuple[FinishedEpisodes, int]:
    """The episodes that ended, in order of time, and the valid decisions after this iteration."""
    played = steps + np.cumsum(episodes.valid)
    time, row = np.nonzero(episodes.finished)
    return FinishedEpisodes(played[time], row, episodes.ret[time, row], episodes.length[time, row]), int(played[-1])


def named_arrays(weights: dict[str, Array]) -> dict[str, np.ndarray]:
    """Copies on the host."""
    return {name: np.array(x) for name, x in weights.items()}
