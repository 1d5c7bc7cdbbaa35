"""What one worker process runs: some environments behind one Gymnasium environment that observes whole Steps."""

import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from proximo.envs.gym_loop import GymEnvs
from proximo.errors import ProximoError
from proximo.protocols import Step

FLAGS = ("first", "mask", "terminated", "truncated", "valid", "finished")  # travel as int8
FIELDS = ("obs", "first", "mask", "reward", "terminated", "truncated", "final_obs", "valid")


class Bundle(gymnasium.Env):
    """What one worker runs: some environments behind one Gymnasium environment that observes whole Steps.

    Made in the parent too (Gymnasium reads its spaces there), so the environments begin with the first reset.
    """

    def __init__(self, make_rows: Callable[..., Any], seeds: Sequence[int], first_index: int, sample: Step,
                 action_shape: tuple[int, ...], action_dtype: np.dtype) -> None:
        self._make = partial(make_rows, seeds, first_index=first_index)
        self._envs: GymEnvs | None = None
        self.observation_space: spaces.Dict = _step_space(sample, len(seeds))
        self.action_space = _any_box((len(seeds), *action_shape), action_dtype)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """The seeds are the environments' own; `seed` is not used."""
        if self._envs is None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
        return self._told(self._begin)

    def _begin(self) -> Step:
        if self._envs is None:
            self._envs = self._make()
        return self._envs.reset()

    def step(self, action: np.ndarray) -> tuple[dict, float, bool, bool, dict]:
        observation, info = self._told(partial(self._envs.step, action))
        return observation, 0.0, False, False, info

    def _told(self, play: Callable[[], Step]) -> tuple[dict, dict]:
        """A fault travels as a sentence in info; raised here, Gymnasium would print it as a traceback."""
        try:
            return _flat_step(play()), {}
        except ProximoError as error:
            empty = {name: np.zeros(part.shape, part.dtype) for name, part in self.observation_space.items()}
            return empty, {"fault": str(error)}

    @property
    def keeps_state(self) -> bool:
        """Read by name through AsyncVectorEnv.call."""
        if self._envs is None:
            self._envs = self._make()
        return self._envs.keeps_state

    def kept_state(self) -> dict | None:
        """Called by name through AsyncVectorEnv.call."""
        return self._envs.state()

    def load_state(self, states: dict) -> None:
        """`states` of all workers by their first index."""
        self._envs.load(states[str(self._envs.first_index)])

    def picture(self) -> np.ndarray | None:
        return self._envs.render() if self._envs.first_index == 0 else None

    def close(self) -> None:
        if self._envs is not None:
            self._envs.close()


def _any_box(shape: tuple[int, ...], dtype: np.dtype) -> spaces.Box:
    if dtype.kind == "b":
        return spaces.Box(0, 1, shape, np.int8)
    if np.issubdtype(dtype, np.integer):
        return spaces.Box(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype)
    return spaces.Box(-np.inf, np.inf, shape, dtype)


def _flat_step(step: Step) -> dict[str, np.ndarray]:
    parts = {name: getattr(step, name) for name in FIELDS} | step.episode._asdict()
    return {name: part for name, part in parts.items() if part is not None}


def _step_space(sample: Step, rows: int) -> spaces.Dict:
    return spaces.Dict({name: _any_box((rows, *part.shape[1:]), part.dtype)
                        for name, part in _flat_step(sample).items()})
