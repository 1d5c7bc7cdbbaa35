"""EnvPool's XLA handle: its environments are stepped from inside a compiled function of JAX.

A compiled function always steps the pool that it was compiled with, whatever handle it is given (docs/engines.md).
Therefore it must be compiled again for every new pool.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from proximo.config import Config
from proximo.envs.arrays.image_axes import image_axes
from proximo.envs.arrays.obs_layout import narrow_dtype, obs_layout
from proximo.envs.envpool import PoolEnvs, make_envpool
from proximo.envs.envpool_ends import separate_ends
from proximo.envs.episodes import Running, count_episodes, start_episodes
from proximo.envs.pure import PureVec
from proximo.errors import UsageError, notify_once
from proximo.protocols import Step, VecEnv

NO_HANDLE = {"darwin": "macOS", "win32": "Windows"}  # systems on which EnvPool says that XLA is not available


def make_envpool_xla(cfg: Config, seeds: Sequence[int],
                     make_pool: Callable[[Any, Sequence[int]], PoolEnvs] = make_envpool) -> VecEnv:
    """Make EnvPool's environments for the inside of a compiled function.

    Args:
        cfg: The configuration.
        seeds: One seed per environment.
        make_pool: Makes the pool: make_envpool or make_envpool_atari.

    Returns:
        PureVec. If these environments cannot be stepped inside a compiled function, the pool itself, with a message.

    Raises:
        UsageError: What `make_pool` raises; also if the variant exists for the inside only, and they cannot be stepped
            there.
    """
    envs = make_pool(cfg, seeds)
    read = observation_reader(envs.pool.observation_space, envs.obs_shape)
    if read is not None and sys.platform not in NO_HANDLE:
        return PureVec(PoolPure(envs, read), seeds[0], play="pool", close=envs.close)
    cause = f"EnvPool has no XLA handle on {NO_HANDLE[sys.platform]}" if sys.platform in NO_HANDLE else \
        f"its observations {envs.pool.observation_space} cannot be read there"
    if cfg.limits.inside_only:
        envs.close()
        raise UsageError(f"{cfg.env_id} cannot be stepped inside the compiled function, because {cause}. Use "
                         "ppo_atari_envpool, which steps it outside.")
    notify_once(f"{cfg.env_id} is stepped outside the compiled function, because {cause}.")
    return envs


class PoolState(NamedTuple):
    """What the compiled function passes from step to step; the environments themselves stay in the pool."""

    handle: Array
    over: Array  # (N,) bool: the next step of this row is spent on a reset
    running: Running


class PoolPure:
    """A pool with the methods of a PureEnv.

    reset() must be called outside the compiled function. It ignores its key, because the pool has its own seeds.

    Args:
        envs: The pool.
        read: Converts raw observations; see observation_reader.
    """

    players: tuple[str, ...] = ()
    metric_names: tuple[str, ...] = ()

    def __init__(self, envs: PoolEnvs, read: Callable[[Any], Array]) -> None:
        self._envs, self._read = envs, read
        self.num_envs, self.action_space = envs.num_envs, envs.action_space
        self.obs_shape, self.obs_dtype = envs.obs_shape, envs.obs_dtype
        self.observation_space = envs.observation_space
        self._action_dtype = np.dtype([*envs.pool.spec.action_array_spec.values()][-1].dtype)  # float64 in ViZDoom
        self._step: Callable[[Array, Array], tuple[Array, tuple[Any, ...]]]

    def reset(self, key: Array) -> tuple[PoolState, Step]:
        """Begin all environments again from their seeds. What was compiled before cannot be used afterwards."""
        step = self._envs.reset()
        with jax.enable_x64(True):  # otherwise the 64-bit numbers of MuJoCo are read as 32-bit ones
            handle, _, _, self._step = self._envs.pool.xla()
        state = PoolState(handle=jnp.asarray(handle), over=jnp.zeros(self.num_envs, bool),
                          running=start_episodes(self.num_envs, jnp))
        return state, jax.tree.map(jnp.asarray, step)

    def step(self, state: PoolState, action: Array) -> tuple[PoolState, Step]:
        """See PureEnv.step. The step after an end is a filler row."""
        handle, (obs, reward, terminated, truncated, info) = self._step_pool(state.handle, action)
        valid = ~state.over
        raw_reward = reward = jnp.where(valid, reward, 0.0)  # dm_control repeats its last reward in a filler row
        died = self._envs.death_rule(obs) if self._envs.death_rule else None
        terminated, truncated = separate_ends(terminated, truncated, valid, info, died)
        over = game_over = terminated | truncated
        if "terminated" in info:  # Atari, where a lost life ends an episode but not the game
            game_over = over & (truncated | info["terminated"].astype(bool))
            reward = jnp.sign(reward) if self._envs.clips_rewards else reward
        running, episode = count_episodes(state.running, raw_reward, game_over, valid, jnp)
        step = Step(obs=obs, first=state.over, mask=None, reward=reward, terminated=terminated, truncated=truncated,
                    final_obs=None, valid=valid, episode=episode, metrics={})
        return PoolState(handle=handle, over=over, running=running), step

    def _step_pool(self, handle: Array, action: Array) -> tuple[Array, tuple[Any, ...]]:
        """Call EnvPool's own step. Whatever has 64 bits stays inside this function."""
        if isinstance(self.action_space, spaces.Box):
            action = jnp.clip(action, self.action_space.low, self.action_space.high)
        else:
            action = action + jnp.asarray(self.action_space.start, jnp.int32)
        with jax.enable_x64(True):
            handle, (raw, reward, terminated, truncated, info) = self._step(handle, action.astype(self._action_dtype))
            games = {name: info[name] for name in ("terminated",) if name in info}
            return handle, (self._read(raw), reward.astype(jnp.float32), terminated.astype(bool),
                            truncated.astype(bool), games)


def observation_reader(space: spaces.Space[Any], shape: tuple[int, ...]) -> Callable[[Any], Array] | None:
    """Return a function from EnvPool's observations to (N, *shape), as make_envpool's have; None if there is none."""
    layout = obs_layout(space)
    if layout is not None:
        names = [part.path[0] for part in layout.parts]
        masked = "action_mask" in getattr(space, "spaces", ())
        if layout.dtype == np.float32 and not masked and all(len(part.path) == 1 for part in layout.parts):
            return lambda raw: jnp.concatenate([raw[name].reshape(len(raw[name]), -1).astype(jnp.float32)
                                                for name in names], axis=1)
    elif isinstance(space, spaces.Box) and space.shape == shape:
        dtype = narrow_dtype(np.dtype(space.dtype))
        return lambda raw: raw.astype(dtype)
    elif image_axes(space) == "last":
        return lambda raw: jnp.moveaxis(raw, -1, 1)
    return None
