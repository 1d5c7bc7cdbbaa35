"""Functions of many rows in parts, against the same functions of all rows at once."""

import numpy as np
import pytest
import torch

from proximo.catalog import parts_of
from proximo.config import Config
from proximo.on_torch import parts
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.parts import evaluate_in_parts, gradient_in_parts, number_of_parts
from proximo.on_torch.train import train
from proximo.types import Minibatches

CPU = torch.device("cpu")
WIDE = Config(num_envs=64, num_steps=4, num_minibatches=2, total_timesteps=512, update_epochs=2, hidden_sizes=(8, 8),
              threads=1)


@pytest.mark.parametrize("rows,expected", [(1, 1), (2048, 1), (8192, 4), (33024, 24), (2 * 2053, 1), (4099, 1)])
def test_parts_are_equal_and_of_at_most_2048_rows(rows, expected):
    """Unless they would have less than 512 rows, as where the number of rows is a prime or twice one."""
    assert number_of_parts(rows, CPU) == expected and rows % expected == 0
    assert number_of_parts(rows, torch.device("cuda")) == 1


@pytest.mark.parametrize("masked", [False, True])
def test_a_rollout_is_evaluated_a_few_steps_at_a_time(monkeypatch, masked):
    """20 steps of 3 environments in parts of 8 or 10; the value of what follows the last step is there, too."""
    obs, action, seen = torch.arange(63.0).reshape(21, 3), torch.arange(60).reshape(20, 3), []
    mask = action % 2 if masked else None

    def evaluate(obs, mask, action):
        seen.append(len(action))
        return obs[:-1] + action + (0 if mask is None else mask), 2 * obs

    for rows, sizes in ((3, [8, 8, 4]), (30, [10, 10]), (60, [20])):
        monkeypatch.setattr(parts, "ROWS", rows)
        for one, other in zip(evaluate_in_parts(evaluate)(obs, mask, action), evaluate(obs, mask, action), strict=True):
            assert torch.equal(one, other)
        assert seen == [*sizes, 20]
        seen.clear()


def test_a_gradient_in_parts_is_that_of_all_rows():
    """Of integers that are exact in any order of summation."""
    x = torch.arange(24.0).reshape(4, 3, 2)

    def gradient(batch, minibatch, clip_coef):
        rows = batch[minibatch.index] * minibatch.advantage[:, None]
        return rows.sum(0) / minibatch.count, minibatch.advantage.sum()[None]

    whole = Minibatches(index=torch.arange(12).flip(0), advantage=torch.arange(12.0), count=torch.tensor(4.0), noise=None)
    for one, other in zip(gradient(x.flatten(0, 1), whole, None),
                          gradient_in_parts(gradient, 3)(x.flatten(0, 1), whole, None), strict=True):
        assert torch.equal(one, other)


def test_a_run_in_parts_equals_a_whole_one_up_to_rounding(monkeypatch):
    """A loss of one's own gets whole minibatches: it may not be a sum over rows."""
    _, make_envs, make_agent, _ = parts_of("ppo", "torch")
    monkeypatch.setattr(parts, "ROWS", 32)
    seen = []

    def own_loss(batch, cfg):
        seen.append(len(batch.advantage))
        return ppo_loss(batch, cfg)

    def run(cfg, loss_fn):
        return [*train(cfg, make_envs, make_agent, loss_fn)][-1]

    whole, divided = run(WIDE, own_loss), run(WIDE, ppo_loss)
    assert {*seen} == {1, WIDE.minibatch_size}  # 1: the names of the statistics
    for name, value in whole.weights().items():
        np.testing.assert_allclose(divided.weights()[name], value, atol=1e-5)
    assert divided.stats["losses/approx_kl"] == pytest.approx(whole.stats["losses/approx_kl"], rel=1e-2)
