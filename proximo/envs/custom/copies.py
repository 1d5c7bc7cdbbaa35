"""Copies of an environment that a program passes as an object."""

from copy import deepcopy
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np

from proximo.errors import UsageError

EQUAL_DRAWS = "its copies have a random generator that reset(seed=...) does not seed, so that all draw the same numbers"
SEED_DRAWS = ("Draw only from self.np_random and call super().reset(seed=seed) in reset, or pass a function that makes "
              "an environment.")


class Copies:
    """Makes a copy of an environment at each call.

    Raises:
        UsageError: It cannot be copied.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.env = env
        try:
            deepcopy(env)
        except Exception as error:
            raise UsageError(f"env={env!r:.60} cannot be copied ({type(error).__name__}: {error}), and every one of "
                             "num_envs environments needs its own. Pass a function that makes one, such as "
                             "env=lambda: MyEnv().") from error

    def __call__(self, **kwargs: Any) -> gym.Env[Any, Any]:
        """Return a copy; UsageError if there are arguments."""
        if kwargs:
            raise UsageError(f"env={self.env!r:.60} is an object, which has its arguments already, and env_kwargs has "
                             f"{', '.join(kwargs)}. Pass its class, or leave env_kwargs out.")
        return deepcopy(self.env)

    @cached_property
    def draw_equally(self) -> bool:
        """Whether two copies have a random generator that is in the same state after resets with different seeds."""
        one, other = self(), self()
        try:
            one.reset(seed=1)
            other.reset(seed=2)
        except Exception:  # training says so
            return False
        return any(left == right for left, right in zip(_generator_states(one), _generator_states(other)))


def _generator_states(env: gym.Env[Any, Any]) -> list[str]:
    """Return the states of all random generators that an environment holds, without those of its spaces."""
    held: dict[int, Any] = {}
    deepcopy(env, held)  # afterwards it has a copy of every object, in the order of their attributes
    of_spaces = {id(one._np_random) for one in held.values() if isinstance(one, gym.Space)}
    states = []
    for one in held.values():
        if isinstance(one, np.random.Generator) and id(one) not in of_spaces:
            states.append(repr(one.bit_generator.state))
        elif isinstance(one, np.random.RandomState):
            states.append(repr(one.get_state()))
        elif type(one).__module__ == "random":  # the generator of Python's standard library
            states.append(repr(one.getstate()))
    return states
