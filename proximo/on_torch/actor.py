"""A trained torch agent that acts on numpy arrays, for models, evaluation and videos."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from proximo.config import Config
from proximo.models.weights import check_weights


class Actor:
    """`spec` has obs_shape, obs_dtype and action_space; `weights` are by parameter name. FilesError if these misfit."""

    def __init__(self, make_agent: Callable, spec: Any, cfg: Config, weights: dict[str, np.ndarray]):
        with torch.random.fork_rng(devices=[]):
            self.agent = make_agent(spec, cfg).eval()
        expected = {name: tuple(p.shape) for name, p in self.agent.named_parameters()}
        check_weights(expected, {name: x.shape for name, x in weights.items()})
        with torch.no_grad():
            for name, p in self.agent.named_parameters():
                p.copy_(torch.from_numpy(weights[name]))

    def initial_state(self, num_envs: int) -> tuple:
        """The memory before anything was seen."""
        return self.agent.initial_state(num_envs)

    def act(self, obs: np.ndarray, mask: np.ndarray | None, first: np.ndarray, state: tuple,
            noise_seed: int | None) -> tuple[np.ndarray, tuple]:
        """(N, *obs_shape) -> actions (N, ...) as the policy gives them; `noise_seed` None takes the likeliest."""
        with torch.no_grad():
            tensor = torch.from_numpy(np.ascontiguousarray(obs))
            dist, _, state = self.agent(tensor, None if mask is None else torch.from_numpy(mask),
                                        torch.from_numpy(first), state)
            if noise_seed is None:
                return dist.mode().numpy(), state
            noise = self.agent.head.noise(torch.Generator().manual_seed(noise_seed), len(obs))
            return dist.sample(noise).numpy(), state
