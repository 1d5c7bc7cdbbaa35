"""Speed without a clock: what XLA's cost analysis says of the compiled gradient of a minibatch, and of a rollout."""

from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.config import Config
from proximo.envs.pure import plain
from proximo.on_jax.advance import make_advance
from proximo.on_jax.learner import compute_gradient, make_batch
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.setup import make_learner, set_up
from proximo.on_jax.train_step import make_play
from proximo.types import Coefficients, Minibatches
from tests.on_jax.test_train import make_agent, make_envs

CFG = Config(framework="jax", engine="jax", num_envs=4, num_steps=128, threads=1)
OBS, ACTIONS, TOWERS = 4, 2, ([4, 64, 64, 2], [4, 64, 64, 1])


def cost(function, *args):
    """Return XLA's analysis of a compiled function; loops count as one turn."""
    return jax.jit(function).lower(*args).compile().cost_analysis()


def gradient_cost(rows):
    """Return the cost of the gradient of one minibatch of `rows` rows."""
    cfg = replace(CFG, num_minibatches=CFG.batch_size // rows)
    player, state = set_up(cfg, make_envs, make_agent, ppo_loss)
    learner = make_learner(cfg, player.agent, ppo_loss)
    rollout = jax.jit(make_play(learner, player.envs.pure, player.normalizer))(state).rollout
    batch, one = make_batch(rollout, rollout.value, (), recurrent=False), jnp.ones(())
    minibatch = Minibatches(index=jnp.arange(rows), advantage=jnp.ones(rows), count=one * rows, noise=None)

    def gradient(weights, batch, minibatch):
        return compute_gradient(learner, weights, batch, minibatch, Coefficients(one, one))

    return cost(gradient, state.adam.weights, batch, minibatch)


@pytest.mark.parametrize("rows", [64, 256])
def test_a_gradient_has_the_arithmetic_of_its_products(rows):
    """Two operations for each weight and row forward, four backward, of which the first layer needs two: nothing is
    computed twice. tanh is the only function that every unit needs; all others are a few per row."""
    weights = [a * b for sizes in TOWERS for a, b in pairwise(sizes)]
    first = sum(sizes[0] * sizes[1] for sizes in TOWERS)
    products, units = rows * (6 * sum(weights) - 2 * first), sum(sum(sizes[1:-1]) for sizes in TOWERS)
    found = gradient_cost(rows)
    assert products <= found["flops"] <= 1.1 * products
    assert rows * units <= found["transcendentals"] <= rows * (units + 20)


def test_the_memory_traffic_of_a_gradient_grows_with_the_rows():
    """Four times the rows move at most four times the bytes; per row 13,900 bytes were counted with JAX 0.10."""
    small, large = gradient_cost(64)["bytes accessed"], gradient_cost(256)["bytes accessed"]
    assert large <= 4 * small
    assert (large - small) / 192 <= 1.15 * 13_900


def test_a_rollout_has_the_arithmetic_of_acting_and_one_evaluation():
    """All observations and the closing one pass through both networks once; the actor alone acts at every step, which
    the analysis counts for the two steps that a turn of the loop has. Values of truncated steps are a branch."""
    player, state = set_up(CFG, make_envs, make_agent, ppo_loss)
    play = make_play(make_learner(CFG, player.agent, ppo_loss), player.envs.pure, player.normalizer)
    actor, critic = (sum(2 * a * b for a, b in pairwise(sizes)) for sizes in TOWERS)
    rows = CFG.batch_size
    expected = (rows + 4) * (actor + critic) + 2 * 4 * actor + rows * critic  # the branch too
    assert cost(play, state)["flops"] <= 1.1 * expected


def copies(function, *args):
    """Return how many arrays a compiled function copies; loops count as one turn."""
    return function.lower(*args).compile().as_text().count(" copy(")


def test_an_iteration_copies_few_arrays():
    """The options of compiler_options() leave out a fifth of the copies, also where a call has several iterations."""
    player, state = set_up(CFG, make_envs, make_agent, ppo_loss)
    several = make_advance(CFG, player)._run
    assert copies(player.iterate, state) <= 0.8 * copies(jax.jit(player.step, donate_argnums=0), state)
    assert copies(several, state, 1) <= 0.8 * copies(jax.jit(several.__wrapped__), state, 1)


def test_the_options_do_not_change_results():
    player, state = set_up(CFG, make_envs, make_agent, ppo_loss)
    expected, found = (jax.tree.leaves(jax.tree.map(plain, step(state))) for step in (jax.jit(player.step), player.iterate))
    assert all(map(np.array_equal, found, expected))
