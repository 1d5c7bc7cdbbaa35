"""Environments that are pure functions of JAX: normalised inside the compiled function, or stepped one by one."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from proximo.config import Config
from proximo.envs.normalize import (
    Statistics,
    apply_statistics,
    count_reset,
    count_step,
    normalize_step,
    start_statistics,
)
from proximo.protocols import Array, Play, PureEnv, Step


class NormalizedState(NamedTuple):
    """Everything that continues normalised environments."""

    envs: Any
    statistics: Statistics


class NormalizedPure:
    """A PureEnv with normalised observations and rewards (details 28-31).

    Args:
        envs: The environments without normalisation.
        cfg: Its `norm_obs` and `norm_reward` say what is normalised.
    """

    def __init__(self, envs: PureEnv, cfg: Config) -> None:
        self._envs, self._cfg = envs, cfg
        self.num_envs, self.obs_shape, self.action_space = envs.num_envs, envs.obs_shape, envs.action_space
        self.observation_space = envs.observation_space
        self.obs_dtype = np.dtype(np.float32) if cfg.norm_obs else envs.obs_dtype
        self.players, self.metric_names = envs.players, envs.metric_names

    def reset(self, key: Array) -> tuple[NormalizedState, Step]:
        """See PureEnv.reset. The statistics begin again too."""
        state, step = self._envs.reset(key)
        return self.normalize_reset(state, step, start_statistics(self.num_envs, self.obs_shape, jnp))

    def normalize_reset(self, state: Any, step: Step, statistics: Statistics) -> tuple[NormalizedState, Step]:
        """Normalise what the reset of the inner environments returned, with statistics that continue."""
        statistics = count_reset(statistics, step, self._cfg, jnp)
        return NormalizedState(state, statistics), apply_statistics(statistics, step, self._cfg, jnp)

    def step(self, state: NormalizedState, action: Array) -> tuple[NormalizedState, Step]:
        """See PureEnv.step."""
        inner, step = self._envs.step(state.envs, action)
        statistics, step = normalize_step(state.statistics, step, self._cfg, jnp)
        return NormalizedState(inner, statistics), step


def pack_tree(tree: Any) -> dict[str, np.ndarray]:
    """Return every array of a state by its path in it, bit for bit."""
    return {jax.tree_util.keystr(path): np.array(_plain(leaf))
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def unpack_tree(packed: dict[str, np.ndarray], like: Any) -> Any:
    """Return the state that pack_tree packed. `like` is a state of the same structure."""
    def find(path: Any, leaf: Array) -> Array:
        value = jnp.asarray(packed[jax.tree_util.keystr(path)], _plain(leaf).dtype)
        return jax.random.wrap_key_data(value) if _is_key(leaf) else value

    return jax.tree_util.tree_map_with_path(find, like)


def _is_key(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Array) -> Array:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


class PureVec:
    """A PureEnv as a VecEnv, compiled step by step: the same numbers as inside a compiled iteration.

    Attributes:
        pure: The environments without normalisation, for a compiled iteration.

    Args:
        pure: The environments.
        cfg: Its `norm_obs` and `norm_reward` say what is normalised.
        seed: Seed of the batch.
        play: "inside" if JAX has the whole state; "pool" if an outside engine has the environments. Then reset() is not
            a pure function, and step() is compiled again after it.
        close: Closes the outside engine.
    """

    arrays = "jax"
    render_fps: float | None = None

    def __init__(self, pure: PureEnv, cfg: Config, seed: int, play: Play = "inside",
                 close: Callable[[], None] = lambda: None) -> None:
        self.pure, self._cfg, self._seed, self.play, self.close = pure, cfg, seed, play, close
        self.keeps_state = play == "inside"
        self.num_envs, self.obs_shape, self.action_space = pure.num_envs, pure.obs_shape, pure.action_space
        self.observation_space = pure.observation_space
        self.obs_dtype = np.dtype(np.float32) if cfg.norm_obs else pure.obs_dtype
        self.players, self.metric_names = pure.players, pure.metric_names
        normalizes = cfg.norm_obs or cfg.norm_reward
        self.statistics = start_statistics(self.num_envs, self.obs_shape) if normalizes else None
        self._reset = jax.jit(pure.reset) if self.keeps_state else pure.reset
        self._step = jax.jit(pure.step)
        self._state: Any = None

    def reset(self) -> Step:
        """Begin all environments again from the seed."""
        self._state, step = self._reset(jax.random.key(self._seed))
        if not self.keeps_state:
            self._step = jax.jit(lambda state, action: self.pure.step(state, action))
        if self.statistics is not None:
            self.statistics = count_reset(self.statistics, jax.device_get(step), self._cfg)
        return self._normalize(step)

    def step(self, action: Array) -> Step:
        """See VecEnv.step."""
        self._state, step = self._step(self._state, jnp.asarray(action))
        if self.statistics is not None:
            self.statistics = count_step(self.statistics, jax.device_get(step), self._cfg)
        return self._normalize(step)

    def _normalize(self, step: Step) -> Step:
        return step if self.statistics is None else apply_statistics(self.statistics, jax.device_get(step), self._cfg)

    def state(self) -> dict[str, Any] | None:
        """See VecEnv.state; {} before the first reset."""
        if not self.keeps_state:
            return None
        return pack_tree(self._state) if self._state is not None else {}

    def load(self, state: dict[str, Any]) -> None:
        """See VecEnv.load."""
        self.reset()
        self._state = unpack_tree(state, self._state)

    def render(self) -> None:
        """Return None: these environments have no picture."""
        return
