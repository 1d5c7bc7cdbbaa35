"""Agents: one calling convention, agent(obs, mask, first, state) -> (dist, value, state), for every network."""

import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from torch import Tensor, nn

from proximo.config import Config
from proximo.errors import UsageError
from proximo.on_torch.distributions import CategoricalHead, GaussianHead, MultiCategoricalHead
from proximo.on_torch.networks import MLP, ImpalaCNN, Memory, NatureCNN, layer_init, mlp
from proximo.protocols import Acted

State = tuple[Tensor, ...]


class SeparateAgent(nn.Module):
    """Two networks from the observation: cheap to act with, so log-probabilities and values come after the rollout."""

    recurrent, evaluates_later = False, True

    def __init__(self, critic: nn.Module, head: nn.Module):
        super().__init__()
        self.critic, self.head = critic, head

    def initial_state(self, num_envs: int, device: Any = "cpu") -> State:
        return ()

    def forward(self, obs: Tensor, mask: Tensor | None, first: Tensor, state: State) -> tuple[Any, Tensor, State]:
        return self.head(obs, mask), self.critic(obs).squeeze(-1), state

    def act(self, obs: Tensor, mask: Tensor | None, first: Tensor, state: State, noise: Tensor) -> Acted:
        return Acted(self.head(obs, mask).sample(noise), state, None, None)

    def value(self, obs: Tensor, first: Tensor, state: State) -> Tensor:
        return self.critic(obs).squeeze(-1)

    def evaluate(self, obs: Tensor, mask: Tensor | None, action: Tensor) -> tuple[Tensor, Tensor]:
        """obs (T + 1, N, ...), the closing one last; mask and action (T, N, ...): logprob (T, N), value (T + 1, N)."""
        return self.head(obs[:-1], mask).logprob(action), self.critic(obs).squeeze(-1)


class SharedAgent(nn.Module):
    """One trunk under both heads: its features are dear, so acting hands logprob and value through."""

    recurrent, evaluates_later = False, False

    def __init__(self, trunk: nn.Module, critic: nn.Module, head: nn.Module):
        super().__init__()
        self.trunk, self.critic, self.head = trunk, critic, head

    def initial_state(self, num_envs: int, device: Any = "cpu") -> State:
        return ()

    def forward(self, obs: Tensor, mask: Tensor | None, first: Tensor, state: State) -> tuple[Any, Tensor, State]:
        features = self.trunk(obs)
        return self.head(features, mask), self.critic(features).squeeze(-1), state

    def act(self, obs: Tensor, mask: Tensor | None, first: Tensor, state: State, noise: Tensor) -> Acted:
        dist, value, state = self(obs, mask, first, state)
        action = dist.sample(noise)
        return Acted(action, state, dist.logprob(action), value)

    def value(self, obs: Tensor, first: Tensor, state: State) -> Tensor:
        return self.critic(self.trunk(obs)).squeeze(-1)


class RecurrentAgent(nn.Module):
    """A memory between trunk and heads (details 32-36). Leading axes (N,) are one step, (T, n) a sequence."""

    recurrent, evaluates_later = True, False

    def __init__(self, trunk: nn.Module, memory: Memory, critic: nn.Module, head: nn.Module):
        super().__init__()
        self.trunk, self.memory, self.critic, self.head = trunk, memory, critic, head

    def initial_state(self, num_envs: int, device: Any = "cpu") -> State:
        return self.memory.initial_state(num_envs, device)

    def forward(self, obs: Tensor, mask: Tensor | None, first: Tensor, state: State) -> tuple[Any, Tensor, State]:
        features, state = self.memory(self.trunk(obs), first, state)
        return self.head(features, mask), self.critic(features).squeeze(-1), state

    def act(self, obs: Tensor, mask: Tensor | None, first: Tensor, state: State, noise: Tensor) -> Acted:
        dist, value, state = self(obs, mask, first, state)
        action = dist.sample(noise)
        return Acted(action, state, dist.logprob(action), value)

    def value(self, obs: Tensor, first: Tensor, state: State) -> Tensor:
        features, _ = self.memory(self.trunk(obs), first, state)
        return self.critic(features).squeeze(-1)


def make_trunk(obs_shape: tuple[int, ...], obs_dtype: np.dtype, cfg: Config) -> tuple[nn.Module, int]:
    """The trunk that cfg.model names and the size of its features; UsageError where it does not fit the observation."""
    if cfg.model == "mlp":
        sizes = [math.prod(obs_shape), cfg.hidden_size, cfg.hidden_size]
        return MLP(sizes, obs_ndim=len(obs_shape), orthogonal=cfg.orthogonal_init), cfg.hidden_size
    least = 36 if cfg.model == "cnn" else 8
    if len(obs_shape) != 3 or obs_dtype != np.uint8 or min(obs_shape[1:]) < least:
        raise UsageError(f"--model {cfg.model} needs images (uint8, at least {least}x{least} pixels); {cfg.env_id} "
                         f"gives {obs_dtype} of shape {obs_shape}; use --model mlp")
    return (NatureCNN(obs_shape, 512, cfg.orthogonal_init), 512) if cfg.model == "cnn" else (ImpalaCNN(obs_shape), 256)


def make_head(network: Callable[[int], nn.Module], action_space: gym.Space,
              gaussian: Callable[[nn.Module, int], nn.Module] = GaussianHead) -> nn.Module:
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


def assemble(envs: Any, cfg: Config, gaussian: Callable[[nn.Module, int], nn.Module] = GaussianHead) -> nn.Module:
    """Trunk (--model), memory (--recurrent) and head (action space), joined: the networks of every variant.

    Weights are drawn from torch's generator, which train() seeds from stream "init" around this call."""
    def linear(size: int, std: float) -> nn.Module:
        return layer_init(nn.Linear(features, size), std, orthogonal=cfg.orthogonal_init)

    trunk, features = make_trunk(envs.obs_shape, envs.obs_dtype, cfg)
    if cfg.model == "mlp" and cfg.recurrent == "none" and not cfg.shared_network:
        hidden, ndim = [math.prod(envs.obs_shape), features, features], len(envs.obs_shape)
        critic = mlp([*hidden, 1], 1.0, ndim, cfg.orthogonal_init)
        head = make_head(lambda n: mlp([*hidden, n], 0.01, ndim, cfg.orthogonal_init), envs.action_space, gaussian)
        return SeparateAgent(critic, head)
    if cfg.recurrent != "none":
        memory = Memory(cfg.recurrent, features, cfg.memory_size, cfg.orthogonal_init)
        features = cfg.memory_size
        return RecurrentAgent(trunk, memory, linear(1, 1.0), make_head(lambda n: linear(n, 0.01), envs.action_space,
                                                                     gaussian))
    return SharedAgent(trunk, linear(1, 1.0), make_head(lambda n: linear(n, 0.01), envs.action_space, gaussian))
