"""A batch of raw Brax environments as a PureEnv: ends, first states and episode statistics inside the compiled step."""

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box

from proximo.envs.episodes import Running, count_episodes, start_episodes
from proximo.protocols import Episode, Step

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
    observation_space = None

    def __init__(self, env: Any, num_envs: int, renew_every: int, reward_scaler: float,
                 episode_length: int = EPISODE_LENGTH) -> None:
        import jax

        self.env, self.num_envs, self.renew_every = env, num_envs, renew_every
        self.reward_scaler, self.episode_length = reward_scaler, episode_length
        self.bank_size = min(num_envs, BANK_SIZE)
        shapes = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
        self.obs_shape, self.obs_dtype = shapes.obs.shape, np.dtype(np.float32)
        self.action_space = Box(-1.0, 1.0, (env.action_size,), np.float32)
        self.metric_names = tuple(name for name in METRICS if name in shapes.metrics)

    def reset(self, key: Any) -> tuple[BraxState, Step]:
        import jax

        parts = jax.lax.map(lambda part: self.first_states(key, -1 - part), self.parts())
        return self.begin(key, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), parts))

    def step(self, state: BraxState, action: Any) -> tuple[BraxState, Step]:
        """See PureEnv.step. `action` is (N, A) and is clipped to [-1, 1]."""
        import jax

        number = state.time // self.renew_every
        bank = jax.lax.cond(state.time % self.renew_every == 0, lambda: self.first_states(state.key, number),
                            lambda: state.bank)
        return self.advance(state._replace(bank=bank), action)

    def parts(self) -> Any:
        """Return the numbers of the banks that together have N first states, (ceil(N / K),)."""
        return np.arange(-(-self.num_envs // self.bank_size), dtype=np.int32)

    def first_states(self, key: Any, number: Any) -> Any:
        """Return bank `number` of K first states. Numbers below 0 are used when the run begins."""
        import jax

        keys = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, 0), number), self.bank_size)
        states = jax.vmap(self.env.reset)(keys)
        return jax.tree.map(lambda x: x.astype(x.dtype), states)  # no weak types, which would compile step() twice

    def begin(self, key: Any, env: Any) -> tuple[BraxState, Step]:
        """Return the first state and Step. `env` has at least N first states."""
        import jax
        from jax import numpy as jnp

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
        import jax
        from jax import numpy as jnp

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
