"""EnvPool's XLA handle: its environments are stepped from inside a compiled function of JAX.

A compiled function steps the pool that it was compiled with, whatever handle it is given (docs/engines.md), so it must
be compiled anew for every pool.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from proximo.config import Config
from proximo.envs.base import Step
from proximo.envs.envpool import make_envpool
from proximo.envs.episodes import Running, count_episodes, start_episodes
from proximo.envs.pure import PureVec
from proximo.errors import UsageError


def make_envpool_xla(cfg: Config, seeds: Sequence[int]) -> PureVec:
    """One of EnvPool's environments a seed, inside the compiled function; UsageError for observations that only
    make_envpool can read, and where EnvPool has no XLA handle (it has one on Linux)."""
    pool = make_envpool(replace(cfg, norm_obs=False, norm_reward=False), seeds)
    try:
        pure = PoolPure(pool, cfg.env_id, vars(cfg).get("clip_rewards", True) is not False)
    except BaseException:
        pool.close()
        raise
    return PureVec(pure, cfg, seeds[0], kept=False, close=pool.close)


class PoolState(NamedTuple):
    """What is threaded through the compiled function; the environments themselves stay in the pool."""

    handle: Array
    over: Array  # (N,) bool: this row's next step is spent on a reset
    running: Running


class PoolPure:
    """A pool with the methods of a PureEnv; reset() is called outside, and ignores its key (the pool has its seeds)."""

    players: tuple[str, ...] = ()
    metric_names: tuple[str, ...] = ()

    def __init__(self, envs: Any, env_id: str, clips: bool) -> None:
        self._clips = clips  # rewards of Atari
        self._envs, self.num_envs, self.action_space = envs, envs.num_envs, envs.action_space
        self.obs_shape, self.obs_dtype = envs.obs_shape, envs.obs_dtype
        native = envs.pool.observation_space
        self._read = observation_reader(native, self.obs_shape, env_id)
        self._action_dtype = np.dtype(envs.pool.action_space.dtype) if isinstance(self.action_space, spaces.Box) \
            else np.dtype(np.int32)
        self._step: Callable | None = None

    def reset(self, key: Array) -> tuple[PoolState, Step]:
        """All environments begin anew from their seeds; what was compiled before is of no use afterwards."""
        step = self._envs.reset()
        with jax.enable_x64(True):  # else the 64-bit numbers of MuJoCo are read as 32-bit ones
            handle, _, _, self._step = self._envs.pool.xla()
        no = jnp.zeros(self.num_envs, bool)
        state = PoolState(jnp.asarray(handle), no, start_episodes(self.num_envs, jnp))
        return state, jax.tree.map(jnp.asarray, step)

    def step(self, state: PoolState, action: Array) -> tuple[PoolState, Step]:
        """See PureEnv.step. One step late: after an end comes a filler row."""
        handle, (obs, reward, terminated, truncated, info) = self._sent(state.handle, action)
        valid = ~state.over
        reward = jnp.where(valid, reward, 0.0)  # dm_control repeats its last reward in a filler row
        terminated, truncated = terminated & ~truncated & valid, truncated & valid
        over = game_over = terminated | truncated
        raw_reward = reward
        if "terminated" in info:  # Atari, where a lost life ends an episode and the game goes on
            game_over = over & (truncated | info["terminated"].astype(bool))
            reward = jnp.sign(reward) if self._clips else reward
        running, episode = count_episodes(state.running, raw_reward, game_over, valid, jnp)
        return PoolState(handle, over, running), Step(obs, state.over, None, reward, terminated, truncated, None, valid,
                                                      episode, {})

    def _sent(self, handle: Array, action: Array) -> tuple[Array, tuple]:
        """EnvPool's own step; whatever has 64 bits stays inside."""
        if isinstance(self.action_space, spaces.Box):
            action = jnp.clip(action, self.action_space.low, self.action_space.high)
        else:
            action = action + jnp.asarray(self.action_space.start, jnp.int32)
        with jax.enable_x64(True):
            handle, (raw, reward, terminated, truncated, info) = self._step(handle, action.astype(self._action_dtype))
            games = {name: info[name] for name in ("terminated",) if name in info}
            return handle, (self._read(raw), reward.astype(jnp.float32), terminated.astype(bool),
                            truncated.astype(bool), games)


def observation_reader(space: spaces.Space, shape: tuple[int, ...], env_id: str) -> Callable[[Any], Array]:
    """How EnvPool's observations become (N, *shape), as make_envpool has them. UsageError where that cannot be."""
    if isinstance(space, spaces.Dict):
        parts = dict(sorted(space.spaces.items()))
        boxes = all(isinstance(part, spaces.Box) for part in parts.values())
        if boxes and sum(math.prod(part.shape) for part in parts.values()) == math.prod(shape):
            return lambda raw: jnp.concatenate([raw[name].reshape(len(raw[name]), -1).astype(jnp.float32)
                                                for name in parts], axis=1)
    elif isinstance(space, spaces.Box) and space.shape == shape:
        small = space.dtype != np.float64
        return lambda raw: raw if small else raw.astype(jnp.float32)
    elif isinstance(space, spaces.Box) and len(shape) == 3 and space.shape == (*shape[1:], shape[0]):
        return lambda raw: jnp.moveaxis(raw, -1, 1)
    raise UsageError(f"{env_id} has observations {space}, which are not read inside the compiled function; "
                     "use --engine envpool with --framework torch, or another variant")
