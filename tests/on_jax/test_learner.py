"""The shuffles of minibatches."""

import jax
import numpy as np
import pytest

from proximo.on_jax.learner import permutations


@pytest.mark.parametrize("rows", [1, 2, 3, 512, 513, 70_000])
def test_every_row_is_a_permutation(rows):
    """Also where the rounds of sorting become two and three."""
    drawn = np.asarray(permutations(jax.random.key(1), 3, rows))
    assert drawn.dtype == np.int32 and np.array_equal(np.sort(drawn, axis=1), np.tile(np.arange(rows), (3, 1)))
    assert rows < 3 or not np.array_equal(drawn[0], drawn[1])


def test_permutations_are_uniform():
    """Pearson's chi-squared of the 24 orders of four rows, 48,000 draws; 49.7 is its 99.9 % point for 23 degrees."""
    drawn = np.asarray(permutations(jax.random.key(2), 48_000, 4))
    counts = np.unique(drawn @ np.array([64, 16, 4, 1]), return_counts=True)[1]
    assert len(counts) == 24 and ((counts - 2000) ** 2 / 2000).sum() < 49.7


def test_large_permutations_keep_no_order():
    """Of 70,000 rows only 15 bits decide in one round of sorting; neighbours must be in order half the time."""
    drawn = np.asarray(permutations(jax.random.key(3), 1, 70_000))[0].astype(int)
    steps = np.diff(drawn)
    assert abs((steps > 0).mean() - 0.5) < 0.01 and (steps == 1).sum() < 10
