"""EnvPool's XLA handle: its environments are stepped from inside a compiled function of JAX.

A compiled function steps the pool that it was compiled with, whatever handle it is given (docs/engines.md), so it must
be compiled anew for every pool.
"""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from proximo.config import Config
from proximo.envs.envpool import make_envpool
from proximo.envs.envpool_ids import notify_once
from proximo.envs.episodes import Running, count_episodes, start_episodes
from proximo.envs.pure import PureVec
from proximo.errors import UsageError
from proximo.protocols import Step, VecEnv

NO_HANDLE = {"darwin": "macOS", "win32": "Windows"}  # EnvPool's own words for where its XLA is "unavailable"


def make_envpool_xla(cfg: Config, seeds: Sequence[int]) -> VecEnv:
    """One of EnvPool's environments a seed, inside the compiled function; where that cannot be, stepped outside it as
    make_envpool does, which is said. Raises UsageError there in the variants that are for the inside only."""
    envs: Any = make_envpool(cfg, seeds)
    read = observation_reader(envs.pool.observation_space, envs.obs_shape)
    if read is not None and sys.platform not in NO_HANDLE:
        pure = PoolPure(envs, read, vars(cfg).get("clip_rewards", True) is not False)
        return PureVec(pure, cfg, seeds[0], kept=False, close=envs.close)
    cause = f"EnvPool has no XLA handle on {NO_HANDLE[sys.platform]}" if sys.platform in NO_HANDLE else \
        f"its observations {envs.pool.observation_space} cannot be read inside"
    if cfg.limits.inside_only:
        envs.close()
        raise UsageError(f"{cfg.env_id} cannot be stepped inside the compiled function, since {cause}; use "
                         "ppo_atari_envpool for Atari, or ppo --engine envpool, which step it outside")
    notify_once(f"{cfg.env_id} is stepped outside the compiled function, since {cause}")
    return envs


class PoolState(NamedTuple):
    """What is threaded through the compiled function; the environments themselves stay in the pool."""

    handle: Array
    over: Array  # (N,) bool: this row's next step is spent on a reset
    running: Running


class PoolPure:
    """A pool with the methods of a PureEnv; reset() is called outside, and ignores its key (the pool has its seeds)."""

    players: tuple[str, ...] = ()
    metric_names: tuple[str, ...] = ()

    def __init__(self, envs: Any, read: Callable[[Any], Array], clips: bool) -> None:
        self._read, self._clips = read, clips  # see observation_reader; rewards of Atari
        self._envs, self.num_envs, self.action_space = envs, envs.num_envs, envs.action_space
        self.obs_shape, self.obs_dtype = envs.obs_shape, envs.obs_dtype
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


def observation_reader(space: spaces.Space, shape: tuple[int, ...]) -> Callable[[Any], Array] | None:
    """How EnvPool's observations become (N, *shape), as make_envpool has them; None where that cannot be."""
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
    return None
