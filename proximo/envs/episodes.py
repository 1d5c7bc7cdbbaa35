"""Returns and lengths of finished episodes: whole games, from raw rewards (before clipping and scaling)."""

from typing import Any, NamedTuple

import numpy as np

from proximo.protocols import Array, Episode
from proximo.types import FinishedEpisodes


class Running(NamedTuple):
    """Return and length so far of the current game of each row; for suites inside a compiled function."""

    ret: Array  # (N,) float32, sum of raw rewards
    length: Array  # (N,) int32, number of steps


def start_episodes(num_envs: int, xp: Any = np) -> Running:
    """Return zeros for N rows. `xp` is numpy or jax.numpy."""
    return Running(xp.zeros(num_envs, xp.float32), xp.zeros(num_envs, xp.int32))


def count_episodes(running: Running, reward: Array, over: Array, valid: Array, xp: Any = np) -> tuple[Running, Episode]:
    """Count one step, as a pure function.

    Args:
        running: What was gathered before the step.
        reward: (N,) raw rewards.
        over: (N,) bool, games that end with this step.
        valid: (N,) bool; a row that is not valid is a filler and counts nothing.
        xp: numpy, jax.numpy, or another object with their function `where`.

    Returns:
        What is gathered after the step, and the games that the step ended.
    """
    ret = running.ret + xp.where(valid, reward, 0)
    length = xp.where(valid, running.length + 1, running.length)
    finished = over & valid
    after = Running(xp.where(finished, 0, ret), xp.where(finished, 0, length))
    return after, Episode(finished=finished, ret=ret, length=length)


class EpisodeCounter:
    """Counts in place and in float64, for numpy suites: about 1 us per step in which no game ends.

    Attributes:
        nothing: The Episode of a step in which no game ends. It is the same object each time.
    """

    def __init__(self, num_envs: int) -> None:
        self._ret = np.zeros(num_envs)  # (N,)
        self._length = np.zeros(num_envs, np.int32)  # (N,)
        self.nothing = Episode(finished=np.zeros(num_envs, bool), ret=np.zeros(num_envs, np.float32),
                               length=np.zeros(num_envs, np.int32))

    def clear(self) -> Episode:
        """Begin all games again; return `nothing`."""
        self._ret.fill(0)
        self._length.fill(0)
        return self.nothing

    def count(self, reward: np.ndarray, over: np.ndarray | None, valid: np.ndarray) -> Episode:
        """Count one step.

        Args:
            reward: (N,) raw rewards, 0 in filler rows.
            over: (N,) bool, games that end with this step; None: none.
            valid: (N,) bool, False in filler rows.

        Returns:
            The games that the step ended.
        """
        self._ret += reward
        self._length += valid
        if over is None:
            return self.nothing
        finished = over & valid
        episode = Episode(finished=finished, ret=self._ret.astype(np.float32), length=self._length.copy())
        self._ret[finished] = 0
        self._length[finished] = 0
        return episode

    def state(self) -> dict[str, Any]:
        """Return the running returns and lengths, for VecEnv.state."""
        return {"ret": self._ret.copy(), "length": self._length.copy()}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what state() returned."""
        self._ret[:] = state["ret"]
        self._length[:] = state["length"]


def finished_episodes(episode: Episode, valid: np.ndarray, steps: int) -> tuple[FinishedEpisodes, int]:
    """Return the episodes that ended in a rollout, in order of time, and the number of steps after it.

    Args:
        episode: (T, N) numpy arrays of a rollout.
        valid: (T,) number of valid rows at each step, over all ranks.
        steps: Number of environment steps before the rollout.
    """
    played = steps + np.cumsum(valid)
    time, row = np.nonzero(episode.finished)
    ended = FinishedEpisodes(step=played[time], row=row, ret=episode.ret[time, row], length=episode.length[time, row])
    return ended, int(played[-1])
