"""Shuffling of minibatches, and the number of operations of an update."""

import jax
import numpy as np
import pytest

from proximo.catalog import parts_of
from proximo.config import Config
from proximo.on_jax import parameters
from proximo.on_jax.learner import apply_gradient, minibatch_advantages, permutations, start_adam
from proximo.on_jax.pure_training import make_training


@pytest.mark.parametrize("rows", [1, 2, 3, 512, 513, 70_000])
def test_every_row_is_a_permutation(rows):
    """Also where sorting takes two and three rounds."""
    drawn = np.asarray(permutations(jax.random.key(1), 3, rows))
    assert drawn.dtype == np.int32 and np.array_equal(np.sort(drawn, axis=1), np.tile(np.arange(rows), (3, 1)))
    assert rows < 3 or not np.array_equal(drawn[0], drawn[1])


def test_permutations_are_uniform():
    """Pearson's chi-squared test of the 24 orders of four rows; 49.7 is the 99.9 % quantile for 23 degrees of freedom."""
    drawn = np.asarray(permutations(jax.random.key(2), 48_000, 4))
    counts = np.unique(drawn @ np.array([64, 16, 4, 1]), return_counts=True)[1]
    assert len(counts) == 24 and ((counts - 2000) ** 2 / 2000).sum() < 49.7


def test_large_permutations_keep_no_order():
    """With 70,000 rows one round of sorting uses only 15 random bits. Half of all neighbours must be in order."""
    drawn = np.asarray(permutations(jax.random.key(3), 1, 70_000))[0].astype(int)
    steps = np.diff(drawn)
    assert abs((steps > 0).mean() - 0.5) < 0.01 and (steps == 1).sum() < 10


def training_of(**fields):
    """Return the functions of training of a small run of CartPole-v1."""
    parts = parts_of("ppo", "jax")
    cfg = Config(framework="jax", engine="jax", num_envs=2, num_steps=4, num_minibatches=2, **fields)
    return make_training(cfg, parts.make_envs, parts.make_agent)


def test_adam_is_one_operation_for_any_number_of_parameters():
    """Counted in the traced update: a deeper network has no more square roots (of Adam's second moments)."""
    def square_roots(sizes):
        training = training_of(hidden_sizes=sizes)
        state = jax.eval_shape(training.init, jax.random.key(1))
        return str(jax.make_jaxpr(training.step)(state)).count(" sqrt ")

    assert square_roots((8, 8)) == square_roots((8, 8, 8, 8)) > 0


@pytest.mark.parametrize(("count", "ok"), [(0.0, True), (2.0, False)])
def test_a_gradient_that_is_not_finite_ends_training_if_it_has_a_row(count, ok):
    """A loss of a program may divide by its number of valid rows. On torch, a minibatch without one is left out."""
    adam = start_adam({"a": np.ones(3, np.float32)})
    after, _ = apply_gradient(adam, {"a": np.full(3, np.nan, np.float32)}, 0.5, 1e-5, 1.0, count)
    assert after.ok == ok and after.step == 0 and np.array_equal(after.weights["a"], np.ones(3))


def test_weights_of_a_large_network_are_not_copied_into_a_vector():
    """Counted in the traced update: no array has as many numbers as the network, while that of a small one is there."""
    def vectors(sizes):
        training = training_of(hidden_sizes=sizes)
        state = jax.eval_shape(training.init, jax.random.key(1))
        numbers = sum(x.size for x in state.adam.weights.values())
        return str(jax.make_jaxpr(training.step)(state)).count(f"f32[{numbers}]")

    assert vectors((32, 32)) > 0
    assert vectors((300, 300)) == 0


def test_packing_does_not_change_training(monkeypatch):
    """The same network as one vector and by name, to rounding, which the order of the sum of the norm changes."""
    def weights():
        training = training_of(hidden_sizes=(16, 16), max_grad_norm=0.1)
        state = jax.jit(training.init)(jax.random.key(1))
        for _ in range(3):
            state, _ = jax.jit(training.step)(state)
        return state.adam.weights

    vector = weights()
    monkeypatch.setattr(parameters, "LARGEST_VECTOR", 0)
    by_name = weights()
    assert vector.keys() == by_name.keys()
    for name, x in vector.items():
        np.testing.assert_allclose(by_name[name], x, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("norm_adv", ["minibatch", "batch"])
@pytest.mark.parametrize("recurrent", [False, True])
def test_equal_advantages_are_normalised_to_zero(norm_adv, recurrent):
    """As in torch: the rounding of their mean is not a deviation. Advantages that differ a little still have one."""
    cfg, valid = Config(norm_adv=norm_adv), np.ones((32, 4), bool)
    valid[3:5] = False
    index = np.arange(4 if recurrent else valid.size).reshape(1, 2, -1)

    def normalized(advantage):
        rows, _ = minibatch_advantages(advantage.astype(np.float32), valid, index, recurrent, cfg, lambda x: x)
        return np.asarray(rows)

    for value in (0.7, 12.34, -99.013, 1e-3):
        assert not normalized(np.full(valid.shape, value)).any()
    different = np.full(valid.shape, 12.34)
    different[::2] += 1e-4
    assert np.abs(np.abs(normalized(different)) - 1).max() < 0.2
