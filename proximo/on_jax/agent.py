"""Agents: one calling convention, agent(obs, mask, first, state) -> (dist, value, state), for every network."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from flax import nnx
from jax import Array

from proximo.config import Config
from proximo.errors import UsageError
from proximo.on_jax.distributions import CategoricalHead, GaussianHead, MultiCategoricalHead
from proximo.on_jax.memory import Memory
from proximo.on_jax.networks import MLP, ImpalaCNN, Linear, NatureCNN, layer_init, mlp

State = tuple[Array, ...]


class Acted(NamedTuple):
    """One step of acting on (N,) rows; logprob and value are None where the agent evaluates a rollout at its end."""

    action: Array
    state: State
    logprob: Array | None
    value: Array | None


class SeparateAgent(nnx.Module):
    """Two networks from the observation: cheap to act with, so log-probabilities and values come after the rollout."""

    recurrent, evaluates_later = False, True

    def __init__(self, critic: nnx.Module, head: nnx.Module):
        self.critic, self.head = critic, head

    def initial_state(self, num_envs: int) -> State:
        return ()

    def __call__(self, obs: Array, mask: Array | None, first: Array, state: State) -> tuple[Any, Array, State]:
        return self.head(obs, mask), self.critic(obs).squeeze(-1), state

    def act(self, obs: Array, mask: Array | None, first: Array, state: State, noise: Array) -> Acted:
        return Acted(self.head(obs, mask).sample(noise), state, None, None)

    def value(self, obs: Array, first: Array, state: State) -> Array:
        return self.critic(obs).squeeze(-1)

    def evaluate(self, obs: Array, mask: Array | None, action: Array) -> tuple[Array, Array]:
        """obs (T + 1, N, ...), the closing one last; mask and action (T, N, ...): logprob (T, N), value (T + 1, N)."""
        return self.head(obs[:-1], mask).logprob(action), self.critic(obs).squeeze(-1)


class SharedAgent(nnx.Module):
    """One trunk under both heads: its features are dear, so acting hands logprob and value through."""

    recurrent, evaluates_later = False, False

    def __init__(self, trunk: nnx.Module, critic: nnx.Module, head: nnx.Module):
        self.trunk, self.critic, self.head = trunk, critic, head

    def initial_state(self, num_envs: int) -> State:
        return ()

    def __call__(self, obs: Array, mask: Array | None, first: Array, state: State) -> tuple[Any, Array, State]:
        features = self.trunk(obs)
        return self.head(features, mask), self.critic(features).squeeze(-1), state

    def act(self, obs: Array, mask: Array | None, first: Array, state: State, noise: Array) -> Acted:
        dist, value, state = self(obs, mask, first, state)
        action = dist.sample(noise)
        return Acted(action, state, dist.logprob(action), value)

    def value(self, obs: Array, first: Array, state: State) -> Array:
        return self.critic(self.trunk(obs)).squeeze(-1)


class RecurrentAgent(nnx.Module):
    """A memory between trunk and heads (details 32-36). Leading axes (N,) are one step, (T, n) a sequence."""

    recurrent, evaluates_later = True, False

    def __init__(self, trunk: nnx.Module, memory: Memory, critic: nnx.Module, head: nnx.Module):
        self.trunk, self.memory, self.critic, self.head = trunk, memory, critic, head

    def initial_state(self, num_envs: int) -> State:
        return self.memory.initial_state(num_envs)

    def __call__(self, obs: Array, mask: Array | None, first: Array, state: State) -> tuple[Any, Array, State]:
        features, state = self.memory(self.trunk(obs), first, state)
        return self.head(features, mask), self.critic(features).squeeze(-1), state

    def act(self, obs: Array, mask: Array | None, first: Array, state: State, noise: Array) -> Acted:
        dist, value, state = self(obs, mask, first, state)
        action = dist.sample(noise)
        return Acted(action, state, dist.logprob(action), value)

    def value(self, obs: Array, first: Array, state: State) -> Array:
        features, _ = self.memory(self.trunk(obs), first, state)
        return self.critic(features).squeeze(-1)


def make_trunk(obs_shape: tuple[int, ...], obs_dtype: np.dtype, cfg: Config) -> tuple[nnx.Module, int]:
    """The trunk that cfg.model names and the size of its features; UsageError where it does not fit the observation."""
    if cfg.model == "mlp":
        sizes = [math.prod(obs_shape), cfg.hidden_size, cfg.hidden_size]
        return MLP(sizes, obs_ndim=len(obs_shape), orthogonal=cfg.orthogonal_init), cfg.hidden_size
    least = 36 if cfg.model == "cnn" else 8
    if len(obs_shape) != 3 or obs_dtype != np.uint8 or min(obs_shape[1:]) < least:
        raise UsageError(f"--model {cfg.model} needs images (uint8, at least {least}x{least} pixels); {cfg.env_id} "
                         f"gives {obs_dtype} of shape {obs_shape}; use --model mlp")
    return (NatureCNN(obs_shape, 512, cfg.orthogonal_init), 512) if cfg.model == "cnn" else (ImpalaCNN(obs_shape), 256)


def make_head(network: Callable[[int], nnx.Module], action_space: gym.Space,
              gaussian: Callable[[nnx.Module, int], nnx.Module] = GaussianHead) -> nnx.Module:
    """The head for an action space over `network(out_size)`; UsageError for a space no head fits."""
    if isinstance(action_space, gym.spaces.Discrete):
        return CategoricalHead(network(int(action_space.n)), int(action_space.n))
    if isinstance(action_space, gym.spaces.MultiDiscrete):
        return MultiCategoricalHead(network(int(action_space.nvec.sum())), action_space.nvec.flatten().tolist())
    if isinstance(action_space, gym.spaces.MultiBinary):
        choices = [2] * math.prod(action_space.shape)
        return MultiCategoricalHead(network(sum(choices)), choices)
    if isinstance(action_space, gym.spaces.Box):
        size = math.prod(action_space.shape)
        return gaussian(network(size), size)
    raise UsageError(f"no head fits actions of {action_space}; use Discrete, MultiDiscrete, MultiBinary or Box")


def assemble(envs: Any, cfg: Config, gaussian: Callable[[nnx.Module, int], nnx.Module] = GaussianHead) -> nnx.Module:
    """Trunk (--model), memory (--recurrent) and head (action space), joined: the networks of every variant.

    Weights are zero until networks.initial_weights draws them from stream "init"."""
    def linear(size: int, std: float) -> nnx.Module:
        return layer_init(Linear(features, size), std, orthogonal=cfg.orthogonal_init)

    trunk, features = make_trunk(envs.obs_shape, envs.obs_dtype, cfg)
    if cfg.model == "mlp" and cfg.recurrent == "none" and not cfg.shared_network:
        hidden, ndim = [math.prod(envs.obs_shape), features, features], len(envs.obs_shape)
        critic = mlp([*hidden, 1], 1.0, ndim, cfg.orthogonal_init)
        head = make_head(lambda size: mlp([*hidden, size], 0.01, ndim, cfg.orthogonal_init), envs.action_space,
                         gaussian)
        return SeparateAgent(critic, head)
    if cfg.recurrent != "none":
        memory = Memory(cfg.recurrent, features, cfg.memory_size, cfg.orthogonal_init)
        features = cfg.memory_size
        return RecurrentAgent(trunk, memory, linear(1, 1.0), make_head(lambda n: linear(n, 0.01), envs.action_space,
                                                                     gaussian))
    return SharedAgent(trunk, linear(1, 1.0), make_head(lambda n: linear(n, 0.01), envs.action_space, gaussian))
