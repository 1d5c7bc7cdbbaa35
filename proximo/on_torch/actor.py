"""A trained agent that acts on numpy arrays, for models, evaluation and videos."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

from proximo.config import Config
from proximo.envs.machine.cores import default_threads
from proximo.on_torch.agent import SeparateAgent, SharedAgent
from proximo.on_torch.modes import copy_if_in_use
from proximo.on_torch.noise import seeded_agent, seeded_generator
from proximo.on_torch.snapshot import load_weights, named_weights


class Actor:
    """A trained agent.

    Args:
        make_agent: (spec, cfg) -> the agent's module.
        spec: Anything with obs_shape, obs_dtype and action_space.
        cfg: The configuration that it was trained with.
        weights: Arrays by name, of parameters and buffers.

    Raises:
        FilesError: The weights do not fit the network.
    """

    def __init__(self, make_agent: Callable[..., Any], spec: Any, cfg: Config, weights: dict[str, Any]) -> None:
        agent = copy_if_in_use(seeded_agent(make_agent, spec, cfg))  # has the constants of training
        self.agent = load_weights(agent.eval(), weights)
        self._threads = default_threads(cfg, 1)  # at most: a second one makes small networks slower

    @property
    def module(self) -> torch.nn.Module:
        """Return the network with its weights."""
        module: torch.nn.Module = self.agent
        return module

    def weights(self) -> dict[str, np.ndarray]:
        """Return copies of the weights by parameter name."""
        return named_weights(self.agent)

    def initial_state(self, num_envs: int) -> tuple[Any, ...]:
        """Return the state of the recurrent layer before the first step."""
        state: tuple[Any, ...] = self.agent.initial_state(num_envs)
        return state

    def act(self, obs: np.ndarray, mask: np.ndarray | None, first: np.ndarray, state: tuple[Any, ...],
            noise_seed: int | None) -> tuple[np.ndarray, tuple[Any, ...]]:
        """Choose actions (N, *action_shape) for observations (N, *obs_shape), before clipping to bounds.

        `noise_seed` decides the random choice; with None the most likely action is taken.
        """
        with acting_alone(self._threads):
            dist, state = policy(self.agent, to_tensor(obs), None if mask is None else to_tensor(mask),
                                 to_tensor(first), state)
            if noise_seed is None:
                return dist.mode().numpy(), state
            noise = self.agent.head.noise(seeded_generator(noise_seed), len(obs))
            return dist.sample(noise).numpy(), state

    def evaluate(self, obs: np.ndarray, mask: np.ndarray | None, first: np.ndarray, state: tuple[Any, ...],
                 action: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the values (N,), and the log-probabilities (N,) of actions (N, *action_shape), before this step."""
        with acting_alone(self._threads):
            dist, value, _ = self.agent(to_tensor(obs), None if mask is None else to_tensor(mask), to_tensor(first),
                                        state)
            return value.numpy(), None if action is None else dist.logprob(torch.from_numpy(action)).numpy()


def policy(agent: Any, obs: torch.Tensor, mask: torch.Tensor | None, first: torch.Tensor,
           state: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return distribution and state of a call of an agent, without the value where Proximo's `forward` computes it."""
    forward = getattr(agent.forward, "__func__", None)  # a class that builds on an agent of Proximo may have its own
    hooked = agent._forward_hooks or agent._forward_pre_hooks  # which see a whole call
    if forward is SeparateAgent.forward and not hooked:
        return agent.head(obs, mask), state
    if forward is SharedAgent.forward and not hooked:
        features, state = agent.memory(agent.trunk(obs), first, state)
        return agent.head(features, mask), state
    dist, _, state = agent(obs, mask, first, state)
    return dist, state


def to_tensor(x: np.ndarray) -> torch.Tensor:
    """Return an array as a tensor, copied where torch needs one of its own: read-only arrays and reversed axes."""
    return torch.from_numpy(x if x.flags.carray else np.require(x, requirements=["C", "W"]))


@contextmanager
def acting_alone(most: int) -> Iterator[None]:
    """Compute in float32, without gradients and with at most this many threads, whatever the program has set."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(before, most))
    try:
        with torch.no_grad(), torch.autocast("cpu", enabled=False) if torch.is_autocast_enabled("cpu") \
                else nullcontext():
            yield
    finally:
        torch.set_num_threads(before)
