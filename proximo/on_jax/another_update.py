"""The functions of a Learner that a program replaces (`change_learner`), with checks of what they return."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from proximo.config import Config
from proximo.errors import USES, UsageError, call_part
from proximo.on_jax.learner import Adam, Learner
from proximo.on_jax.parameters import Weights, pack
from proximo.part_checks import check_estimate, check_loss, kind_of
from proximo.types import Rollout


def changed_learner(learner: Learner, change: Callable[[Learner], Learner]) -> Learner:
    """Return what a program makes of a Learner.

    Raises:
        UsageError: It is not a Learner. When its functions are traced: they cannot be called, or return something else
            than docs/add-a-loss.md says.
    """
    changed = call_part("change_learner", change, learner)
    if not isinstance(changed, Learner):
        raise UsageError(f"change_learner returned {kind_of(changed)}. {USES['change_learner']}")
    if changed.estimate is not learner.estimate:
        changed = changed._replace(estimate=partial(_estimate, changed.estimate))
    if changed.gradient is not learner.gradient:  # it may have terms that are no sums over rows
        changed = changed._replace(gradient=partial(_gradient, changed.gradient), divisible=False)
    if changed.apply is not learner.apply:
        changed = changed._replace(apply=partial(_apply, changed.apply), skips=True)
    if changed.update is not learner.update:
        changed = changed._replace(update=partial(_update, changed.update), skips=True)
    return changed


def _estimate(estimate: Callable[..., Any], rollout: Rollout, cfg: Config) -> Array:
    advantage: Array = call_part("estimate", estimate, rollout, cfg)
    check_estimate(advantage, rollout.value.shape)
    return advantage


def _gradient(gradient: Callable[..., Any], learner: Learner, weights: Weights, *arguments: Any) -> Any:
    found = call_part("gradient", gradient, learner, weights, *arguments)
    if not (isinstance(found, tuple) and len(found) == 2):
        raise UsageError(f"gradient returned {_kinds(found)}. {USES['gradient']}")
    packed = jax.eval_shape(lambda: pack(weights)[0])
    if (given := _kinds(found[0])) != (expected := _kinds(packed)):
        raise UsageError(f"gradient returned a gradient of {given:.200}, and the weights are {expected:.200}. "
                         f"{USES['gradient']}")
    check_loss((jnp.zeros(()), found[1]), (Array, float), learner.cfg, "The gradient of change_learner")
    return found


def _apply(apply: Callable[..., Any], adam: Adam, gradient: Weights, learning_rate: Array, eps: float,
           max_grad_norm: float, count: Array | float) -> tuple[Adam, Array]:
    """Call a function in the place of apply_gradient. Nothing changes where `count` is 0 or a result is not finite."""
    found = call_part("apply", apply, adam, gradient, learning_rate, eps, max_grad_norm, count)
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Adam)) or jnp.ndim(found[1]):
        raise UsageError(f"apply returned {_kinds(found)}. {USES['apply']}")
    after, norm = found
    _check_kept("apply", adam, after)
    learned = jnp.asarray(count) > 0
    ok = adam.ok & (~learned | after.ok & jnp.isfinite(norm) & _are_finite(after.weights))
    kept = jax.tree.map(lambda new, old: jnp.where(ok & learned, new, old), after, adam)
    return kept._replace(ok=ok), jnp.asarray(norm, jnp.float32)


def _update(update: Callable[..., Any], learner: Learner, adam: Adam, *arguments: Any) -> tuple[Adam, dict[str, Array]]:
    """Call a function in the place of update() of learner.py. Nothing changes where a weight is not finite."""
    found = call_part("update", update, learner, adam, *arguments)
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Adam) and isinstance(found[1], dict)):
        raise UsageError(f"update returned {_kinds(found)}. {USES['update']}")
    after, stats = found
    _check_kept("update", adam, after)
    check_loss((jnp.zeros(()), {name: x for name, x in stats.items() if name != "grad_norm"}), (Array, float),
               learner.cfg, "The update of change_learner")
    finite = _are_finite(after.weights)
    kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, adam)
    return kept._replace(ok=adam.ok & after.ok & finite), stats


def _check_kept(name: str, adam: Adam, after: Adam) -> None:
    """Raise UsageError unless the arrays of two states have the same shapes and dtypes."""
    if wrong := [f"{name} returned {part} of {given:.200}, and it was {expected:.200}. {USES[name]}"
                 for part in Adam._fields
                 if (given := _kinds(getattr(after, part))) != (expected := _kinds(getattr(adam, part)))]:
        raise UsageError("\n".join(wrong))


def _are_finite(weights: Weights) -> Array:
    return jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(weights)]).all()


def _kinds(tree: Any) -> str:
    """Return dtype and shape of an array, those of a dict by name, and the class of anything else."""
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{name}: {_kinds(x)}" for name, x in sorted(tree.items())) + "}"
    if type(tree) is tuple:
        return f"({', '.join(map(_kinds, tree))})"
    return f"{tree.dtype} {tuple(tree.shape)}" if hasattr(tree, "dtype") else kind_of(tree)
