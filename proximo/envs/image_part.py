"""Wrappers of one part of a Dict or Tuple observation: other wrappers between them see this part only."""

from functools import reduce
from operator import getitem
from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium import spaces

from proximo.envs.arrays.obs_faults import leaf_fault
from proximo.errors import AnswerError


class OnePart(gym.Wrapper[Any, Any, Any, Any]):
    """Observe one part of a Dict or Tuple only. `AllParts` around it takes the whole observation from here."""

    def __init__(self, env: gym.Env, path: tuple[Any, ...]) -> None:
        super().__init__(env)
        self.observation_space, self._path, self._whole = _inside(env.observation_space, path), path, None

    def take_whole(self) -> Any:
        """Return the newest observation with all parts, once."""
        whole, self._whole = self._whole, None  # a reference to what is the environment's is no state
        return whole

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self._part(obs), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        obs, *rest = self.env.step(action)
        return self._part(obs), *rest

    def _part(self, whole: Any) -> Any:
        self._whole = whole
        try:
            return _inside(whole, self._path)
        except (LookupError, TypeError):
            raise AnswerError(leaf_fault(self.env.observation_space, whole, "observation")) from None


class AllParts(gym.Wrapper[Any, Any, Any, Any]):
    """Put the part that wrappers around `OnePart` have changed back into the whole observation."""

    def __init__(self, env: gym.Env, space: spaces.Space[Any], path: tuple[Any, ...]) -> None:
        super().__init__(env)
        self.observation_space, self._path = _space_with(space, path, env.observation_space), path

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        part, info = self.env.reset(seed=seed, options=options)
        return self._joined(part), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        part, *rest = self.env.step(action)
        return self._joined(part), *rest

    def _joined(self, part: Any) -> Any:
        return _value_with(self.env.get_wrapper_attr("take_whole")(), self._path, part)


def _inside(whole: Any, path: tuple[Any, ...]) -> Any:
    """Return the part at `path` of an observation, or of its space."""
    return reduce(getitem, path, whole)


def _value_with(whole: Any, path: tuple[Any, ...], part: Any) -> Any:
    """Return a copy of an observation with another part at `path`."""
    if not path:
        return part
    key, *rest = path
    inner = _value_with(whole[key], tuple(rest), part)
    return {**whole, key: inner} if hasattr(whole, "keys") else (*whole[:key], inner, *whole[key + 1:])


def _space_with(space: spaces.Space[Any], path: tuple[Any, ...], part: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return a space with another part at `path`, and keys in the same order."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict([(key, _space_with(one, path[1:], part) if key == path[0] else one)
                            for key, one in space.spaces.items()])
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_space_with(one, path[1:], part) if i == path[0] else one
                             for i, one in enumerate(space.spaces)])
    return part
