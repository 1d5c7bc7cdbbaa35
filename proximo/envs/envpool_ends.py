"""How episodes of EnvPool end: a row that dies in the step of its time limit is terminated, not truncated.

EnvPool reports such a row as truncated only. Its Atari games say too that the game is over. For other environments the
last observation tells, where the rule of the environment depends on nothing else.
"""

import math
from collections.abc import Callable

from proximo.protocols import Array

DeathRule = Callable[[Array], Array]  # observations (N, *shape) -> (N,) bool, numpy's or JAX's

FROZEN_LAKE = {"FrozenLake-v1": (5, 7, 11, 12, 15),  # the holes and the goal of the maps
               "FrozenLake8x8-v1": (19, 29, 35, 41, 42, 46, 49, 52, 54, 59, 63)}


def death_rule(name: str) -> DeathRule | None:
    """Return the function that tells from the last observations of episodes which rows died.

    The rules are those of Gymnasium (classic control, toy text and MuJoCo).

    Args:
        name: EnvPool's name of the environment.

    Returns:
        None if the observation does not tell: an episode that ends at its limit then counts as truncated.
    """
    if name in FROZEN_LAKE:
        ends = list(FROZEN_LAKE[name])
        return lambda obs: obs[:, ends].any(1)
    return RULES.get(name.removeprefix("phys2d/").rpartition("-v")[0])


def _outside(column: int, low: float, high: float) -> DeathRule:
    return lambda obs: ~((obs[:, column] > low) & (obs[:, column] < high))


def _cart_pole(obs: Array) -> Array:
    return (abs(obs[:, 0]) > 2.4) | (abs(obs[:, 2]) > math.radians(12))


def _reaches(position: float) -> DeathRule:
    return lambda obs: (obs[:, 0] >= position) & (obs[:, 1] >= 0)


def _acrobot(obs: Array) -> Array:
    """Return whether the tip is one length above the axis; observations are cos, sin, cos, sin of two angles."""
    return -obs[:, 0] - (obs[:, 0] * obs[:, 2] - obs[:, 1] * obs[:, 3]) > 1


def _double_pendulum(obs: Array) -> Array:
    """Return whether the tip is below 1; observations are position, two sines, two cosines."""
    return 0.6 * (obs[:, 3] + obs[:, 3] * obs[:, 4] - obs[:, 1] * obs[:, 2]) <= 1


def _hopper(obs: Array) -> Array:
    return ~(obs[:, 0] > 0.7) | _outside(1, -0.2, 0.2)(obs) | (abs(obs[:, 2:]) >= 100).any(1)


def _walker(obs: Array) -> Array:
    return _outside(0, 0.8, 2)(obs) | _outside(1, -1, 1)(obs)


RULES: dict[str, DeathRule] = {
    "CartPole": _cart_pole, "MountainCar": _reaches(0.5), "MountainCarContinuous": _reaches(0.45), "Acrobot": _acrobot,
    "InvertedPendulum": _outside(1, -0.2, 0.2), "InvertedDoublePendulum": _double_pendulum, "Hopper": _hopper,
    "Walker2d": _walker, "Ant": _outside(0, 0.2, 1), "Humanoid": _outside(0, 1, 2)}


def separate_ends(terminated: Array, truncated: Array, valid: Array, info: dict[str, Array],
                  died: Array | None = None) -> tuple[Array, Array]:
    """Return which rows (N,) were terminated, and which were cut by a limit.

    Args:
        terminated: What EnvPool returned.
        truncated: What EnvPool returned.
        valid: The rows that are no filler rows.
        info: What EnvPool returned; `info["terminated"]` is 1 where a game is over.
        died: What the rule of the environment says about the last observations; None if it has none.
    """
    ended = terminated & ~truncated
    if "terminated" in info:
        ended = ended | (truncated & info["terminated"].astype(bool))
    if died is not None:
        ended = ended | (truncated & died)
    return ended & valid, truncated & ~ended & valid
