"""Checks of custom environments that are functions of JAX: the layout of their state, the rules of a Step."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from proximo.errors import EnvError, ProximoError, UsageError, place_of, with_place
from proximo.protocols import Array, PureEnv, Step


class NextStepState(NamedTuple):
    """The state of environments that reset one step after the end of an episode."""

    inner: Any  # that of the environments
    ended: Array  # (N,) bool, rows that the next step only resets


class CheckedPure:
    """A PureEnv where a step in which a row breaks a rule has the reward NaN: so has the gradient, which ends training.

    Compiled code cannot raise an exception. The rules are those that `CheckedEnvs` checks on the host: an episode is
    not terminated and truncated at once, what ends it is followed by a reset as `final_obs` says (without it, by a
    filler row, which no other row is), and a mask leaves a choice to every component of an action.

    Args:
        pure: The environments.
        starts: Of the components after the first, in the mask.
    """

    def __init__(self, pure: PureEnv, starts: np.ndarray) -> None:
        self._pure, self._starts = pure, starts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pure, name)

    def reset(self, key: Array) -> tuple[Any, Step]:
        state, step = self._pure.reset(key)
        if step.final_obs is not None or self._pure.players:
            return state, step
        return NextStepState(inner=state, ended=step.terminated | step.truncated), step

    def step(self, state: Any, action: Array) -> tuple[Any, Step]:
        import jax.numpy as jnp

        inner, ended = state if isinstance(state, NextStepState) else (state, None)
        after, step = self._pure.step(inner, action)
        wrong = self._breaks_a_rule(step)
        if ended is not None:
            wrong |= (step.first != ended) | (step.valid == ended)
            after = NextStepState(inner=after, ended=step.terminated | step.truncated)
        return after, step._replace(reward=jnp.where(wrong.any(), jnp.nan, step.reward))

    def _breaks_a_rule(self, step: Step) -> Array:
        """Return (N,) bool."""
        over = step.terminated | step.truncated
        wrong = step.terminated & step.truncated
        if step.final_obs is None:
            wrong |= step.first & step.valid
        elif not self._pure.players:
            wrong |= over & step.valid & ~step.first
        if step.mask is not None:
            import jax.numpy as jnp

            free = jnp.all(jnp.stack([part.any(1) for part in jnp.split(step.mask, self._starts, axis=1)]), axis=0)
            wrong |= ~(free | over) if step.final_obs is None else ~free
        return wrong


def state_difference(before: Any, after: Any) -> str:
    """Return where the state after a step has another structure, shape or dtype than before it, "" if nowhere.

    Args:
        before: The state, as `jax.eval_shape` returns it.
        after: That after a step.
    """
    import jax

    def leaves(state: Any) -> dict[str, str]:
        return {jax.tree_util.keystr(path): f"{leaf.dtype} {leaf.shape}{' of weak type' if leaf.weak_type else ''}"
                for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]}

    old, new = leaves(before), leaves(after)
    different = [f"state{name} is {new.get(name, 'missing')} instead of {old.get(name, 'missing')}"
                 for name in {**old, **new} if old.get(name) != new.get(name)]
    if different:
        return ", ".join(different[:3]) + (f" and {len(different) - 3} more" if len(different) > 3 else "")
    was, now = str(jax.tree.structure(before)), str(jax.tree.structure(after))
    return "" if was == now else f"{now:.100} instead of {was:.100}"


@contextmanager
def naming_environment(pure: Any, call: str) -> Iterator[None]:
    """Raise EnvError, which names the user's class, for what is raised while a call of the environments is traced.

    Args:
        pure: A PureEnv; its attribute `env`, where there is one, is what the user wrote.
        call: "reset" or "step".
    """
    env = getattr(pure, "env", None)
    name = f"{type(pure).__name__}.{call}()" if env is None else type(env).__name__
    try:
        with naming_traced_code():
            yield
    except UsageError as error:
        raise EnvError(str(error)) from error
    except ProximoError:
        raise
    except Exception as error:
        raise EnvError(f"{name} raised {with_place(error)}") from error


@contextmanager
def naming_traced_code() -> Iterator[None]:
    """Raise UsageError, which names the line, for user code that needs the value of a number while it is compiled."""
    import jax

    try:
        yield
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError,
            jax.errors.TracerIntegerConversionError) as error:
        raise UsageError(f"{place_of(error) or 'The program'} needs the value of a number of JAX, which is not known "
                         "while the function is compiled. Use jax.numpy: jnp.where instead of `if`, jnp.minimum "
                         "instead of min, jnp.cos instead of math.cos, jnp.tanh instead of np.tanh, and "
                         "jnp.asarray(TABLE)[index] for a table of numpy or a list.") from error
