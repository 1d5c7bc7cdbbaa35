"""A trained agent that acts on numpy arrays, for models of networks that were written in JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from proximo.config import Config
from proximo.on_jax.parameters import fitting_weights, make_bind
from proximo.on_jax.train_step import key_data


class Actor:
    """A trained agent.

    Args:
        make_agent: (spec, cfg) -> the agent's module.
        spec: Anything with obs_shape, obs_dtype and action_space.
        cfg: The configuration that it was trained with.
        weights: Arrays by parameter name.

    Raises:
        FilesError: The weights do not fit the network.
    """

    def __init__(self, make_agent: Callable[..., Any], spec: Any, cfg: Config, weights: dict[str, Any]) -> None:
        self.agent, self._made_from = make_agent(spec, cfg), (make_agent, spec, cfg)
        self._weights = fitting_weights(self.agent, weights)
        self._bind = bind = make_bind(self.agent)
        head = self.agent.head

        def act(weights: Any, obs: Any, mask: Any, first: Any, state: tuple[Any, ...], key: Any) -> tuple[Any, Any]:
            dist, _, state = bind(weights)(obs, mask, first, state)
            return dist.mode() if key is None else dist.sample(head.noise(key, len(obs))), state

        self._act = jax.jit(act)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle an actor as what it is made from, because compiled functions cannot be pickled."""
        return Actor, (*self._made_from, self.weights())

    @property
    def module(self) -> Any:
        """Return the network, a flax.nnx.Module with its weights."""
        return self._bind(self._weights)

    def weights(self) -> dict[str, np.ndarray]:
        """Return copies of the weights by parameter name."""
        return {name: np.array(x) for name, x in self._weights.items()}

    def initial_state(self, num_envs: int) -> tuple[Any, ...]:
        """Return the state of the recurrent layer before the first step."""
        state: tuple[Any, ...] = self.agent.initial_state(num_envs)
        return state

    def act(self, obs: np.ndarray, mask: np.ndarray | None, first: np.ndarray, state: tuple[Any, ...],
            noise_seed: int | None) -> tuple[np.ndarray, tuple[Any, ...]]:
        """Choose actions (N, *action_shape) for observations (N, *obs_shape), before clipping to bounds.

        `noise_seed` decides the random choice; with None the most likely action is taken.
        """
        key = None if noise_seed is None else jax.random.wrap_key_data(jnp.asarray(key_data(noise_seed)))
        action, state = self._act(self._weights, obs, mask, first, state, key)
        return np.asarray(action), state

    def evaluate(self, obs: np.ndarray, mask: np.ndarray | None, first: np.ndarray, state: tuple[Any, ...],
                 action: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the values (N,), and the log-probabilities (N,) of actions (N, *action_shape), before this step."""
        dist, value, _ = self.module(obs, mask, first, state)
        return np.asarray(value), None if action is None else np.asarray(dist.logprob(jnp.asarray(action)))
