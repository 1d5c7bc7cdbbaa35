"""Functions of many rows in parts, against the same functions of all rows at once."""

import jax
import numpy as np
import pytest

from proximo.catalog import parts_of
from proximo.config import Config
from proximo.on_jax import row_parts
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.row_parts import map_rows, number_of_parts, sum_rows
from proximo.on_jax.setup import first_state, make_inside_player
from tests.support.jax_adapter import compile_fast

_, make_envs, make_agent, *_ = parts_of("ppo", "jax")
WIDE = Config(framework="jax", engine="jax", num_envs=64, num_steps=4, num_minibatches=2, total_timesteps=1024,
              update_epochs=2, hidden_sizes=(8, 8), threads=1)


@pytest.mark.parametrize("rows,expected", [(1, 1), (1024, 1), (1025, 5), (2048, 2), (32768, 32), (33 * 2048, 66),
                                           (1500, 2), (2 * 1031, 1), (2053, 1)])
def test_parts_are_equal_and_of_at_most_1024_rows(rows, expected):
    """Unless they would have less than 256 rows, as where the number of rows is a prime or twice one."""
    assert number_of_parts(rows) == expected and rows % expected == 0


def test_a_gpu_gets_all_rows_at_once(monkeypatch):
    monkeypatch.setattr(row_parts, "on_cpu", lambda: False)
    assert number_of_parts(2**20) == 1


def test_results_are_those_of_all_rows(monkeypatch):
    """On trees with None, of integers that are exact in any order of summation."""
    monkeypatch.setattr(row_parts, "ROWS", 4)
    x, y = np.arange(24, dtype=np.float32).reshape(4, 3, 2), np.arange(12).reshape(4, 3)
    mapped = map_rows(lambda x, none, y: {"a": x[..., 0] + y, "none": none}, x, None, y)
    np.testing.assert_array_equal(mapped["a"], x[..., 0] + y)
    seen = []
    total = sum_rows(lambda x, none: (seen.append(x.shape), x.sum(0))[1], x.reshape(12, 2), None)
    np.testing.assert_array_equal(total, x.sum((0, 1)))
    assert {*seen} == {(4, 2)}


def one_iteration(loss_fn=ppo_loss):
    player = make_inside_player(WIDE, make_envs, make_agent, loss_fn)
    state, metrics = compile_fast(player.step)(first_state(player, 1, player.begin(0, None)))
    return state.adam, metrics.losses


def test_an_iteration_in_parts_equals_a_whole_one_up_to_rounding(monkeypatch):
    """Weights, moments and statistics. A loss of one's own gets whole minibatches: it may not be a sum over rows."""
    monkeypatch.setattr(row_parts, "ROWS", 16)
    seen = []

    def custom_loss(batch, cfg):
        seen.append(batch.advantage.shape)
        return ppo_loss(batch, cfg)

    for one, other in zip(jax.tree.leaves(one_iteration(custom_loss)), jax.tree.leaves(one_iteration()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert {*seen} == {(WIDE.minibatch_size,)}


def test_memory_of_a_wide_iteration_does_not_hold_the_activations_of_all_rows():
    """XLA's own count of bytes for intermediate results, where one layer of a minibatch takes 8 MiB."""
    cfg = Config(framework="jax", engine="jax", num_envs=2048, num_steps=32, num_minibatches=2, update_epochs=1,
                 total_timesteps=2**20, threads=1)

    player = make_inside_player(cfg, make_envs, make_agent, ppo_loss)
    step = compile_fast(player.step).lower(first_state(player, 1, player.begin(0, None))).compile()
    assert step.memory_analysis().temp_size_in_bytes < 48 * 2**20, "60 MiB with all rows at once"
