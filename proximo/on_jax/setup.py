"""What stands ready before the first step: environments, agent, optimizer, compiled functions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proximo.config import Config
from proximo.envs.base import Finished, PureEnv, VecEnv
from proximo.envs.pure import NormalizedPure
from proximo.errors import UsageError, say
from proximo.on_jax.device import set_up_jax
from proximo.on_jax.distributed import average, number_of_ranks, of_one_rank, over_mesh, rank, with_common_statistics
from proximo.on_jax.iterate import (
    TrainState,
    alone,
    at,
    make_iterate,
    make_learn,
    make_play,
    make_play_host,
    stream_key,
    stream_keys,
    written_out,
)
from proximo.on_jax.learner import Learner
from proximo.on_jax.networks import Weights, binder, initial_weights
from proximo.on_jax.optimizer import start_adam
from proximo.on_jax.rollout import Carry, Episodes, Policy, Storage, compiled_policy
from proximo.streams import env_seeds, stream_generator


class Tools(NamedTuple):
    """What outlives the environments: an agent and the functions compiled for it."""

    agent: Any  # describes the network; its weights are elsewhere
    bound: Callable[[Weights], Any]
    learner: Learner
    policy: Policy
    noise: Callable
    learn: Callable


class Parts(NamedTuple):
    """Everything train() works with."""

    envs: VecEnv
    tools: Tools
    iterate: Callable  # TrainState -> (TrainState, stats, Episodes)
    state: TrainState
    keeps_state: bool  # environments are part of the snapshot; otherwise they are rebuilt at every checkpoint


def set_up(cfg: Config, make_envs: Callable, make_agent: Callable, loss_fn: Callable, pure: bool = False) -> Parts:
    """Make everything. `pure`: leave the iteration uncompiled (it is vmapped first); UsageError where it cannot be."""
    if problems := cfg.problems():
        raise UsageError("\n".join(problems))
    set_up_jax(cfg)
    ranks = number_of_ranks(cfg)
    own = of_one_rank(cfg, ranks)
    envs = make_envs(own, env_seeds(cfg.seed, own.num_envs))
    try:
        keeps_state = envs.state() is not None
        if (pure or ranks > 1) and not (envs.arrays == "jax" and keeps_state):
            raise UsageError(f"{cfg.env_id} is not simulated inside the compiled function; --num-seeds and several "
                             "--device-ids need --engine jax or brax")
        several = (average, rank) if ranks > 1 else (lambda x: x, alone)
        tools = make_tools(own, make_agent(envs, own), loss_fn, *several)
        state = first_state(own, envs, tools, ranks)
        if not keeps_state:
            say(f"the state of {cfg.env_id} is not kept: its environments are rebuilt every {cfg.checkpoint_every} "
                "iterations, so that a resumed run equals an uninterrupted one")
        if pure or ranks > 1:
            iterate = make_iterate(make_play(own, inner(own, envs), tools.bound, several[1]), tools.learn)
            return Parts(envs, tools, iterate if pure else over_mesh(cfg, iterate), state, keeps_state)
        return Parts(envs, tools, compiled_iterate(cfg, envs, tools, state.carry, keeps_state), state, keeps_state)
    except BaseException:
        envs.close()
        raise


def make_tools(cfg: Config, agent: Any, loss_fn: Callable, average: Callable, rank: Callable) -> Tools:
    """The agent as functions of its weights; nothing is compiled before it is called."""
    bound = binder(agent)
    learner = Learner(bound, loss_fn, average, written_out(cfg))
    noise = jax.jit(lambda keys, iteration: agent.head.noise(at(keys.action, iteration, 0), cfg.num_steps,
                                                                cfg.num_envs))
    return Tools(agent, bound, learner, compiled_policy(bound, agent.evaluates_later), noise,
                 jax.jit(make_learn(cfg, learner, rank)))


def inner(cfg: Config, envs: Any) -> PureEnv:
    """What runs inside the compiled function, `envs.pure`, normalised as cfg says."""
    return NormalizedPure(envs.pure, cfg) if cfg.norm_obs or cfg.norm_reward else envs.pure


def compiled_iterate(cfg: Config, envs: VecEnv, tools: Tools, carry: Carry, keeps_state: bool) -> Callable:
    """One compiled function where the environments are pure. With EnvPool's handle there are two, since collecting is
    compiled anew for every pool; with numpy suites playing stays outside."""
    if envs.arrays != "jax":
        mask_size = None if carry.mask is None else carry.mask.shape[-1]
        storage = Storage(envs, cfg.num_steps, tools.agent.head, mask_size)
        return make_iterate(make_play_host(envs, tools.policy, storage, tools.noise), tools.learn)
    play = make_play(cfg, inner(cfg, envs), tools.bound)
    if keeps_state:
        return jax.jit(make_iterate(play, tools.learn), donate_argnums=0)
    return make_iterate(jax.jit(play), tools.learn)


def first_state(cfg: Config, envs: VecEnv, tools: Tools, ranks: int = 1) -> TrainState:
    """Nothing played, nothing learned: weights from stream "init". With several ranks carry and environments have a
    leading axis of ranks."""
    adam = start_adam(initial_weights(tools.agent, stream_generator(cfg.seed, "init")))
    if ranks == 1:
        env_state, carry = first_carry(cfg, envs, tools, 0, None)
    else:
        keys = jax.random.split(stream_key(cfg.seed, "env"), ranks)
        env_state, step = jax.jit(jax.vmap(inner(cfg, envs).reset))(keys)
        if envs.statistics is not None:
            env_state = with_common_statistics(env_state, envs.num_envs)
        memory = tuple(jnp.stack([x] * ranks) for x in tools.agent.initial_state(envs.num_envs))
        carry = Carry(step.obs, step.mask, step.first, memory)
    return TrainState(adam, carry, env_state, stream_keys(cfg.seed), jnp.int32(0))


def first_carry(cfg: Config, envs: Any, tools: Tools, iteration: int, statistics: Any) -> tuple[Any, Carry]:
    """After a reset: every row begins an episode, the memory is zero (detail 33). `statistics` of normalisation go on
    where given."""
    memory = tools.agent.initial_state(envs.num_envs)
    if envs.arrays != "jax":
        step = envs.reset()
        obs, mask, first = (None if x is None else np.array(x) for x in (step.obs, step.mask, step.first))
        return (), Carry(obs, mask, first, memory)
    key = stream_key(cfg.seed, "env", iteration)
    if statistics is None:
        reset = inner(cfg, envs).reset
        env_state, step = (reset if envs.state() is None else jax.jit(reset))(key)
    else:
        bare, raw = envs.pure.reset(key)
        env_state, step = NormalizedPure(envs.pure, cfg).normalize_reset(bare, raw, statistics)
    return env_state, Carry(step.obs, step.mask, step.first, memory)


def rebuilt(cfg: Config, parts: Parts, state: TrainState, make_envs: Callable,
            iteration: int) -> tuple[Parts, TrainState]:
    """Fresh environments in place of the old, seeded by the iteration, with the same statistics."""
    old = parts.envs
    old.close()
    fresh, statistics = make_envs(cfg, env_seeds(cfg.seed, cfg.num_envs, iteration)), None
    if old.arrays == "jax" and old.statistics is not None:
        statistics = state.envs.statistics
    elif old.statistics is not None:
        fresh.statistics = old.statistics._replace(running=fresh.statistics.running)
    env_state, carry = first_carry(cfg, fresh, parts.tools, iteration, statistics)
    iterate = compiled_iterate(cfg, fresh, parts.tools, carry, parts.keeps_state)
    return parts._replace(envs=fresh, iterate=iterate), state._replace(carry=carry, envs=env_state)


def finished_rows(episodes: Episodes, steps: int) -> tuple[Finished, int]:
    """The episodes that ended, in order of time, and the valid decisions after this iteration."""
    played = steps + np.cumsum(episodes.valid)
    time, row = np.nonzero(episodes.finished)
    return Finished(played[time], row, episodes.ret[time, row], episodes.length[time, row]), int(played[-1])


def named_arrays(weights: dict[str, Array]) -> dict[str, np.ndarray]:
    """Copies on the host."""
    return {name: np.array(x) for name, x in weights.items()}
