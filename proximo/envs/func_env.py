"""Functional environments: Gymnasium's FuncEnv, one environment as pure functions of JAX, as a batch that resets."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from proximo.config import Config
from proximo.envs.arrays.image_axes import channels_first, image_axes, stored_shape
from proximo.envs.arrays.obs_layout import narrow_dtype, obs_layout
from proximo.envs.custom.attributes import check_no_effect
from proximo.envs.custom.func_checks import check_func_env, mask_row, observed_arrays
from proximo.envs.custom.pure import state_difference
from proximo.envs.episodes import Running, count_episodes, start_episodes
from proximo.envs.pure import PureVec, cond_of_any
from proximo.errors import UsageError
from proximo.protocols import Episode, Step


class FuncEnv(Protocol):
    """What is read of a `gymnasium.experimental.functional.FuncEnv`; another class with the same members works, too.

    Pictures need the functions `render_init`, `render_image` and `render_close` as well, and may have
    `metadata["render_fps"]`. All functions are of one environment. A state is any pytree of arrays, `rng` a key of JAX.
    """

    observation_space: Any  # the gymnasium space: a Box, or a Dict of vectors of floats
    action_space: Any  # the gymnasium space

    def initial(self, rng: Any) -> Any:
        """Return the first state of an episode."""
        ...

    def transition(self, state: Any, action: Any, rng: Any) -> Any:
        """Return the state that follows."""
        ...

    def observation(self, state: Any, rng: Any) -> Any:
        """Return the observation of a state, with the shape or the keys of `observation_space`."""
        ...

    def reward(self, state: Any, action: Any, next_state: Any, rng: Any) -> Any:
        """Return the reward of a transition, ()."""
        ...

    def terminal(self, state: Any, rng: Any) -> Any:
        """Return whether a state ends the episode, () bool. A time limit is no such state."""
        ...


class FuncState(NamedTuple):
    """All that continues N environments."""

    inner: Any  # their states, with a first axis of N
    running: Running
    key: Array


class FuncPure:
    """N copies of a functional environment as a PureEnv that resets in the same step.

    Each function that takes `rng` has its own key in every step and environment. Images get their channels first.

    Args:
        env: The environment.
        num_envs: N.
        max_episode_steps: Steps after which an episode is truncated; None: never.

    Raises:
        UsageError: See check_func_env.
    """

    players: tuple[str, ...] = ()
    fills = False  # every row is valid
    metric_names: tuple[str, ...] = ()

    def __init__(self, env: FuncEnv, num_envs: int, max_episode_steps: int | None = None) -> None:
        check_func_env(env, max_episode_steps)
        self.env, self.num_envs, self._limit = env, num_envs, int(max_episode_steps or 0)  # 0: no limit
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self._axes, layout = image_axes(env.observation_space), obs_layout(env.observation_space)
        shape = (layout.size,) if layout else tuple(env.observation_space.shape or ())
        self.obs_shape = stored_shape(self._axes, shape)
        self.obs_dtype = layout.dtype if layout else narrow_dtype(np.dtype(env.observation_space.dtype))
        self._to_env = _action_of(env.action_space)
        self._canvas: Any = None  # of render_init

    def reset(self, key: Array) -> tuple[FuncState, Step]:
        key, own = jax.random.split(key)
        inner, obs = self._begin(own)
        running, no = start_episodes(self.num_envs, jnp), jnp.zeros(self.num_envs, bool)
        step = Step(obs=obs, first=~no, mask=self._mask(inner), reward=running.ret, terminated=no, truncated=no,
                    final_obs=obs, valid=~no, episode=Episode(finished=no, ret=running.ret, length=running.length),
                    metrics={})
        return FuncState(inner=inner, running=running, key=key), step

    def step(self, state: FuncState, action: Array) -> tuple[FuncState, Step]:
        """See PureEnv.step. UsageError if a function of the environment returns something else."""
        key, own, first = jax.random.split(state.key, 3)
        after, final_obs, reward, terminated = jax.vmap(self._play)(state.inner, self._to_env(action), self._keys(own))
        if difference := state_difference(state.inner, after):
            raise UsageError(f"{type(self.env).__name__}.transition() returned a state of another structure, shape or "
                             f"dtype than initial(): {difference}. All states need those of initial(); N "
                             "environments have a first axis of N.")
        late = state.running.length + 1 >= self._limit if self._limit else jnp.zeros(self.num_envs, bool)
        truncated = ~terminated & late
        over, valid = terminated | truncated, jnp.ones(self.num_envs, bool)
        running, episode = count_episodes(state.running, reward, over, valid, jnp)

        def begin_again(over: Array, first: Array, *ended: Any) -> Any:
            def choose(new: Array, old: Array) -> Array:
                return jax.vmap(jnp.where)(over, new, old)

            return jax.tree.map(choose, self._begin(first), ended)

        inner, obs = cond_of_any(over.any(), begin_again, lambda over, first, *kept: kept, over, first, after,
                                 final_obs)
        step = Step(obs=obs, first=over, mask=self._mask(inner), reward=reward, terminated=terminated,
                    truncated=truncated, final_obs=final_obs, valid=valid, episode=episode, metrics={})
        return FuncState(inner=inner, running=running, key=key), step

    def render(self, state: FuncState) -> np.ndarray | None:
        """Return the picture of the first environment, (H, W, 3) uint8; None if it has no `render_image`."""
        env: Any = self.env
        if not hasattr(env, "render_image"):
            return None
        try:
            if self._canvas is None:
                self._canvas = env.render_init()
            self._canvas, picture = env.render_image(jax.tree.map(lambda x: x[0], state.inner), self._canvas)
        except NotImplementedError:  # by the class of Gymnasium
            return None
        return np.asarray(picture)

    def close(self) -> None:
        """Close what pictures are drawn on."""
        env: Any = self.env
        if self._canvas is not None:
            env.render_close(self._canvas)
            self._canvas = None  # another batch of these environments may draw

    def _keys(self, key: Array) -> Array:
        return jax.random.split(key, self.num_envs)

    def _begin(self, key: Array) -> tuple[Any, Array]:
        """Return first states and their observations."""
        def begin(key: Array) -> tuple[Any, Array]:
            own, sensor = jax.random.split(key)
            inner = _without_weak_types(self.env.initial(own))
            return inner, self._observe(inner, sensor)

        return jax.vmap(begin)(self._keys(key))

    def _play(self, state: Any, action: Array, key: Array) -> tuple[Any, Array, Array, Array]:
        """Step one environment. Returns its next state, the observation, the reward and whether it terminated."""
        keys = jax.random.split(key, 4)
        after = _without_weak_types(self.env.transition(state, action, keys[0]))
        return (after, self._observe(after, keys[1]),
                self._number("reward", self.env.reward(state, action, after, keys[2])).astype(jnp.float32),
                self._number("terminal", self.env.terminal(after, keys[3])).astype(bool))

    def _observe(self, state: Any, key: Array) -> Array:
        """Return the observation of a state as the policy gets it; UsageError if the space describes another one."""
        parts = observed_arrays(self.env, self.env.observation(state, key))
        whole = isinstance(self.observation_space, spaces.Box)
        found = parts[0] if whole else jnp.concatenate([part.ravel() for part in parts])
        return channels_first(self._axes, jnp.asarray(found, self.obs_dtype))

    def _number(self, name: str, given: Any) -> Array:
        """Return what a function returned; UsageError if it is not one number, or not one of a flag."""
        found, call = jnp.asarray(given), f"{type(self.env).__name__}.{name}()"
        if found.shape:
            raise UsageError(f"{call} returned an array of shape {found.shape}. Return one number: the functions are "
                             "called for one environment.")
        if name == "terminal" and found.dtype.kind not in "biu":
            raise UsageError(f"{call} returned {found.dtype}. Return whether the state ends the episode, as bool, such "
                             "as state[\"steps\"] >= 100.")
        return found

    def _mask(self, inner: Any) -> Array | None:
        """Return what the states allow, (N, A) bool; None if they do not say."""
        look: Callable[[Any], dict[str, Any]] = getattr(self.env, "state_info", lambda state: {})

        def read(state: Any) -> Array | None:
            mask = look(state).get("action_mask")
            return None if mask is None else mask_row(self.env, mask)

        return jax.vmap(read, axis_size=self.num_envs)(inner)


def from_func_env(env: FuncEnv, max_episode_steps: int | None = None) -> Callable[[Config, Sequence[int]], PureVec]:
    """Make the function that `make_envs=` of `proximo.train`, `sweep`, `evaluate` and others takes.

    Args:
        env: One environment as functions, such as a subclass of `gymnasium.experimental.functional.FuncEnv`.
        max_episode_steps: Steps after which an episode is truncated; None: never.

    Returns:
        (cfg, seeds) -> a batch of `len(seeds)` environments.

    Raises:
        UsageError: See check_func_env. What is returned raises it for settings that have no effect here.
    """
    made = {1: (_attributes(env), FuncPure(env, 1, max_episode_steps))}  # raises before training

    def make_envs(cfg: Config, seeds: Sequence[int]) -> PureVec:
        check_no_effect(cfg, "from_func_env", ("auto", "jax"))
        rows, now = len(seeds), _attributes(env)
        before, pure = made.get(rows, (None, None))  # JAX compiles the methods of one object once
        if pure is None or before is None or before.keys() != now.keys() or any(before[x] is not now[x] for x in now):
            pure = FuncPure(env, rows, max_episode_steps)
            made[rows] = now, pure
        envs = PureVec(pure, seeds[0], close=pure.close)
        envs.render_fps = getattr(env, "metadata", {}).get("render_fps")
        return envs

    return make_envs


def _attributes(env: Any) -> dict[str, Any]:
    return dict(getattr(env, "__dict__", {}))


def _action_of(space: gymnasium.Space[Any]) -> Callable[[Array], Array]:
    """Return the function from actions of the policy, (N, ...), to those of the space: with its start and bounds."""
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        start = np.asarray(space.start, np.int32)
        return lambda action: action + start
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
        return lambda action: jnp.clip(action, low, high)
    return lambda action: action


def _without_weak_types(state: Any) -> Any:
    """Return a state whose arrays have fixed dtypes: those of numbers of Python would change with what is added."""
    def fixed(x: Any) -> Array:
        x = jnp.asarray(x)
        return jax.lax.convert_element_type(x, x.dtype) if x.weak_type else x

    return jax.tree.map(fixed, state)
