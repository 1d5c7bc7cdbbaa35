"""Learning from one batch: minibatches, the gradient step, and when to stop."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from proximo.config import Config
from proximo.on_jax.networks import Weights
from proximo.on_jax.optimizer import Adam, apply_gradient
from proximo.on_jax.rollout import Rollout


class Batch(NamedTuple):
    """What one minibatch step reads: rows (T * N, ...) without memory, (T, N, ...) with."""

    obs: Array
    mask: Array | None
    first: Array | None  # read with memory only
    state: tuple[Array, ...]  # the memory's at t = 0, (N, memory_size) each
    action: Array
    logprob: Array
    value: Array
    ret: Array
    valid: Array


class Draws(NamedTuple):
    """All randomness of one update, drawn before it: E epochs of M minibatches of B rows (or environments)."""

    minibatch: Array  # (E, M, B) int32: rows, or environments
    noise: Array | None  # (E, M, B, k), or (E, M, T, B, k) with memory; None but for RPO


class Learner(NamedTuple):
    """What stays the same during a run: the agent as a function of its weights, the loss, the sum over ranks."""

    bound: Callable[[Weights], Any]
    loss_fn: Callable  # the signature of ppo_loss
    average: Callable  # adds an array (or a tree of them) over all ranks
    unroll: bool  # write the loops out


def flat_batch(rollout: Rollout, ret: Array, state: tuple[Array, ...], recurrent: bool) -> Batch:
    """The rollout as rows to pick from; whole environments stay together for a memory (detail 35)."""
    def rows(x: Array | None) -> Array | None:
        return x if recurrent or x is None else x.reshape(-1, *x.shape[2:])

    return Batch(rows(rollout.obs), rows(rollout.mask), rollout.first if recurrent else None, state,
                 rows(rollout.action), rows(rollout.logprob), rows(rollout.value), rows(ret), rows(rollout.valid))


def picked(x: Array, index: Array, axis: int) -> Array:
    """Rows that are known to exist."""
    return jnp.take(x, index, axis=axis, mode="clip")


def take(batch: Batch, index: Array, recurrent: bool) -> Batch:
    """The rows (environments, with memory) of one minibatch."""
    axis = 1 if recurrent else 0
    part = jax.tree.map(lambda x: picked(x, index, axis), batch._replace(state=()))
    return part._replace(state=tuple(picked(x, index, 0) for x in batch.state))


def permutations(key: Array, epochs: int, rows: int) -> Array:
    """(epochs, rows) int32: every row a shuffle of 0 ... rows - 1.

    XLA sorts plain integers several times faster than pairs on CPU, so random bits carry their place in the lowest
    bits; as often as it takes for equal bits, which keep their order, to be as rare as among wide ones."""
    width = max(rows - 1, 1).bit_length()
    order = jnp.broadcast_to(jnp.arange(rows, dtype=jnp.int32), (epochs, rows))
    for part in jax.random.split(key, math.ceil(2.5 * width / (32 - width))):
        drawn = jax.random.bits(part, (epochs, rows)) << width | jnp.arange(rows, dtype=jnp.uint32)
        place = jnp.sort(drawn, axis=1) & ((1 << width) - 1)
        order = jnp.take_along_axis(order, place.astype(jnp.int32), axis=1, mode="clip")
    return order


def draw(cfg: Config, agent: Any, shape: tuple[int, ...], shuffle: Array, rpo: Array) -> Draws:
    """Shuffled minibatches that cover the batch of `shape` (T, N) once an epoch (detail 6), of whole environments for a
    memory (detail 35), and the noise of learning, if any; from the keys `shuffle` and `rpo`."""
    rows, sequence = (shape[1], shape[:1]) if agent.recurrent else (shape[0] * shape[1], ())
    epochs, minibatches = cfg.update_epochs, cfg.num_minibatches
    index = permutations(shuffle, epochs, rows).reshape(epochs, minibatches, -1)
    return Draws(index, agent.head.learning_noise(rpo, epochs, minibatches, *sequence, index.shape[-1]))


def normalized_advantage(advantage: Array, valid: Array, index: Array, recurrent: bool, cfg: Config,
                         average: Callable) -> tuple[Array, Array]:
    """The advantages of every minibatch, (E, M, B) or (E, M, T, B), normalised (detail 7), and how many of their rows
    are valid over all ranks, (E, M), at least 1. Deviations are of the population (ddof 0), as in openai/baselines."""
    def every(x: Array) -> Array:
        return jnp.moveaxis(picked(x, index, 1), 0, 2) if recurrent else picked(x.reshape(-1), index, 0)

    rows, ok = every(advantage), every(valid)
    axes = tuple(range(2, rows.ndim))
    count, total = average((ok.sum(axes).astype(rows.dtype), jnp.where(ok, rows, 0.0).sum(axes)))  # (E, M)
    if cfg.norm_adv != "none":
        def pooled(x: Array) -> Array:  # every epoch covers the whole batch
            return jnp.broadcast_to(x.sum(1, keepdims=True), x.shape) if cfg.norm_adv == "batch" else x

        def wide(x: Array) -> Array:
            return x.reshape(*x.shape, *(1 for _ in axes))

        divisor = jnp.maximum(pooled(count), 1.0)
        apart = rows - wide(pooled(total) / divisor)
        squares = average(jnp.square(jnp.where(ok, apart, 0.0)).sum(axes))
        rows = apart / (wide(jnp.sqrt(pooled(squares) / divisor)) + 1e-8)
    return rows, jnp.maximum(count, 1.0)


def update(learner: Learner, adam: Adam, batch: Batch, advantage: Array, count: Array, draws: Draws,
           learning_rate: Array | float, clip_coef: Array | float, cfg: Config) -> tuple[Adam, dict[str, Array]]:
    """K epochs of minibatch steps; means over all minibatches that ran. Stops before the next epoch when an epoch's
    mean approx_kl exceeds target_kl, on all ranks alike (detail A3)."""
    def minibatch(adam: Adam, part: tuple) -> tuple[Adam, dict[str, Array]]:
        index, advantage, noise, count = part
        rows = take(batch, index, learner.bound(adam.weights).recurrent)

        def loss(weights: Weights) -> tuple[Array, dict[str, Array]]:
            dist, value, _ = learner.bound(weights)(rows.obs, rows.mask, rows.first, rows.state)
            dist = dist.shifted(noise)
            return learner.loss_fn(dist.logprob(rows.action), rows.logprob, value, rows.value, advantage, rows.ret,
                                   dist.entropy(), rows.valid, count, clip_coef, cfg)

        (_, stats), gradient = jax.value_and_grad(loss, has_aux=True)(adam.weights)
        adam, norm = apply_gradient(adam, learner.average(gradient), learning_rate, cfg.adam_eps, cfg.max_grad_norm)
        return adam, learner.average(stats) | {"grad_norm": norm}

    def epoch(adam: Adam, parts: tuple) -> tuple[Adam, dict[str, Array]]:
        adam, stats = lax.scan(minibatch, adam, parts, unroll=learner.unroll)
        return adam, {name: x.mean() for name, x in stats.items()}

    def epoch_unless_stopped(state: tuple[Adam, Array], parts: tuple) -> tuple[tuple[Adam, Array], tuple]:
        adam, stopped = state
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(epoch, adam, parts)[1])
        adam, stats = lax.cond(stopped, lambda: (adam, nothing), lambda: epoch(adam, parts))
        return (adam, stopped | (stats["approx_kl"] > cfg.target_kl)), (stats, ~stopped)

    parts = (draws.minibatch, advantage, draws.noise, count)
    if cfg.target_kl is None:
        adam, stats = lax.scan(epoch, adam, parts, unroll=learner.unroll)
        return adam, {name: x.mean() for name, x in stats.items()}
    (adam, _), (stats, ran) = lax.scan(epoch_unless_stopped, (adam, jnp.zeros((), bool)), parts, unroll=learner.unroll)
    return adam, {name: x.sum() / ran.sum() for name, x in stats.items()}


def explained_variance(value: Array, ret: Array, valid: Array, average: Callable) -> Array:
    """1 - Var[ret - value] / Var[ret] over valid rows of all ranks; NaN where returns do not vary (detail 12)."""
    def variance(x: Array) -> Array:
        mean = average(jnp.where(valid, x, 0.0).sum()) / count
        return average(jnp.where(valid, jnp.square(x - mean), 0.0).sum()) / count

    count = jnp.maximum(average(valid.sum()), 1)
    of_returns = variance(ret)
    return jnp.where(of_returns > 0, 1 - variance(ret - value) / of_returns, jnp.nan)
