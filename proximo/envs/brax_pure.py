"""A batch of raw Brax environments as a PureEnv: ends, first states and episode statistics inside the compiled step."""

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box

from proximo.envs.episodes import Running, count_episodes, start_episodes
from proximo.protocols import Episode, Step

EPISODE_LENGTH = 1000  # decisions after which an episode is cut, as in Brax's own training
BANK_SIZE = 1024  # first states kept ready at most
METRICS = ("consecutive_successes",)  # of a task's own metrics those that are charted


class BraxState(NamedTuple):
    """All that continues N environments."""

    env: Any  # Brax's State, batched (N, ...)
    bank: Any  # the same, (K, ...): first states of the episodes that begin
    key: Any  # (2,) uint32, the same for ever: every draw is folded with the number of steps played
    time: Any  # () int32, steps played
    running: Running


class BraxPure:
    """A PureEnv over a raw Brax environment (`env`: reset(key), step(state, action), action_size), without wrappers.

    Brax's AutoReset returns to one stored first state and loses the last observation. Here an episode that ends hands
    out its last observation and begins again from a bank of K first states, renewed every `renew_every` steps.
    `terminated` is Brax's `done`; after EPISODE_LENGTH decisions without it the episode is `truncated`.
    """

    players: tuple[str, ...] = ()

    def __init__(self, env: Any, num_envs: int, renew_every: int, reward_scaler: float,
                 episode_length: int = EPISODE_LENGTH):
        import jax

        self.env, self.num_envs, self.renew_every = env, num_envs, renew_every
        self.reward_scaler, self.episode_length = reward_scaler, episode_length
        self.bank_size = min(num_envs, BANK_SIZE)
        shapes = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
        self.obs_shape, self.obs_dtype = shapes.obs.shape, np.dtype(np.float32)
        self.action_space = Box(-1.0, 1.0, (env.action_size,), np.float32)
        self.metric_names = tuple(name for name in METRICS if name in shapes.metrics)

    def reset(self, key: Any) -> tuple[BraxState, Step]:
        """All environments at first states of their own."""
        import jax

        parts = jax.lax.map(lambda part: self.first_states(key, -1 - part), self.parts())
        return self.begin(key, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), parts))

    def step(self, state: BraxState, action: Any) -> tuple[BraxState, Step]:
        """`action` (N, A), clipped to [-1, 1] here."""
        import jax

        number = state.time // self.renew_every
        bank = jax.lax.cond(state.time % self.renew_every == 0, lambda: self.first_states(state.key, number),
                            lambda: state.bank)
        return self.advance(state._replace(bank=bank), action)

    def parts(self) -> Any:
        """Numbers of the banks that together are N first states."""
        return np.arange(-(-self.num_envs // self.bank_size), dtype=np.int32)

    def first_states(self, key: Any, number: Any) -> Any:
        """Bank `number` of K first states; those from -1 downwards begin the run."""
        import jax

        keys = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, 0), number), self.bank_size)
        states = jax.vmap(self.env.reset)(keys)
        return jax.tree.map(lambda x: x.astype(x.dtype), states)  # no weak types, which would compile step() twice

    def begin(self, key: Any, env: Any) -> tuple[BraxState, Step]:
        """The first Step, from at least N first states."""
        import jax
        from jax import numpy as jnp

        bank = jax.tree.map(lambda x: x[:self.bank_size], env)
        env = jax.tree.map(lambda x: x[:self.num_envs], env)
        running = start_episodes(self.num_envs, jnp)
        state = BraxState(env, bank, jnp.asarray(key), jnp.zeros((), jnp.int32), running)
        no, zero = jnp.zeros(self.num_envs, bool), jnp.zeros(self.num_envs, jnp.float32)
        obs = env.obs.astype(jnp.float32)
        return state, Step(obs, ~no, None, zero, no, no, obs, ~no, Episode(no, running.ret, running.length),
                           dict.fromkeys(self.metric_names, zero * jnp.nan))

    def advance(self, state: BraxState, action: Any) -> tuple[BraxState, Step]:
        """One step; episodes that end begin again from the bank as it is."""
        import jax
        from jax import numpy as jnp

        after = jax.vmap(self.env.step)(state.env, jnp.clip(action, -1.0, 1.0))
        reward = after.reward.astype(jnp.float32)
        terminated = after.done.astype(bool)
        truncated = ~terminated & (state.running.length + 1 >= self.episode_length)
        over, valid = terminated | truncated, jnp.ones(self.num_envs, bool)
        running, episode = count_episodes(state.running, reward, over, valid, jnp)
        draw = jax.random.fold_in(jax.random.fold_in(state.key, 1), state.time)
        row = jax.random.randint(draw, (self.num_envs,), 0, self.bank_size)

        def begin_again(first: Any, now: Any) -> Any:
            ended = over.reshape(-1, *(1,) * (now.ndim - 1))
            return jnp.where(ended, first[row], now).astype(first.dtype)

        env = jax.tree.map(begin_again, state.bank, after)
        step = Step(env.obs.astype(jnp.float32), over, None, reward * self.reward_scaler, terminated, truncated,
                    after.obs.astype(jnp.float32), valid, episode,
                    {name: after.metrics[name].astype(jnp.float32) for name in self.metric_names})
        return BraxState(env, state.bank, state.key, state.time + 1, running), step
