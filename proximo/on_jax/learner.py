"""Learning from one batch: minibatches, the gradient, the clipped Adam step, and when to stop."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from proximo.config import Config
from proximo.on_jax.parameters import Weights, pack
from proximo.on_jax.row_parts import sum_rows
from proximo.types import Batch, Coefficients, LossInputs, Minibatches, Rollout

BETA1 = 0.9
BETA2 = 0.999
Reduce = Callable[[Any], Any]  # an array, or a tree of them, to its sum over all ranks


class Adam(NamedTuple):
    """All weights and the state of Adam (Kingma & Ba 2015, arXiv 1412.6980), as checkpoints have them."""

    weights: Weights
    exp_avg: Weights
    exp_avg_sq: Weights
    step: Array  # () int32, number of updates
    ok: Array  # () bool, False from the first gradient that is not finite; nothing changes from then on
    scale: Array  # () float32, factor of the learning rate (--desired-kl)


class Learner(NamedTuple):
    """What stays the same during a run."""

    cfg: Config  # of one rank
    agent: Any  # describes the network; its own weights are not used
    bind: Callable[[Weights], Any]  # the agent with these weights
    loss_fn: Callable[[LossInputs, Config], tuple[Array, dict[str, Array]]]
    all_reduce_sum: Reduce
    estimate: Callable[[Rollout, Config], Array]  # advantages (T, N); this and what follows, another update may replace
    gradient: Callable[..., tuple[Weights, dict[str, Array]]]  # see compute_gradient
    apply: Callable[..., tuple[Adam, Array]]  # see apply_gradient
    update: Callable[..., tuple[Adam, dict[str, Array]]]  # see update
    divisible: bool  # whether loss and gradient of a minibatch are the sums of those of its parts
    skips: bool = True  # leave out minibatches without a valid row; False: every one is expected to have one


def start_adam(weights: dict[str, Any]) -> Adam:
    """Return the state before the first update, with `weights` by parameter name."""
    weights = {name: jnp.asarray(x) for name, x in weights.items()}
    moments = optax.scale_by_adam(BETA1, BETA2).init(weights)
    return Adam(weights=weights, exp_avg=moments.mu, exp_avg_sq=moments.nu, step=moments.count,
                ok=jnp.ones((), bool), scale=jnp.ones(()))


def map_weights(adam: Adam, change: Callable[[Any], Any]) -> Adam:
    """Apply a function to the weights and to both moments."""
    return adam._replace(**{name: change(getattr(adam, name)) for name in ("weights", "exp_avg", "exp_avg_sq")})


def apply_gradient(adam: Adam, gradient: Weights, learning_rate: Array | float, eps: float,
                   max_grad_norm: float, count: Array | float = 1.0) -> tuple[Adam, Array]:
    """Clip the gradient and apply one step of Adam (details 3 and 11), unless `count`, of its rows, is 0.

    Returns the norm of the gradient too, a scalar.
    """
    norm = optax.tree.norm(gradient)
    ok = adam.ok & (jnp.isfinite(norm) | (count <= 0))
    shrink = jnp.minimum(max_grad_norm / (norm + 1e-6), 1.0)
    gradient = jax.tree.map(lambda g: g * shrink, gradient)
    moments = optax.ScaleByAdamState(adam.step, adam.exp_avg, adam.exp_avg_sq)
    direction, moments = optax.scale_by_adam(BETA1, BETA2, eps).update(gradient, moments)
    weights = jax.tree.map(lambda w, d: w - learning_rate * d, adam.weights, direction)
    moved = Adam(weights=weights, exp_avg=moments.mu, exp_avg_sq=moments.nu, step=moments.count, ok=ok,
                 scale=adam.scale)
    return jax.tree.map(lambda new, old: jnp.where(ok & (count > 0), new, old), moved, adam._replace(ok=ok)), norm


def make_batch(rollout: Rollout, ret: Array, state: tuple[Array, ...], recurrent: bool) -> Batch:
    """Flatten the rollout into rows; a recurrent agent keeps whole environments (detail 35)."""
    def rows(x: Array | None) -> Any:
        return x if recurrent or x is None else x.reshape(-1, *x.shape[2:])

    return Batch(obs=rows(rollout.obs), mask=rows(rollout.mask), first=rollout.first if recurrent else None,
                 state=state, action=rows(rollout.action), logprob=rows(rollout.logprob), value=rows(rollout.value),
                 ret=rows(ret), valid=rows(rollout.valid))


def take_rows(x: Array, index: Array, axis: int) -> Array:
    """Take rows without the check for indices out of bounds."""
    return jnp.take(x, index, axis=axis, mode="clip")


def select_minibatch(batch: Batch, index: Array, recurrent: bool) -> Batch:
    """Select the rows of one minibatch, or the environments for a recurrent agent."""
    axis = 1 if recurrent else 0
    part = jax.tree.map(lambda x: take_rows(x, index, axis), batch._replace(state=()))
    return part._replace(state=tuple(take_rows(x, index, 0) for x in batch.state))


def permutations(key: Array, epochs: int, rows: int) -> Array:
    """Return (epochs, rows) int32, each row a shuffle of 0 ... rows - 1.

    XLA sorts plain integers several times faster than pairs on CPU, so random bits carry their position in the lowest
    bits. Rows with equal bits keep their order: a pair of them is in 1.6 % of the shuffles of 512 rows.
    """
    width = max(rows - 1, 1).bit_length()
    order = jnp.broadcast_to(jnp.arange(rows, dtype=jnp.int32), (epochs, rows))
    for part in jax.random.split(key, math.ceil(2.5 * width / (32 - width))):
        drawn = jax.random.bits(part, (epochs, rows)) << width | jnp.arange(rows, dtype=jnp.uint32)
        place = jnp.sort(drawn, axis=1) & ((1 << width) - 1)
        order = jnp.take_along_axis(order, place.astype(jnp.int32), axis=1, mode="clip")
    return order


def minibatch_indices(cfg: Config, shape: tuple[int, ...], recurrent: bool, key: Array) -> Array:
    """Shuffle a batch of `shape` (T, N) once per epoch into minibatches (detail 6), of whole environments for a
    recurrent agent (detail 35). Returns (E, M, B) int32.
    """
    rows = shape[1] if recurrent else shape[0] * shape[1]
    return permutations(key, cfg.update_epochs, rows).reshape(cfg.update_epochs, cfg.num_minibatches, -1)


def minibatch_advantages(advantage: Array, valid: Array, index: Array, recurrent: bool, cfg: Config,
                         all_reduce_sum: Reduce) -> tuple[Array, Array]:
    """Divide advantages (T, N) into minibatches, and normalise each over its valid rows on all ranks (detail 7).

    Deviations are of the population (ddof 0), as in openai/baselines.

    Returns:
        The advantages of all minibatches, (E, M, B) or (E, M, T, n), and their numbers of valid rows, (E, M).
    """
    def select(x: Array) -> Array:
        return jnp.moveaxis(take_rows(x, index, 1), 0, 2) if recurrent else take_rows(x.reshape(-1), index, 0)

    rows, valid_rows = select(advantage), select(valid)
    axes = tuple(range(2, rows.ndim))
    count, total = all_reduce_sum((valid_rows.sum(axes).astype(rows.dtype),
                                   jnp.where(valid_rows, rows, 0.0).sum(axes)))  # (E, M)
    if cfg.norm_adv != "none":
        def pool(x: Array) -> Array:  # every epoch covers the whole batch
            return jnp.broadcast_to(x.sum(1, keepdims=True), x.shape) if cfg.norm_adv == "batch" else x

        def widen(x: Array) -> Array:
            return x.reshape(*x.shape, *(1 for _ in axes))

        divisor = jnp.maximum(pool(count), 1.0)
        centred = rows - widen(pool(total) / divisor)
        kept = jnp.where(valid_rows, centred, 0.0)
        squares, rest = map(pool, all_reduce_sum((jnp.square(kept).sum(axes), kept.sum(axes))))
        equal = squares * divisor <= 2 * jnp.square(rest)  # equal advantages leave the rounding of their mean
        rows = jnp.where(widen(equal), 0.0, centred / (widen(jnp.sqrt(squares / divisor)) + 1e-8))
    return rows, count


def compute_gradient(learner: Learner, weights: Weights, batch: Batch, minibatch: Minibatches,
                     coefficients: Coefficients) -> tuple[Weights, dict[str, Array]]:
    """Return the packed gradient of one minibatch, and the statistics of its loss."""
    rows = select_minibatch(batch, minibatch.index, learner.agent.recurrent)

    def loss(weights: Weights) -> tuple[Array, dict[str, Array]]:
        agent = learner.bind(weights)
        dist, value, _ = agent(rows.obs, rows.mask, rows.first, rows.state)
        dist = agent.head.perturbed(dist, minibatch.noise)
        return learner.loss_fn(LossInputs(
            logprob=dist.logprob(rows.action), old_logprob=rows.logprob, value=value, old_value=rows.value,
            advantage=minibatch.advantage, ret=rows.ret, entropy=dist.entropy(), valid=rows.valid,
            count=minibatch.count, agent=agent, rows=rows, dist=dist, **coefficients._asdict()), learner.cfg)

    (_, stats), gradient = jax.value_and_grad(loss, has_aux=True)(weights)
    return pack(gradient)[0], stats


def update(learner: Learner, adam: Adam, batch: Batch, minibatches: Minibatches, learning_rate: Array | float,
           coefficients: Coefficients) -> tuple[Adam, dict[str, Array]]:
    """Train for E epochs of M minibatches. Stop after an epoch whose mean approx_kl exceeds target_kl, on all ranks
    alike (detail A3). Returns means over all minibatches that ran and had a valid row too."""
    cfg, unroll, by_name = learner.cfg, learner.cfg.unrolls, pack(adam.weights)[1]

    def step(adam: Adam, minibatch: Minibatches) -> tuple[Adam, dict[str, Array]]:
        weights = by_name(adam.weights)

        def gradient_of(index: Array, advantage: Array, noise: Any) -> tuple[Weights, dict[str, Array]]:
            part = Minibatches(index=index, advantage=advantage, count=jnp.maximum(minibatch.count, 1.0), noise=noise)
            return learner.gradient(learner, weights, batch, part, coefficients)

        rows = minibatch.index, minibatch.advantage, minibatch.noise
        gradient, stats = sum_rows(gradient_of, *rows) if learner.divisible else gradient_of(*rows)
        gradient = learner.all_reduce_sum(gradient)
        count = minibatch.count if learner.skips else 1.0
        adam, norm = learner.apply(adam, gradient, learning_rate * adam.scale, cfg.adam_eps, cfg.max_grad_norm, count)
        return adam, learner.all_reduce_sum(stats) | {"grad_norm": norm}

    def epoch(adam: Adam, minibatches: Minibatches) -> tuple[Adam, dict[str, Array]]:
        adam, stats = lax.scan(step, adam, minibatches, unroll=unroll)
        learned = minibatches.count > 0
        stats = {name: jnp.where(learned, x, 0.0).sum() / learned.sum() for name, x in stats.items()}
        return adam._replace(scale=cfg.adapted_scale(adam.scale, stats.get("approx_kl"))), stats

    def epoch_unless_stopped(state: tuple[Adam, Array], minibatches: Minibatches) -> tuple[Any, Any]:
        adam, stopped = state
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(epoch, adam, minibatches)[1])
        adam, stats = lax.cond(stopped, lambda: (adam, nothing), lambda: epoch(adam, minibatches))
        return (adam, stopped | (stats["approx_kl"] > cfg.target_kl)), (stats, ~stopped)

    adam = map_weights(adam, lambda tree: pack(tree)[0])
    if cfg.target_kl is None:
        adam, stats = lax.scan(epoch, adam, minibatches, unroll=unroll)
        return map_weights(adam, by_name), {name: x.mean() for name, x in stats.items()}
    (adam, _), (stats, ran) = lax.scan(epoch_unless_stopped, (adam, jnp.zeros((), bool)), minibatches, unroll=unroll)
    return map_weights(adam, by_name), {name: x.sum() / ran.sum() for name, x in stats.items()}


def explained_variance(value: Array, ret: Array, valid: Array, all_reduce_sum: Reduce) -> Array:
    """Return 1 - Var[ret - value] / Var[ret] over the valid rows of all ranks; NaN if all returns are equal."""
    def mean(x: Array) -> Array:
        return all_reduce_sum(jnp.where(valid, x, 0.0).sum()) / count

    def variance(x: Array) -> Array:
        return mean(jnp.square(x - mean(x)))

    count = jnp.maximum(all_reduce_sum(valid.sum()), 1)
    variance_of_returns = variance(ret)
    rounding = jnp.square(mean(ret - mean(ret)))  # of the mean: equal returns are as far from it as their mean is
    varied = variance_of_returns > 2 * rounding
    return jnp.where(varied, 1 - variance(ret - value) / variance_of_returns, jnp.nan)
