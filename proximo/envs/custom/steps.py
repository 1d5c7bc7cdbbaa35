"""Checks of the arrays of a Step of custom environments: shapes, kinds, dtypes and finite numbers."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from proximo.protocols import Array, Step


def with_dtype(step: Step, dtype: np.dtype[Any]) -> Step:
    """Return a step whose observations have the dtype that the environments declare. The network expects it."""
    def converted(x: Any) -> Any:
        if x is None or dtype_name(x) == np.dtype(dtype).name:
            return x
        if not hasattr(x, "detach"):
            return x.astype(dtype)
        from proximo.envs.arrays.torch_arrays import with_numpy_dtype

        return with_numpy_dtype(x, dtype)

    return step._replace(obs=converted(step.obs), final_obs=converted(step.final_obs))


def first_not_finite(x: Array, read: Array | None) -> int | None:
    """Return the first row with a NaN or an infinity among those that are read (None: all); None if there is none."""
    if "float" not in str(x.dtype):
        return None
    finite = x.isfinite() if hasattr(x, "detach") else np.isfinite(np.asarray(x))
    if bool(finite.all()):
        return None
    rows = finite.reshape(len(x), -1).all(1) if read is None else finite.reshape(len(x), -1).all(1) | ~read
    return None if bool(rows.all()) else int((~rows).nonzero()[0][0])


def stored_dtype(dtype: Any, framework: str) -> np.dtype[Any]:
    """Return the dtype of observations in the rollout: under JAX, whole numbers have at most 32 bits."""
    dtype = np.dtype(dtype)
    return np.dtype(dtype.name.replace("64", "32")) if dtype.kind in "iu" and framework == "jax" else dtype


def first_out_of_range(x: Array, dtype: np.dtype[Any]) -> int | None:
    """Return the first row with a whole number that another dtype of whole numbers lacks; None if there is none."""
    if dtype.kind not in "iu" or "int" not in dtype_name(x) or dtype_name(x) == dtype.name:
        return None
    limits = np.iinfo(dtype)
    beyond: Any = ((x < limits.min) | (x > limits.max)).reshape(len(x), -1).any(1)
    return int(beyond.nonzero()[0][0]) if bool(beyond.any()) else None


def first_without_choice(mask: Any, starts: Any, over: Any) -> int | None:
    """Return the first row whose mask leaves no choice to a component of the action; None if there is none.

    Args:
        mask: (N, A) bool.
        starts: Of the components after the first, in the mask.
        over: (N,) bool, rows that need no choice because the next step only resets them; None: all need one.
    """
    def host(x: Any) -> np.ndarray:
        return np.asarray(x.cpu() if hasattr(x, "detach") else x)

    free = np.all([part.any(1) for part in np.split(host(mask), starts, axis=1)], axis=0)
    if over is not None:
        free = free | host(over)
    return None if free.all() else int(free.argmin())


def fields_of(step: Step, obs_shape: tuple[int, ...], rows: int,
              choices: int | None) -> Iterator[tuple[str, Any, tuple[int, ...]]]:
    """Yield the name, the value and the shape that is required of every array of a step."""
    yield "obs", step.obs, obs_shape
    if step.final_obs is not None:
        yield "final_obs", step.final_obs, obs_shape
    if step.mask is not None and choices is not None:
        yield "mask", step.mask, (rows, choices)
    for name in ("first", "reward", "terminated", "truncated", "valid"):
        yield name, getattr(step, name), (rows,)
    for name in ("finished", "ret", "length"):
        yield f"episode.{name}", getattr(step.episode, name, None), (rows,)


def state_problem(value: Any, place: str) -> str:
    """Return what a checkpoint cannot keep of what state() returned, "" if it keeps everything."""
    if isinstance(value, dict):
        if wrong := [key for key in value if not isinstance(key, str)]:
            return f"{place} with the key {wrong[0]!r:.60}"
        parts = [(f"{place}[{key!r}]", part) for key, part in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(f"{place}[{i}]", part) for i, part in enumerate(value)]
    else:
        array = isinstance(value, np.ndarray) and value.dtype.kind in "biufc"
        kept = array or isinstance(value, (np.generic, str, int, float, bool, type(None)))
        return "" if kept else f"{place} as {type(value).__name__}"
    return next((problem for name, part in parts if (problem := state_problem(part, name))), "")


def dtype_name(x: Any) -> str:
    """Return the name of the dtype of an array, such as float32."""
    return str(x.dtype).rpartition(".")[2]


def problem_of_type(x: Any, name: str, arrays: str, obs_dtype: np.dtype[Any]) -> str:
    """Return what is wrong with the kind of an array or its dtype, "" if nothing is."""
    kind = "torch" if hasattr(x, "detach") else "numpy" if isinstance(x, (np.ndarray, np.generic)) else "jax"
    if kind != arrays and "torch" in (kind, arrays):
        return f"arrays={arrays!r} promises other arrays. Convert it, or set arrays={kind!r}."
    flags = ("first", "mask", "terminated", "truncated", "valid", "episode.finished")
    if name in flags and dtype_name(x) != "bool":
        return "Its dtype has to be bool."
    if name in ("obs", "final_obs") and "float" in dtype_name(x) and np.dtype(obs_dtype).kind != "f":
        return f"obs_dtype={np.dtype(obs_dtype).name} would cut off what follows the point. Set obs_dtype to a float."
    return ""


def described(x: Any) -> str:
    """Return the type, shape and dtype of an array, or the type of something else."""
    if not hasattr(x, "shape"):
        return f"as {type(x).__name__}"
    return f"of shape {tuple(x.shape)} and dtype {dtype_name(x)}"
