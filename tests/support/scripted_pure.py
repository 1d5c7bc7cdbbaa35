"""The environments of scripted.py as a pure function of JAX."""

from typing import NamedTuple

import gymnasium
import jax.numpy as jnp
import numpy as np
from jax import Array

from proximo.protocols import Episode, Step
from tests.support.scripted import PERIOD


class ScriptedState(NamedTuple):
    """Where each environment stands, (N,) each."""

    actions: Array  # number of actions so far
    episode: Array  # number of episodes that ended
    played: Array  # steps in this episode
    ret: Array  # sum of rewards in this episode


class ScriptedPure:
    """Same-step environments; see proximo.protocols.PureEnv."""

    obs_shape, obs_dtype, action_space = (1,), np.dtype(np.float32), gymnasium.spaces.Discrete(2)
    observation_space = None
    players, metric_names = (), ()

    def __init__(self, patterns):
        self.patterns, self.num_envs = jnp.asarray(patterns), len(patterns)

    def observe(self, state):
        return (10 * state.episode + state.played).astype(jnp.float32)[:, None]

    def reset(self, key):
        zeros = jnp.zeros(self.num_envs, jnp.int32)
        state = ScriptedState(actions=zeros, episode=zeros, played=zeros, ret=jnp.zeros(self.num_envs, jnp.float32))
        no = jnp.zeros(self.num_envs, bool)
        return state, Step(obs=self.observe(state), first=~no, mask=None, reward=state.ret, terminated=no, truncated=no,
                           final_obs=self.observe(state), valid=~no, episode=Episode(no, state.ret, zeros), metrics={})

    def step(self, state, action):
        end = jnp.take_along_axis(self.patterns, (state.actions % PERIOD)[:, None], 1)[:, 0]
        reward = (state.actions + 1 + 0.5 * action).astype(jnp.float32)
        state = state._replace(actions=state.actions + 1, played=state.played + 1, ret=state.ret + reward)
        ended, final_obs = end > 0, self.observe(state)
        episode = Episode(finished=ended, ret=state.ret, length=state.played)
        state = state._replace(episode=state.episode + ended, played=jnp.where(ended, 0, state.played),
                               ret=jnp.where(ended, 0.0, state.ret))
        return state, Step(obs=self.observe(state), first=ended, mask=None, reward=reward, terminated=end == 1,
                           truncated=end == 2, final_obs=final_obs, valid=jnp.ones_like(ended), episode=episode,
                           metrics={})
