"""What a run begins with, and begins anew: environments, weights, and the first observations."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proximo.config import Config
from proximo.envs.normalize import apply_normalization, start_statistics
from proximo.envs.pure import NormalizedPure
from proximo.on_jax.distributed import World, agreed_statistics, share_of
from proximo.on_jax.iterate import TrainState, stream_key, stream_keys
from proximo.on_jax.mesh import with_common_statistics
from proximo.on_jax.networks import initial_weights
from proximo.on_jax.optimizer import start_adam
from proximo.on_jax.rollout import Carry
from proximo.protocols import PureEnv, VecEnv
from proximo.streams import env_seeds, stream_generator


def made(cfg: Config, world: World, make_envs: Callable, iteration: int) -> VecEnv:
    """This process's environments; where they are simulated on several of its devices, those of one of them."""
    each = share_of(cfg, world.size)
    envs = make_envs(each, env_seeds(cfg.seed, each.num_envs, iteration, world.rank))
    if world.size < world.ranks and envs.arrays == "jax" and envs.state() is not None:
        envs.close()
        own = share_of(cfg, world.ranks)
        envs = make_envs(own, env_seeds(cfg.seed, own.num_envs, iteration))
    return apply_normalization(envs, cfg)


def inner(cfg: Config, envs: Any) -> PureEnv:
    """What runs inside the compiled function, `envs.pure`, normalised as cfg says."""
    return NormalizedPure(envs.pure, cfg) if cfg.norm_obs or cfg.norm_reward else envs.pure


def first_state(cfg: Config, world: World, envs: VecEnv, agent: Any, resets: Callable) -> TrainState:
    """Nothing played, nothing learned: weights from stream "init"."""
    adam = start_adam(initial_weights(agent, stream_generator(cfg.seed, "init")))
    env_state, carry = first_carry(cfg, world, envs, agent, resets, 0, None)
    return TrainState(adam, carry, env_state, stream_keys(cfg.seed), jnp.int32(0))


def first_carry(cfg: Config, world: World, envs: Any, agent: Any, resets: Callable, iteration: int,
                statistics: Any) -> tuple[Any, Carry]:
    """After a reset: every row begins an episode, the memory is zero (detail 33). `statistics` of normalisation go on
    where given. Simulated on several devices, `resets` makes carry and environments with a leading axis of all ranks.
    """
    memory = agent.initial_state(envs.num_envs)
    if envs.arrays != "jax":
        before = envs.statistics
        step = envs.reset()
        if before is not None:
            envs.statistics = agreed_statistics(world, before, envs.statistics)
        obs, mask, first = (None if x is None else np.array(x) for x in (step.obs, step.mask, step.first))
        return (), Carry(obs, mask, first, memory)
    key, inside = stream_key(cfg.seed, "env", iteration), envs.state() is not None
    normalizes = envs.statistics is not None
    if normalizes and statistics is None:
        statistics = start_statistics(envs.num_envs, envs.obs_shape, jnp)
    if inside and world.ranks > 1:
        env_state, step = resets(jax.random.split(key, world.ranks), statistics)
        env_state = with_common_statistics(env_state, statistics) if normalizes else env_state
        memory = tuple(jnp.stack([x] * world.ranks) for x in memory)
    else:
        reset = partial(reset_from, cfg, envs)
        env_state, step = (jax.jit(reset) if inside else reset)(key, statistics)
        if normalizes and world.size > 1:
            env_state = with_agreed(world, statistics, env_state)
    return env_state, Carry(step.obs, step.mask, step.first, memory)


def reset_from(cfg: Config, envs: Any, key: Array, statistics: Any) -> tuple[Any, Any]:
    """(state, first step) of environments inside the compiled function; `statistics` go on, None: nothing normalises.
    """
    pure = inner(cfg, envs)
    if statistics is None:
        return pure.reset(key)
    state, step = envs.pure.reset(key)
    return NormalizedPure(envs.pure, cfg).normalize_reset(state, step, statistics)


def with_agreed(world: World, base: Any, env_state: Any) -> Any:
    """The same for normalisation inside the compiled function."""
    agreed = agreed_statistics(world, *jax.device_get((base, env_state.statistics)))
    return env_state._replace(statistics=jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), agreed))
