"""A trained JAX agent that acts on numpy arrays, for models, evaluation and videos."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from proximo.config import Config
from proximo.errors import FilesError
from proximo.on_jax.networks import binder, named_parameters


class Actor:
    """`spec` has obs_shape, obs_dtype and action_space; `weights` are by parameter name, in torch's layout, whichever
    framework trained them. FilesError if they do not fit."""

    def __init__(self, make_agent: Callable, spec: Any, cfg: Config, weights: dict[str, np.ndarray]):
        self.agent = make_agent(spec, cfg)
        expected = {name: x.shape for name, x in named_parameters(self.agent).items()}
        found = {name: x.shape for name, x in weights.items()}
        if expected != found:
            differing = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
            raise FilesError("the weights are of another network: " + ", ".join(
                f"{name} is {found.get(name, 'missing')}, wanted {expected.get(name, 'none')}" for name in differing))
        self._weights = {name: jnp.asarray(x) for name, x in weights.items()}
        bound, head = binder(self.agent), self.agent.head

        def act(weights: Any, obs: Any, mask: Any, first: Any, state: tuple, key: Any) -> tuple:
            dist, _, state = bound(weights)(obs, mask, first, state)
            return dist.mode() if key is None else dist.sample(head.noise(key, len(obs))), state
        self._act = jax.jit(act)

    def initial_state(self, num_envs: int) -> tuple:
        """The memory before anything was seen."""
        return self.agent.initial_state(num_envs)

    def act(self, obs: np.ndarray, mask: np.ndarray | None, first: np.ndarray, state: tuple,
            noise_seed: int | None) -> tuple[np.ndarray, tuple]:
        """(N, *obs_shape) -> actions (N, ...) as the policy gives them; `noise_seed` None takes the likeliest."""
        key = None if noise_seed is None else jax.random.wrap_key_data(
            jnp.asarray(np.array([noise_seed >> 32, noise_seed & 0xFFFFFFFF], np.uint32)))
        action, state = self._act(self._weights, obs, mask, first, state, key)
        return np.asarray(action), state
