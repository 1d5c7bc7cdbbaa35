"""Atari games: a loop over ALE emulators that resets in the same step, or EnvPool (details 14-20)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from proximo.envs.ale import MAX_FRAMES, AleGame, clips_rewards
from proximo.envs.atari_ids import atari_name, find_rom, sticky_chance
from proximo.envs.envpool import make_envpool_atari
from proximo.envs.episodes import EpisodeCounter
from proximo.envs.workers.choice import make_rows_or_workers
from proximo.errors import EnvError, UsageError
from proximo.protocols import Episode, FrameStack, Play, Step, VecEnv
from proximo.variants import Atari


def make_atari(cfg: Atari, seeds: Sequence[int]) -> VecEnv:
    """Make Atari games in this process or in `cfg.env_workers` processes; with engine=envpool, EnvPool's.

    The other engines (auto, ale, gym) are all Proximo's own loop over ALE emulators. It is equal to the wrappers of
    openai/baselines in every pixel, as fast as EnvPool, and its state can be saved.

    Args:
        cfg: The configuration of the game and of the engine.
        seeds: One seed per environment.

    Returns:
        The environments, without normalisation. Observations are (frame_stack * channels, size, size) uint8.

    Raises:
        UsageError: The game is unknown, a package is missing, or the engine does not have `cfg.autoreset`.
    """
    if cfg.engine == "envpool":
        return make_envpool_atari(cfg, seeds)
    if cfg.autoreset != "same-step":
        raise UsageError(f"autoreset={cfg.autoreset} is not supported by the ale engine, which resets in the same "
                         "step. Use --engine envpool, or leave --autoreset out.")
    find_rom(cfg.env_id)
    make_rows = partial(AleEnvs, replace(cfg, sticky=sticky_chance(cfg.env_id, cfg.sticky)))
    return make_rows_or_workers(make_rows, cfg, seeds, cfg.env_id)


class AleEnvs:
    """N games as one VecEnv.

    Args:
        cfg: The configuration of the game.
        seeds: One seed per game.
        first_index: The number of the first environment, for error messages.
        max_frames: Frames after which a game is truncated.
    """

    arrays = "numpy"
    play: Play = "host"
    keeps_state = True
    obs_dtype = np.dtype(np.uint8)
    players: tuple[str, ...] = ()
    metric_names: tuple[str, ...] = ()
    observation_space = None

    def __init__(self, cfg: Atari, seeds: Sequence[int], first_index: int = 0, max_frames: int = MAX_FRAMES) -> None:
        rom, self.first_index = find_rom(cfg.env_id), first_index
        self.num_envs, self._env_id = len(seeds), cfg.env_id
        self._clips = clips_rewards(cfg)
        self.render_fps = 60 / cfg.frame_skip
        channels = 1 if cfg.grayscale else 3
        self.frames: FrameStack | None = FrameStack(length=cfg.frame_stack, channels=channels)
        self.obs_shape: tuple[int, ...] = (cfg.frame_stack * channels, cfg.screen_size, cfg.screen_size)
        self._obs = np.zeros((self.num_envs, *self.obs_shape), np.uint8)  # (N, K, H, W)
        self._final = np.zeros_like(self._obs)
        sticky = atari_name(cfg.env_id).sticky if cfg.sticky is None else cfg.sticky
        self._games = [AleGame(rom, int(seed), cfg, sticky, max_frames, self._obs[i]) for i, seed in enumerate(seeds)]
        self.action_space = spaces.Discrete(self._games[0].num_actions)
        self._episodes = EpisodeCounter(self.num_envs)
        self._owed = np.zeros(self.num_envs, np.float32)  # raw rewards of frames that belong to no action
        self._time = 0

    def reset(self) -> Step:
        """Begin all games again from their seeds."""
        for game in self._games:
            game.reset()
        self._owed[:] = [game.bonus for game in self._games]
        self._time = 0
        none = np.zeros(self.num_envs, bool)
        return self._answer(~none, np.zeros(self.num_envs, np.float32), none, none, self._episodes.clear())

    def step(self, action: np.ndarray) -> Step:
        """See VecEnv.step. `action` is (N,) integers."""
        self._time += 1
        count = self.num_envs
        reward = np.empty(count, np.float32)
        terminated, truncated, over = np.zeros((3, count), bool)
        for i, (game, choice) in enumerate(zip(self._games, self._choices(action), strict=True)):
            reward[i], terminated[i], truncated[i], over[i] = game.step(choice)
        raw = reward + self._owed
        self._owed.fill(0)
        first = terminated | truncated
        for i in np.flatnonzero(first).tolist():
            self._final[i] = self._obs[i]
            self._games[i].restart()
            self._settle(i, raw, over)
        episode = self._episodes.count(raw, over if over.any() else None, np.ones(count, bool))
        return self._answer(first, np.sign(reward) if self._clips else reward, terminated, truncated, episode)

    def _settle(self, i: int, raw: np.ndarray, over: np.ndarray) -> None:
        """Credit the rewards of a restart to the next action, or to a game that ended during the restart."""
        game = self._games[i]
        self._owed[i] = game.bonus
        if game.unreported is not None:
            raw[i] += game.unreported
            over[i] = True

    def _choices(self, action: np.ndarray) -> list[int]:
        if action.shape != (self.num_envs,) or action.dtype.kind not in "iu":
            raise EnvError(f"{self._env_id}, step {self._time}: actions are {action.dtype} of shape {action.shape}; "
                           f"they must be integers of shape ({self.num_envs},)")
        choices = action.tolist()
        if min(choices) < 0 or max(choices) >= self.action_space.n:
            i = next(i for i, choice in enumerate(choices) if not 0 <= choice < self.action_space.n)
            raise EnvError(f"environment {self.first_index + i} ({self._env_id}), step {self._time}: "
                           f"action {choices[i]} is not between 0 and {self.action_space.n - 1}")
        return choices

    def _answer(self, first: np.ndarray, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray,
                episode: Episode) -> Step:
        return Step(obs=self._obs, first=first, mask=None, reward=reward, terminated=terminated, truncated=truncated,
                    final_obs=self._final, valid=np.ones(self.num_envs, bool), episode=episode, metrics={})

    def state(self) -> dict[str, Any]:
        """See VecEnv.state: emulators, stacks and running returns."""
        systems, counts = zip(*(game.state() for game in self._games), strict=True)
        return {"system": list(systems), "counts": np.stack(counts), "stack": self._obs.copy(),
                "owed": self._owed.copy(), "episodes": self._episodes.state(), "time": self._time}

    def load(self, state: dict[str, Any]) -> None:
        for game, system, counts in zip(self._games, state["system"], state["counts"], strict=True):
            game.load(system, counts)
        self._obs[:] = state["stack"]
        self._owed[:] = state["owed"]
        self._episodes.load(state["episodes"])
        self._time = state["time"]

    def render(self) -> np.ndarray:
        return self._games[0].screen()

    def close(self) -> None:
        """Free the emulators."""
        self._games = []
