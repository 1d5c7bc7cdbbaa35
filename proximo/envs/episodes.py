"""Raw returns and lengths of finished episodes: whole games, before any clipping or scaling of rewards."""

from typing import NamedTuple

import numpy as np

from proximo.protocols import Array, Episode
from proximo.types import FinishedEpisodes


class Running(NamedTuple):
    """What each row has gathered since its game began; for suites inside a compiled function."""

    ret: Array  # (N,) raw rewards so far
    length: Array  # (N,) int32, decisions so far


def start_episodes(num_envs: int, xp=np) -> Running:
    """Nothing gathered yet; `xp` is numpy or jax.numpy."""
    return Running(xp.zeros(num_envs, xp.float32), xp.zeros(num_envs, xp.int32))


def count_episodes(running: Running, reward: Array, over: Array, valid: Array, xp=np) -> tuple[Running, Episode]:
    """One step, as a pure function. `reward` raw, `over` and `valid` (N,) bool; filler rows (not valid) touch nothing.

    Returns what is gathered from here on, and the games that this step ended.
    """
    ret = running.ret + xp.where(valid, reward, 0)
    length = running.length + valid.astype(xp.int32)
    finished = over & valid
    episode = Episode(finished, ret, length)
    return Running(xp.where(finished, 0, ret), xp.where(finished, 0, length)), episode


class EpisodeCounter:
    """The same for numpy suites, in place and in float64: about a microsecond a step where no game ends."""

    def __init__(self, num_envs: int) -> None:
        self._ret = np.zeros(num_envs)  # (N,)
        self._length = np.zeros(num_envs, np.int32)  # (N,)
        self._nothing = Episode(np.zeros(num_envs, bool), np.zeros(num_envs, np.float32), np.zeros(num_envs, np.int32))

    def clear(self) -> Episode:
        """All games begin anew, as after reset(); returns that none finished."""
        self._ret.fill(0)
        self._length.fill(0)
        return self._nothing

    def count(self, reward: np.ndarray, over: np.ndarray | None, valid: np.ndarray) -> Episode:
        """`reward` raw (N,), 0 in filler rows; `over` (N,) bool: games that end here; None: none; `valid` (N,) bool."""
        self._ret += reward
        self._length += valid
        if over is None:
            return self._nothing
        finished = over & valid
        episode = Episode(finished, self._ret.astype(np.float32), self._length.copy())
        self._ret[finished] = 0
        self._length[finished] = 0
        return episode

    def state(self) -> dict:
        return {"ret": self._ret.copy(), "length": self._length.copy()}

    def load(self, state: dict) -> None:
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
