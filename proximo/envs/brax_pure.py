"""Raw Brax environments as a batch: a PureEnv with ends, first states and statistics of episodes, and a VecEnv."""

from typing import Any, NamedTuple

import jax
import numpy as np
from gymnasium.spaces import Box
from jax import numpy as jnp

from proximo.envs.episodes import Running, count_episodes, start_episodes
from proximo.envs.pure import pack_tree, unpack_tree
from proximo.errors import EnvError
from proximo.protocols import Array, Episode, FrameStack, Play, Step

EPISODE_LENGTH = 1000  # steps after which an episode is truncated, as in Brax's own training
BANK_SIZE = 1024  # first states that are prepared at a time
METRICS = ("consecutive_successes",)  # those metrics of a task that are logged


class BraxState(NamedTuple):
    """All that continues N environments."""

    env: Any  # Brax's State, batched (N, ...)
    bank: Any  # the same, (K, ...): first states for episodes that begin
    key: Any  # (2,) uint32, never changes: the number of the step is folded into it for every draw
    time: Any  # () int32, number of steps so far
    running: Running


class BraxPure:
    """A PureEnv over a raw Brax environment, without Brax's wrappers.

    Brax's AutoReset returns to one stored first state and loses the last observation. Here an episode that ends returns
    its last observation, and the next one begins from a bank of K first states that is renewed regularly.
    `terminated` is Brax's `done`; an episode without it is `truncated` after `episode_length` steps.

    Args:
        env: Brax's environment: reset(key), step(state, action), action_size.
        num_envs: N.
        renew_every: Steps after which the bank is renewed.
        reward_scaler: Factor of the rewards that are returned; episode returns stay raw.
        episode_length: Steps after which an episode is truncated.
    """

    players: tuple[str, ...] = ()
    fills = False  # every row is valid
    observation_space = None

    def __init__(self, env: Any, num_envs: int, renew_every: int, reward_scaler: float,
                 episode_length: int = EPISODE_LENGTH) -> None:
        self.env, self.num_envs, self.renew_every = env, num_envs, renew_every
        self.reward_scaler, self.episode_length = reward_scaler, episode_length
        self.bank_size = min(num_envs, BANK_SIZE)
        shapes = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
        self.obs_shape, self.obs_dtype = shapes.obs.shape, np.dtype(np.float32)
        self.action_space = Box(-1.0, 1.0, (env.action_size,), np.float32)
        self.metric_names = tuple(name for name in METRICS if name in shapes.metrics)

    def reset(self, key: Any) -> tuple[BraxState, Step]:
        parts = jax.lax.map(lambda part: self.first_states(key, -1 - part), self.parts())
        return self.begin(key, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), parts))

    def step(self, state: BraxState, action: Any) -> tuple[BraxState, Step]:
        """See PureEnv.step. `action` is (N, A) and is clipped to [-1, 1]."""
        number = state.time // self.renew_every
        bank = jax.lax.cond(state.time % self.renew_every == 0, lambda: self.first_states(state.key, number),
                            lambda: state.bank)
        return self.advance(state._replace(bank=bank), action)

    def parts(self) -> Any:
        """Return the numbers of the banks that together have N first states, (ceil(N / K),)."""
        return np.arange(-(-self.num_envs // self.bank_size), dtype=np.int32)

    def first_states(self, key: Any, number: Any) -> Any:
        """Return bank `number` of K first states. Numbers below 0 are used when the run begins."""
        keys = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, 0), number), self.bank_size)
        states = jax.vmap(self.env.reset)(keys)
        return jax.tree.map(lambda x: x.astype(x.dtype), states)  # no weak types, which would compile step() twice

    def begin(self, key: Any, env: Any) -> tuple[BraxState, Step]:
        """Return the first state and Step. `env` has at least N first states."""
        bank = jax.tree.map(lambda x: x[:self.bank_size], env)
        env = jax.tree.map(lambda x: x[:self.num_envs], env)
        running = start_episodes(self.num_envs, jnp)
        state = BraxState(env=env, bank=bank, key=jnp.asarray(key), time=jnp.zeros((), jnp.int32), running=running)
        no, zero = jnp.zeros(self.num_envs, bool), jnp.zeros(self.num_envs, jnp.float32)
        obs = env.obs.astype(jnp.float32)
        episode = Episode(finished=no, ret=running.ret, length=running.length)
        return state, Step(obs=obs, first=~no, mask=None, reward=zero, terminated=no, truncated=no, final_obs=obs,
                           valid=~no, episode=episode, metrics=dict.fromkeys(self.metric_names, zero * jnp.nan))

    def advance(self, state: BraxState, action: Any) -> tuple[BraxState, Step]:
        """Step without renewing the bank. Episodes that end begin again from it."""
        after = jax.vmap(self.env.step)(state.env, jnp.clip(action, -1.0, 1.0))
        reward = after.reward.astype(jnp.float32)
        terminated = after.done.astype(bool)
        truncated = ~terminated & (state.running.length + 1 >= self.episode_length)
        over, valid = terminated | truncated, jnp.ones(self.num_envs, bool)
        running, episode = count_episodes(state.running, reward, over, valid, jnp)
        draw = jax.random.fold_in(jax.random.fold_in(state.key, 1), state.time)
        row = (jax.random.randint(draw, (), 0, self.bank_size) + jnp.arange(self.num_envs)) % self.bank_size

        def begin_again(first: Any, now: Any) -> Any:
            ended = over.reshape(-1, *(1,) * (now.ndim - 1))
            return jnp.where(ended, first[row], now).astype(first.dtype)

        env = jax.tree.map(begin_again, state.bank, after)
        step = Step(obs=env.obs.astype(jnp.float32), first=over, mask=None, reward=reward * self.reward_scaler,
                    terminated=terminated, truncated=truncated, final_obs=after.obs.astype(jnp.float32), valid=valid,
                    episode=episode,
                    metrics={name: after.metrics[name].astype(jnp.float32) for name in self.metric_names})
        return state._replace(env=env, time=state.time + 1, running=running), step


class BraxEnvs:
    """BraxPure as a VecEnv: the same numbers, compiled step by step.

    Actions may be torch tensors too, whose memory is shared through DLPack.

    Args:
        pure: The environments.
        env_id: The name of the task in errors.
        seed: Seed of the batch.
    """

    arrays = "jax"
    play: Play = "inside"
    keeps_state = True
    observation_space = None
    frames: FrameStack | None = None

    def __init__(self, pure: BraxPure, env_id: str, seed: int) -> None:
        self.pure, self._env_id = pure, env_id
        self.num_envs, self.obs_shape, self.obs_dtype = pure.num_envs, pure.obs_shape, pure.obs_dtype
        self.action_space, self.players, self.metric_names = pure.action_space, pure.players, pure.metric_names
        self.render_fps: float | None = 1 / pure.env.dt if hasattr(pure.env, "dt") else None
        self.key = self._to_device(jax.random.PRNGKey(seed))
        self._first_states, self._advance = jax.jit(pure.first_states), jax.jit(self._checked_advance)
        self._state: Any = None
        self._renderer: Any = None

    def reset(self) -> Step:
        """Begin all environments again from the seed."""
        parts = [self._first_states(self.key, -1 - int(part)) for part in self.pure.parts()]
        begun = self.pure.begin(self.key, jax.tree.map(lambda *part: jnp.concatenate(part), *parts))
        step: Step
        self._state, step = self._to_device(begun)
        return step

    def step(self, action: Array) -> Step:
        """See VecEnv.step. `action` is (N, A)."""
        time = int(self._state.time)
        if time % self.pure.renew_every == 0:
            bank = self._to_device(self._first_states(self._state.key, time // self.pure.renew_every))
            self._state = self._state._replace(bank=bank)
        self._state, step, finite = self._advance(self._state, self._to_jax(action))
        if not bool(finite.all()):  # waits for the step: `action`, which is shared with torch, may change from here on
            raise EnvError(f"environment {int(finite.argmin())} ({self._env_id}), step {time}: observation or "
                           "reward is not finite (NaN or infinity), because the action was not finite or the "
                           "simulation is not stable")
        return step

    def _checked_advance(self, state: BraxState, action: Any) -> tuple[BraxState, Step, Any]:
        state, step = self.pure.advance(state, action)
        after: Any = step.final_obs
        return state, step, jnp.isfinite(after).all(1) & jnp.isfinite(step.reward)

    def _to_jax(self, action: Array) -> Array:
        action = jnp.from_dlpack(action.detach().contiguous()) if hasattr(action, "detach") else jnp.asarray(action)
        shape = (self.num_envs, *self.action_space.shape)
        if action.shape != shape:
            raise EnvError(f"{self._env_id}: actions have shape {tuple(action.shape)}; they must have shape {shape}")
        return action

    def _to_device(self, tree: Any) -> Any:
        """Commit arrays to the device, as those from torch are. Otherwise functions would be compiled a second time."""
        return jax.device_put(tree, jax.local_devices()[0])

    def state(self) -> dict[str, Any]:
        """See VecEnv.state: every array by its path in the state."""
        return pack_tree(self._state)

    def load(self, state: dict[str, Any]) -> None:
        if self._state is None:
            self.reset()
        self._state = self._to_device(unpack_tree(state, self._state))

    def render(self) -> np.ndarray | None:
        """Return a picture (240, 320, 3) uint8 by MuJoCo's renderer; None for the task "fast", which has no body."""
        if not hasattr(self.pure.env, "sys"):
            return None
        import mujoco

        model, body = self.pure.env.sys.mj_model, self._state.env.pipeline_state
        if self._renderer is None:
            self._renderer = mujoco.Renderer(model, height=240, width=320)
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = np.asarray(body.q[0]), np.asarray(body.qd[0])
        mujoco.mj_forward(model, data)
        self._renderer.update_scene(data, camera=0 if model.ncam else -1)
        return self._renderer.render()

    def close(self) -> None:
        """Close the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
