"""Agents: a policy and a value function behind one calling convention (proximo.protocols.Agent)."""

from typing import Any

from flax import nnx
from jax import Array

from proximo.on_jax.row_parts import map_rows
from proximo.protocols import Acted

State = tuple[Array, ...]


class SeparateAgent(nnx.Module):
    """Two networks from the observation. Log-probabilities and values are computed in one pass after the rollout."""

    recurrent, evaluates_later = False, True

    def __init__(self, critic: nnx.Module, head: nnx.Module) -> None:
        self.critic, self.head = critic, head

    def initial_state(self, num_envs: int) -> State:
        return ()

    def __call__(self, obs: Array, mask: Array | None, first: Array, state: State) -> tuple[Any, Array, State]:
        return self.head(obs, mask), self.critic(obs).squeeze(-1), state

    def act(self, obs: Array, mask: Array | None, first: Array, state: State, noise: Array) -> Acted:
        return Acted(action=self.head(obs, mask).sample(noise), state=state, logprob=None, value=None)

    def value(self, obs: Array, first: Array, state: State) -> Array:
        return self.critic(obs).squeeze(-1)

    def evaluate(self, obs: Array, mask: Array | None, action: Array) -> tuple[Array, Array]:
        logprob = map_rows(lambda obs, mask, action: self.head(obs, mask).logprob(action), obs[:-1], mask, action)
        return logprob, map_rows(lambda obs: self.critic(obs).squeeze(-1), obs)


class NoMemory(nnx.Module):
    """The recurrent layer of a feed-forward agent: it returns its input and has no state."""

    def initial_state(self, num_envs: int) -> State:
        return ()

    def __call__(self, features: Array, first: Array, state: State) -> tuple[Array, State]:
        return features, state


class SharedAgent(nnx.Module):
    """One trunk, optionally followed by a recurrent layer, under policy and value (details 13 and 32-36).

    The trunk is expensive, so `act` returns log-probability and value too. Axes are (N,), or (T, n) for a sequence.
    """

    evaluates_later = False

    def __init__(self, trunk: nnx.Module, critic: nnx.Module, head: nnx.Module, memory: Any = None) -> None:
        self.trunk, self.memory = trunk, NoMemory() if memory is None else memory
        self.critic, self.head, self.recurrent = critic, head, memory is not None

    def initial_state(self, num_envs: int) -> State:
        state: State = self.memory.initial_state(num_envs)
        return state

    def __call__(self, obs: Array, mask: Array | None, first: Array, state: State) -> tuple[Any, Array, State]:
        features, state = self.memory(self.trunk(obs), first, state)
        return self.head(features, mask), self.critic(features).squeeze(-1), state

    def act(self, obs: Array, mask: Array | None, first: Array, state: State, noise: Array) -> Acted:
        dist, value, state = self(obs, mask, first, state)
        action = dist.sample(noise)
        return Acted(action=action, state=state, logprob=dist.logprob(action), value=value)

    def value(self, obs: Array, first: Array, state: State) -> Array:
        features, _ = self.memory(self.trunk(obs), first, state)
        return self.critic(features).squeeze(-1)
