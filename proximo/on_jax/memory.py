"""A memory between trunk and heads: LSTM and GRU with torch's gates, names and double bias (details 32-34)."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from proximo.on_jax.networks import Layer, layer_init


class Cell(Layer):
    """One layer of an LSTM (gates in, forget, cell, out) or GRU (reset, update, new)."""

    weight_ih_l0: Any
    weight_hh_l0: Any
    bias_ih_l0: Any
    bias_hh_l0: Any

    def __init__(self, kind: str, features: int, memory_size: int):
        rows = (4 if kind == "lstm" else 3) * memory_size
        self.kind = kind
        self.describe({"weight_ih_l0": (rows, features), "weight_hh_l0": (rows, memory_size), "bias_ih_l0": (rows,),
                       "bias_hh_l0": (rows,)}, memory_size)

    def given(self, x: Array) -> Array:
        """The inputs' part of every gate, (..., features) -> (..., gates), for all steps at once."""
        return x @ self.weight_ih_l0[...].T + self.bias_ih_l0[...]

    def __call__(self, given: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        """One step from `state`, (N, memory_size) each; the output is the new state's first part."""
        kept = state[0] @ self.weight_hh_l0[...].T + self.bias_hh_l0[...]
        if self.kind == "lstm":
            i, f, g, o = jnp.split(given + kept, 4, axis=-1)
            cell = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
            return jax.nn.sigmoid(o) * jnp.tanh(cell), cell
        inputs, before = jnp.split(given, 3, axis=-1), jnp.split(kept, 3, axis=-1)
        reset, update = jax.nn.sigmoid(inputs[0] + before[0]), jax.nn.sigmoid(inputs[1] + before[1])
        new = jnp.tanh(inputs[2] + reset * before[2])
        return ((1 - update) * new + update * state[0],)


class Memory(nnx.Module):
    """An LSTM or GRU with orthogonal weights and zero biases (detail 32).

    The state is a tuple of (N, memory_size) arrays, zero at first (detail 33) and wherever an episode begins (34).
    """

    def __init__(self, kind: str, features: int, memory_size: int, orthogonal: bool = True):
        self.memory_size, self.parts = memory_size, 2 if kind == "lstm" else 1
        self.cell = layer_init(Cell(kind, features, memory_size), 1.0, 0.0, orthogonal)

    def initial_state(self, num_envs: int) -> tuple[Array, ...]:
        """Zeros, (num_envs, memory_size) each."""
        return tuple(jnp.zeros((num_envs, self.memory_size)) for _ in range(self.parts))

    def __call__(self, x: Array, first: Array, state: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
        """x (N, F), first (N,): one step; x (T, n, F), first (T, n): a sequence from `state` (detail 36)."""
        def step(state: tuple[Array, ...], row: tuple[Array, Array]) -> tuple[tuple[Array, ...], Array]:
            given, first = row
            state = self.cell(given, tuple(jnp.where(first[:, None], 0.0, part) for part in state))
            return state, state[0]

        given = self.cell.given(x)
        if first.ndim == 1:
            state, y = step(state, (given, first))
        else:
            state, y = lax.scan(step, state, (given, first))
        return y, state
