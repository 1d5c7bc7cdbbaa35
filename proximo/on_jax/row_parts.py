"""Working through many rows in parts whose intermediate results stay in the cache of a CPU core.

XLA writes the activations of all rows to memory before the next layer reads them. For tens of thousands of rows that
takes longer than the arithmetic (benchmarks/parts.py).
"""

import math
from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from proximo.on_jax.networks import on_cpu

ROWS = 1024  # of a part, at most


def number_of_parts(rows: int) -> int:
    """Return into how many equal parts the default device divides rows: 1 on anything but a CPU, otherwise the smallest
    number that leaves at most ROWS in each; 1 if that would leave less than a quarter.
    """
    if not on_cpu():
        return 1
    fewest = math.ceil(rows / ROWS)
    return next((parts for parts in range(fewest, 4 * fewest) if rows % parts == 0), 1)


def map_rows(function: Callable[..., Any], *rows: Any) -> Any:
    """Return function(*rows), computed part by part.

    Args:
        function: Treats every row alone.
        rows: Trees of arrays with two leading axes, of the same sizes T and N.

    Returns:
        A tree of arrays (T, N, ...).
    """
    steps, num_envs = jax.tree.leaves(rows)[0].shape[:2]
    if (parts := number_of_parts(steps * num_envs)) == 1:
        return function(*rows)
    divided = jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[2:]), rows)
    return jax.tree.map(lambda x: x.reshape(steps, num_envs, *x.shape[2:]), lax.map(lambda x: function(*x), divided))


def sum_rows(function: Callable[..., Any], *rows: Any) -> Any:
    """Return function(*rows) of a function whose result is the sum of its results for parts of the rows.

    Args:
        function: Returns a tree of arrays.
        rows: Trees of arrays with one leading axis of the same size.
    """
    if (parts := number_of_parts(jax.tree.leaves(rows)[0].shape[0])) == 1:
        return function(*rows)
    divided = jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[1:]), rows)
    return jax.tree.map(lambda x: x.sum(0), lax.map(lambda x: function(*x), divided))
