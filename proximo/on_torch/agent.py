"""Agents: a policy and a value function behind one calling convention (proximo.protocols.Agent)."""

from typing import Any

import torch
from torch import Tensor, nn

from proximo.protocols import Acted

State = tuple[Tensor, ...]


class SeparateAgent(nn.Module):
    """Two networks from the observation. Acting is cheap, so log-probabilities and values are computed in one pass
    after the rollout."""

    recurrent, evaluates_later = False, True

    def __init__(self, critic: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.critic, self.head = critic, head

    def initial_state(self, num_envs: int, device: torch.device | str = "cpu") -> State:
        return ()

    def forward(self, obs: Tensor, mask: Tensor | None, first: Tensor, state: State) -> tuple[Any, Tensor, State]:
        return self.head(obs, mask), self.critic(obs).squeeze(-1), state

    def act(self, obs: Tensor, mask: Tensor | None, first: Tensor, state: State, noise: Tensor) -> Acted:
        return Acted(self.head(obs, mask).sample(noise), state, None, None)

    def value(self, obs: Tensor, first: Tensor, state: State) -> Tensor:
        return self.critic(obs).squeeze(-1)

    def evaluate(self, obs: Tensor, mask: Tensor | None, action: Tensor) -> tuple[Tensor, Tensor]:
        return self.head(obs[:-1], mask).logprob(action), self.critic(obs).squeeze(-1)


class NoMemory(nn.Module):
    """The recurrent layer of a feed-forward agent: it returns its input and has no state."""

    def initial_state(self, num_envs: int, device: torch.device | str = "cpu") -> State:
        return ()

    def forward(self, features: Tensor, first: Tensor, state: State) -> tuple[Tensor, State]:
        return features, state


class SharedAgent(nn.Module):
    """One trunk under policy and value (detail 13), optionally with a recurrent layer (details 32-36), whose leading
    axes are (N,) in one step and (T, n) in a sequence. `act` returns what it has computed: the trunk is expensive."""

    evaluates_later = False

    def __init__(self, trunk: nn.Module, critic: nn.Module, head: nn.Module, memory: nn.Module | None = None) -> None:
        super().__init__()
        self.trunk, self.memory = trunk, NoMemory() if memory is None else memory
        self.critic, self.head, self.recurrent = critic, head, memory is not None

    def initial_state(self, num_envs: int, device: torch.device | str = "cpu") -> State:
        return self.memory.initial_state(num_envs, device)  # type: ignore[no-any-return, operator]

    def forward(self, obs: Tensor, mask: Tensor | None, first: Tensor, state: State) -> tuple[Any, Tensor, State]:
        features, state = self.memory(self.trunk(obs), first, state)
        return self.head(features, mask), self.critic(features).squeeze(-1), state

    def act(self, obs: Tensor, mask: Tensor | None, first: Tensor, state: State, noise: Tensor) -> Acted:
        dist, value, after = self(obs, mask, first, state)
        action = dist.sample(noise)
        return Acted(action=action, state=after, logprob=dist.logprob(action), value=value)

    def value(self, obs: Tensor, first: Tensor, state: State) -> Tensor:
        features, _ = self.memory(self.trunk(obs), first, state)
        return self.critic(features).squeeze(-1)
