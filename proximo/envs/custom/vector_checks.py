"""What a VectorEnv returns, before it is converted: a conversion would repeat, reorder or cut off numbers.

Every error is one sentence with the class, the call, what it returned, and what is needed.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from proximo.envs.custom.steps import described, dtype_name, first_out_of_range
from proximo.errors import EnvError, UsageError

STEP = ("Return obs, reward, terminated, truncated and info. If there is one array of dones, truncated is "
        "extras['time_outs'], and terminated are the other dones.")


class VectorChecks:
    """The checks of one VectorEnv. Shapes are compared in every step, and dtypes where they are new.

    Args:
        name: The name of its class.
        num_envs: N.
    """

    def __init__(self, name: str, num_envs: int) -> None:
        self.name, self.num_envs = name, num_envs
        self._known: dict[tuple[str, Any], bool] = {}  # name and dtype of arrays: whether numbers may not fit

    def reset(self, answer: Any) -> tuple[Any, Mapping[str, Any]]:
        """Return obs and info, as reset() returned them."""
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise UsageError(f"{self.name}.reset() returned {_counted(answer)}. Return obs and info.")
        return answer[0], self._info(answer[1], "reset")

    def step(self, answer: Any) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
        """Return obs, reward, terminated, truncated and info, as step() returned them. The first is not checked yet."""
        if not isinstance(answer, (tuple, list)) or len(answer) != 5:
            raise UsageError(f"{self.name}.step() returned {_counted(answer)}. {STEP}")
        obs, reward, terminated, truncated, info = answer
        rows = (self.num_envs,)
        self.array(reward, "step", "reward", rows, np.dtype(np.float32))
        self.array(terminated, "step", "terminated", rows, np.dtype(np.bool_))
        self.array(truncated, "step", "truncated", rows, np.dtype(np.bool_))
        return obs, reward, terminated, truncated, self._info(info, "step")

    def _info(self, info: Any, call: str) -> Mapping[str, Any]:
        if not isinstance(info, Mapping):
            raise UsageError(f"{self.name}.{call}() returned info {described(info)}. Return a dict.")
        return info

    def array(self, x: Any, call: str, what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Raise UsageError for an array of another shape or kind of numbers, EnvError for numbers that do not fit.

        Args:
            x: The array.
            call: The method that returned it.
            what: The name of the array.
            shape: That it needs.
            dtype: In which it is stored.
        """
        if getattr(x, "shape", None) != shape:
            rows = "" if what != "final_obs" or shape[1:] != getattr(x, "shape", (0,))[1:] else \
                " with the rows of all environments, of which those are read where an episode ended"
            raise UsageError(f"{self.name}.{call}() returned {what} {described(x)}. Its shape has to be {shape}{rows}.")
        may_wrap = self._known.get((what, x.dtype))
        if may_wrap is None:
            if problem := _problem_of_dtype(x, dtype):
                raise UsageError(f"{self.name}.{call}() returned {what} {described(x)}. {problem}")
            may_wrap = self._known[what, x.dtype] = dtype.kind in "iu" and dtype_name(x) != dtype.name
        if may_wrap and (row := first_out_of_range(x, dtype)) is not None:
            raise EnvError(f"environment {row} ({self.name}): {call}() returned {what} with a number that does not fit "
                           f"into {dtype.name}. Return smaller ones, or declare another dtype in the space.")

    def part(self, obs: Any, path: tuple[Any, ...], call: str, what: str) -> Any:
        """Return a part of observations; UsageError if there is none."""
        for key in path:
            keys = [*obs.keys()] if hasattr(obs, "keys") else None
            if isinstance(key, str) and (keys is None or key not in keys):
                has = described(obs) if keys is None else f"with the keys {', '.join(map(str, keys))}"
                raise UsageError(f"{self.name}.{call}() returned {what} {has}. Its space is a Dict with the key "
                                 f"{key!r}: return a dict with it.")
            if not isinstance(key, str) and not (isinstance(obs, (tuple, list)) and key < len(obs)):
                raise UsageError(f"{self.name}.{call}() returned {what} {_counted(obs)}. Its space is a Tuple with "
                                 f"the part {key}: return a tuple with it.")
            obs, what = obs[key], f"{what}[{key!r}]"
        return obs


def _counted(answer: Any) -> str:
    """Return how many values there are, or what it is instead."""
    return f"{len(answer)} values" if isinstance(answer, (tuple, list)) else f"one value {described(answer)}"


def _problem_of_dtype(x: Any, dtype: np.dtype[Any]) -> str:
    """Return why numbers cannot become those of another dtype; "" if they can."""
    given = dtype_name(x)
    if dtype.kind == "b" and given != "bool":
        return "Its dtype has to be bool."
    if dtype.kind != "f" and "float" in given:
        return (f"It is stored as {dtype.name}, as the space says, which would cut off what follows the point. Return "
                "whole numbers, or declare floats.")
    return ""


def check_single(envs: Any, name: str) -> None:
    """Raise UsageError if the space of one environment has the axis of all of them."""
    for kind in ("observation", "action"):
        space, declared = getattr(envs, f"single_{kind}_space"), getattr(envs, f"{kind}_space", None)
        shape = (space.shape if isinstance(space, spaces.Space) else None) or ()
        alone = declared is None and len(shape) > 1  # (N,) alone may be that of one environment
        if envs.num_envs > 1 and shape[:1] == (envs.num_envs,) and (alone or declared == space):
            raise UsageError(f"{name}.single_{kind}_space has the shape {shape}, which begins with the number of "
                             f"environments. Set it to the space of one environment, of shape {shape[1:]}.")
