"""Single Gymnasium environments, stepped by one loop into preallocated arrays."""

from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite
from typing import Any

import gymnasium
import numpy as np

from proximo.envs.env_state import keep_env, restore_env
from proximo.envs.env_state_check import replays_exactly
from proximo.envs.episodes import EpisodeCounter
from proximo.envs.gym_ids import make_one
from proximo.envs.spaces import action_writer, array_fault, mask_parts, mask_row, read_space
from proximo.errors import EnvError, UsageError
from proximo.protocols import Play, Step


def make_gym_rows(name: str, autoreset: str, seeds: Sequence[int], first_index: int = 0) -> "GymEnvs":
    """`name` is an id that runs (gym_id); `first_index`: what errors call the first environment."""
    return GymEnvs(partial(make_one, name), seeds, name, autoreset, first_index)


class GymEnvs:
    """N single environments as one VecEnv; equals Gymnasium's SyncVectorEnv in both reset modes, bit for bit.

    `make_env()` gives one environment.
    `keep(env) -> dict | None` and `restore(env, dict)` are how the state of one environment is kept.
    """

    arrays = "numpy"
    play: Play = "host"
    players: tuple[str, ...] = ()
    metric_names: tuple[str, ...] = ()
    statistics = None

    def __init__(self, make_env: Callable[[], gymnasium.Env], seeds: Sequence[int], env_id: str,
                 autoreset: str = "same-step", first_index: int = 0,
                 keep: Callable[[gymnasium.Env], dict | None] = keep_env,
                 restore: Callable[[gymnasium.Env, dict], None] = restore_env) -> None:
        self.num_envs = len(seeds)
        self._make_env, self._autoreset, self._keep, self._restore = make_env, autoreset, keep, restore
        self._exact: bool | None = None  # whether a replay from a kept state was exact; None: not tried yet
        self._seeds, self._env_id, self.first_index = [int(seed) for seed in seeds], env_id, first_index
        self._same_step = autoreset == "same-step"
        self._envs = [make_env() for _ in self._seeds]
        self.action_space = self._envs[0].action_space
        self._to_env = action_writer(self.action_space, env_id)
        self._reader = reader = read_space(self._envs[0].observation_space, env_id)
        self.obs_shape, self.obs_dtype = reader.shape, reader.dtype
        self._parts = mask_parts(self.action_space)
        self._mask: np.ndarray | None = None
        self._plays = [env.step for env in self._envs]
        self._episodes = EpisodeCounter(self.num_envs)
        self._time, self._any_over = 0, False
        self._allocate()

    def _allocate(self) -> None:
        count = self.num_envs
        self._obs = np.zeros((count, *self.obs_shape), self.obs_dtype)
        self._final = np.zeros_like(self._obs) if self._same_step else None
        last = self._reader.channels_last
        self._rows = np.moveaxis(self._obs, 1, -1) if last else self._obs  # rows as the environment gives them
        self._final_rows = np.moveaxis(self._final, 1, -1) if last and self._same_step else self._final
        self._raw, self._reward = np.zeros(count), np.zeros(count, np.float32)
        self._terminated, self._truncated, self._over, self._first = np.zeros((4, count), bool)
        self._valid = np.ones(count, bool)
        floating = np.issubdtype(self.obs_dtype, np.floating)
        self._obs_flat = self._obs.reshape(-1) if floating else np.zeros(0, np.float32)
        self._zeros = np.zeros_like(self._obs_flat)

    def reset(self) -> Step:
        """All environments begin anew from their seeds."""
        self._time, self._mask = 0, None
        self._plays = [env.step for env in self._envs]
        for flags in (self._terminated, self._truncated, self._over):
            flags.fill(False)
        for i, seed in enumerate(self._seeds):
            self._rows[i] = self._begin(i, seed)
        self._reward.fill(0)
        self._first.fill(True)
        self._valid.fill(True)
        self._any_over = True
        self._check_finite()
        return self._answer(self._episodes.clear())

    def step(self, action: np.ndarray) -> Step:
        """See VecEnv.step."""
        if self._any_over:
            for flags in (self._terminated, self._truncated, self._over, self._first):
                flags.fill(False)
            self._valid.fill(True)
            self._any_over = False
        self._time += 1
        try:
            self._play(self._to_env(action))
        except (EnvError, UsageError):
            raise
        except Exception as error:
            raise self._fault(self._playing, f"raised {type(error).__name__}: {error}") from error
        self._check_finite()
        self._reward[:] = self._raw
        return self._answer(self._episodes.count(self._raw, self._over if self._any_over else None, self._valid))

    def _play(self, actions: list) -> None:
        reader, rows, raw, mask = self._reader, self._rows, self._raw, self._mask
        flatten, shape, dtype = reader.flatten, reader.native_shape, reader.native_dtype
        for i, (play, action) in enumerate(zip(self._plays, actions, strict=True)):
            self._playing = i
            answer = play(action)
            try:
                observation, raw[i], terminated, truncated, info = answer
            except (TypeError, ValueError) as error:
                raise self._fault(i, _answer_fault(answer)) from error
            if mask is not None:
                observation = self._read_mask(i, observation, info, terminated or truncated)
            if flatten is not None:
                observation = flatten(observation)
            if type(observation) is not np.ndarray or observation.shape != shape or observation.dtype is not dtype:
                observation = self._odd(i, observation)
            if terminated or truncated:
                observation = self._end(i, observation, bool(terminated))
            rows[i] = observation

    def _end(self, i: int, observation: np.ndarray, terminated: bool) -> np.ndarray:
        """The episode of row i is over; returns what stands in its row of obs."""
        self._any_over = self._over[i] = True
        self._terminated[i], self._truncated[i] = terminated, not terminated
        if not self._same_step:
            self._plays[i] = partial(self._begin_late, i)
            return observation
        self._final_rows[i] = observation
        if self._zeros.size and not np.isfinite(self._final[i]).all():
            raise self._fault(i, "its last observation is not finite (NaN or infinity)")
        self._first[i] = True
        return self._begin(i, None)

    def _begin_late(self, i: int, action: Any) -> tuple:
        """Stands in for a step that only resets (next-step mode): a filler row."""
        observation, info = self._envs[i].reset()
        self._plays[i] = self._envs[i].step
        self._any_over = self._first[i] = True
        self._valid[i] = False
        return observation, 0.0, False, False, info

    def _begin(self, i: int, seed: int | None) -> np.ndarray:
        """Resets row i; returns its first observation, flattened and checked."""
        try:
            observation, info = self._envs[i].reset(seed=seed)
            if self._mask is None and (self._reader.masked or "action_mask" in info):
                self._open_mask()
            if self._mask is not None:
                observation = self._read_mask(i, observation, info, False)
            if self._reader.flatten is not None:
                observation = self._reader.flatten(observation)
        except (EnvError, UsageError):
            raise
        except Exception as error:
            raise self._fault(i, f"reset raised {type(error).__name__}: {error}") from error
        fault = array_fault(self._reader.native_shape, self._reader.native_dtype, observation, "observation")
        if fault:
            raise self._fault(i, f"{fault} (at reset)")
        return observation

    def _open_mask(self) -> None:
        if self._parts is None:
            raise UsageError(f"{self._env_id} gives an action_mask for the action space {self.action_space}; "
                             "only Discrete and MultiDiscrete actions can be masked")
        self._mask = np.ones((self.num_envs, int(self._parts.sum())), bool)
        self._part_starts = np.concatenate([[0], np.cumsum(self._parts)[:-1]])

    def _read_mask(self, i: int, observation: Any, info: dict, over: bool) -> Any:
        """Writes row i of the mask; returns the observation without its mask."""
        row = self._mask[i]
        if self._reader.masked:
            row[:] = mask_row(observation["action_mask"], len(row))
        elif "action_mask" in info:
            row[:] = mask_row(info["action_mask"], len(row))
        else:
            row[:] = True
        if not np.logical_or.reduceat(row, self._part_starts).all():
            if not over:
                raise self._fault(i, "action_mask forbids every action")
            row[:] = True  # nothing is decided at an end
        return observation

    def _odd(self, i: int, observation: Any) -> np.ndarray:
        fault = array_fault(self._reader.native_shape, self._reader.native_dtype, observation, "observation")
        if fault:
            raise self._fault(i, fault)
        return observation

    def _check_finite(self) -> None:
        """A sum of squares is finite only where all is, and costs half a microsecond for small observations."""
        if isfinite(self._obs_flat.dot(self._obs_flat)) and isfinite(self._raw.dot(self._raw)):
            return
        for i in range(self.num_envs):
            if not np.isfinite(self._raw[i]):
                raise self._fault(i, f"reward is {self._raw[i]}, wanted a finite number")
            if self._zeros.size and not np.isfinite(self._obs[i]).all():
                raise self._fault(i, "observation is not finite (NaN or infinity)")

    def _answer(self, episode: Any) -> Step:
        return Step(self._obs, self._first, self._mask, self._reward, self._terminated, self._truncated, self._final,
                    self._valid, episode, {})

    def _fault(self, i: int, cause: str) -> EnvError:
        return EnvError(f"environment {self.first_index + i} ({self._env_id}), step {self._time}: {cause}")

    @property
    def keeps_state(self) -> bool:
        """See VecEnv.keeps_state. The first call replays 50 steps on copies; its answer is kept."""
        if self._exact is None:
            self._exact = self._snapshot() is not None and self._replays()
        return self._exact

    def state(self) -> dict | None:
        """See VecEnv.state; None unless the replay of keeps_state was exact."""
        return self._snapshot() if self.keeps_state else None

    def _snapshot(self) -> dict | None:
        kept = [self._keep(env) for env in self._envs]
        if any(part is None for part in kept):
            return None
        return {"envs": {str(i): part for i, part in enumerate(kept)}, "episodes": self._episodes.state(),
                "time": self._time, "over": self._over.copy(), "masked": self._mask is not None}

    def load(self, state: dict) -> None:
        """See VecEnv.load."""
        for i, env in enumerate(self._envs):
            self._restore(env, state["envs"][str(i)])
        self._episodes.load(state["episodes"])
        self._time = int(state["time"])
        if state["masked"] and self._mask is None:
            self._open_mask()
        self._over[:] = state["over"]
        self._any_over = True
        self._plays = [partial(self._begin_late, i) if self._over[i] and not self._same_step else env.step
                       for i, env in enumerate(self._envs)]

    def _replays(self) -> bool:
        """Whether a copy that took over another's state goes on exactly as it; the real environments stay untouched."""
        model, copy = (GymEnvs(self._make_env, [seed], self._env_id, self._autoreset,
                               keep=self._keep, restore=self._restore) for seed in (self._seeds[0], self._seeds[0] + 1))
        try:
            return replays_exactly(model, copy, model._snapshot)
        finally:
            model.close()
            copy.close()

    @property
    def render_fps(self) -> float | None:
        """See VecEnv.render_fps: what the environment's metadata says."""
        fps = self._envs[0].metadata.get("render_fps")
        return float(fps) if fps else None

    def render(self) -> np.ndarray | None:
        """The first environment, where it can render. Its render_mode is set only now, since LunarLander, made with
        one, steps at half the speed whether somebody looks or not."""
        bare: Any = self._envs[0].unwrapped
        if bare.render_mode is None and "rgb_array" in bare.metadata.get("render_modes", ()):
            bare.render_mode = "rgb_array"
        picture: Any = self._envs[0].render() if bare.render_mode == "rgb_array" else None
        return picture

    def close(self) -> None:
        for env in self._envs:
            env.close()


def _answer_fault(answer: Any) -> str:
    if not isinstance(answer, tuple) or len(answer) != 5:
        size = f" of {len(answer)}" if isinstance(answer, tuple) else ""
        return (f"step returned a {type(answer).__name__}{size}, wanted "
                "(observation, reward, terminated, truncated, info)")
    return f"reward is {answer[1]!r}, wanted a number"
