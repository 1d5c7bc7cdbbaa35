"""Environments that are pure functions of JAX, stepped one by one; and their state as a dict of arrays."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from proximo.errors import UsageError
from proximo.protocols import Array, FrameStack, Play, PureEnv, Step


def cond_of_any(needed: Array, compute: Callable[..., Any], keep: Callable[..., Any], *operands: Any) -> Any:
    """Return compute(*operands) if needed, () bool, otherwise keep(*operands), like lax.cond.

    vmap turns lax.cond into a computation of both branches for every member. Here all members skip `compute` at a step
    at which none of them needs it. Neither function may use other arrays than its operands. A GPU computes both:
    branching takes it longer than resetting environments, and one of thousands nearly always needs it.
    """
    @custom_vmap
    def choose(needed: Array, operands: tuple[Any, ...]) -> Any:
        return jax.lax.platform_dependent(needed, *operands, cpu=branch, default=select)

    def branch(needed: Array, *operands: Any) -> Any:
        return jax.lax.cond(needed, compute, keep, *operands)

    def select(needed: Array, *operands: Any) -> Any:
        return jax.tree.map(lambda new, old: jnp.where(needed, new, old), compute(*operands), keep(*operands))

    @choose.def_vmap
    def _(size: int, batched: Any, needed: Array, operands: tuple[Any, ...]) -> tuple[Any, Any]:
        def widen(x: Array, ready: bool) -> Array:
            return x if ready else jnp.broadcast_to(x, (size, *jnp.shape(x)))

        needed, operands = jax.tree.map(widen, (needed, operands), tuple(batched))
        result = cond_of_any(needed.any(), jax.vmap(lambda needed, *x: jax.lax.cond(needed, compute, keep, *x)),
                             lambda needed, *x: jax.vmap(keep)(*x), needed, *operands)
        return result, jax.tree.map(lambda x: True, result)

    return choose(needed, operands)


def pack_tree(tree: Any) -> dict[str, np.ndarray]:
    """Return every array of a state by its path in it, bit for bit."""
    return {jax.tree_util.keystr(path): np.array(plain(leaf))
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def unpack_tree(packed: dict[str, np.ndarray], like: Any) -> Any:
    """Return the state that pack_tree packed. `like` is a state of the same structure."""
    def find(path: Any, leaf: Array) -> Array:
        value = jnp.asarray(packed[jax.tree_util.keystr(path)], plain(leaf).dtype)
        return jax.random.wrap_key_data(value, impl=jax.random.key_impl(leaf)) if _is_key(leaf) else value

    return jax.tree_util.tree_map_with_path(find, like)


def check_state(packed: dict[str, np.ndarray], like: Any) -> None:
    """Compare what pack_tree packed of the state of environments with the state of those that are to continue it.

    Raises:
        UsageError: An array is missing, is new, or has another dtype or shape.
    """
    def described(arrays: dict[str, Any]) -> dict[str, str]:
        return {name: f"{x.dtype} {tuple(x.shape)}" for name, x in arrays.items()}

    kept = described({name: np.asarray(x) for name, x in packed.items()})
    now = described({jax.tree_util.keystr(path): plain(x) for path, x in jax.tree_util.tree_leaves_with_path(like)})
    different = [(name, f"state{name.replace('.inner', '')}") for name in {**kept, **now}
                 if kept.get(name) != now.get(name)]
    if wrong := [f"{label} {kept[name]}, these have {now.get(name, 'none')}" if name in kept else
                 f"no {label}, these have {now[name]}" for name, label in different]:
        raise UsageError(f"The checkpoint's environments have {'; '.join(wrong[:3])}. Resume with the environment of "
                         "the run.")


def _is_key(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def plain(leaf: Array) -> Array:
    """Return the numbers of an array that may hold keys of random numbers, which numpy does not know."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


@lru_cache(maxsize=8)
def _compiled(method: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a method of an object once, also where jax.jit of it was dropped: each game of a rating makes a batch."""
    return jax.jit(method)


class PureVec:
    """A PureEnv as a VecEnv, compiled step by step: the same numbers as inside a compiled iteration.

    Attributes:
        pure: The environments, for a compiled iteration.
        name: Their class, or that of the environment that they are copies of (`pure.env`), for messages.

    Args:
        pure: The environments.
        seed: Seed of the batch.
        play: "inside" if JAX has the whole state; "pool" if an outside engine has the environments. Then reset() is not
            a pure function, and step() is compiled again after it.
        close: Closes the outside engine.
    """

    arrays = "jax"
    frames: FrameStack | None = None
    play: Play
    render_fps: float | None = None

    def __init__(self, pure: PureEnv, seed: int, play: Play = "inside",
                 close: Callable[[], None] = lambda: None) -> None:
        self.pure, self._seed, self.play, self.close = pure, seed, play, close
        self.name = type(getattr(pure, "env", pure)).__name__
        self.keeps_state = play == "inside"
        self.num_envs, self.obs_shape, self.action_space = pure.num_envs, pure.obs_shape, pure.action_space
        self.observation_space = pure.observation_space
        self.obs_dtype, self.players, self.metric_names = pure.obs_dtype, pure.players, pure.metric_names
        self._reset = _compiled(pure.reset) if self.keeps_state else pure.reset
        self._step = _compiled(pure.step) if self.keeps_state else jax.jit(pure.step)
        self._state: Any = None

    def reset(self) -> Step:
        """Begin all environments again from the seed."""
        self._state, step = self._reset(jax.random.key(self._seed))
        if not self.keeps_state:
            self._step = jax.jit(lambda state, action: self.pure.step(state, action))
        return step

    def step(self, action: Array) -> Step:
        self._state, step = self._step(self._state, jnp.asarray(action))
        return step

    def state(self) -> dict[str, Any] | None:
        """See VecEnv.state; {} before the first reset."""
        if not self.keeps_state:
            return None
        return pack_tree(self._state) if self._state is not None else {}

    def load(self, state: dict[str, Any]) -> None:
        """See VecEnv.load; UsageError for the state of other environments."""
        self.reset()
        check_state(state, self._state)
        self._state = unpack_tree(state, self._state)

    def render(self) -> np.ndarray | None:
        """Return what `pure.render(state)` draws, (H, W, 3) uint8; None if `pure` does not draw."""
        draw = getattr(self.pure, "render", None)
        return None if draw is None or self._state is None else draw(self._state)
