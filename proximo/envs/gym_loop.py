"""Single Gymnasium environments, stepped by one loop into preallocated arrays."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import gymnasium
import numpy as np

from proximo.envs.arrays.image_axes import as_returned
from proximo.envs.arrays.masks import LATE_MASK, NO_CHOICE, MaskReader, mask_methods
from proximo.envs.arrays.spaces import action_writer, check_actions, read_space
from proximo.envs.calls import call_method
from proximo.envs.episodes import EpisodeCounter
from proximo.envs.gym_checks import check_envs, converted_answer, converted_obs, reset_answer, terminal, wrong_numbers
from proximo.envs.images import check_repeats, frames_of
from proximo.envs.render import env_fps, render_env
from proximo.envs.state.check import replays_exactly
from proximo.envs.state.gym import get_env_state, set_env_states, warn_if_opaque
from proximo.envs.time_limit import close_env, make_into
from proximo.errors import AnswerError, EnvError, UsageError, what_failed
from proximo.protocols import Play, Step

CATCH = ". Correct the environment, or use it with the wrapper in docs/runs.md (Environments that crash)"


class GymEnvs:
    """N single environments as one VecEnv.

    Steps are equal to those of Gymnasium's SyncVectorEnv in both reset modes, bit for bit.

    Args:
        make_env: Makes one environment.
        seeds: One seed per environment.
        env_id: The id of the environment, for error messages.
        autoreset: "same-step" or "next-step".
        first_index: The number of the first environment, for error messages.

    Raises:
        UsageError: There is no policy for the observation or action space, or environments have different spaces.
    """

    arrays = "numpy"
    play: Play = "host"
    players: tuple[str, ...] = ()
    metric_names: tuple[str, ...] = ()

    def __init__(self, make_env: Callable[[], gymnasium.Env], seeds: Sequence[int], env_id: str,
                 autoreset: str = "same-step", first_index: int = 0) -> None:
        self._make_one = lambda seed: GymEnvs(make_env, [seed], env_id, autoreset)
        self._env_id, self.first_index = env_id, first_index
        self.num_envs, self._seeds, self._same_step = len(seeds), [int(x) for x in seeds], autoreset == "same-step"
        self._envs: list[gymnasium.Env] = []
        try:
            make_into(self._envs, make_env, self.num_envs)
            check_envs(self._envs, env_id)
            self.action_space, self.observation_space = self._envs[0].action_space, self._envs[0].observation_space
            self._to_env = action_writer(self.action_space, env_id)
            self._reader = reader = read_space(self.observation_space, env_id, self.num_envs)
        except BaseException:
            self.close()
            raise
        self.obs_shape, self.obs_dtype = reader.shape, reader.dtype
        self.frames = frames_of(self._envs[0], reader.axes)
        self._episodes, self._mask_methods = EpisodeCounter(self.num_envs), mask_methods(self._envs)
        self._time, self._playing, self._any_over, self._begun = 0, 0, False, False
        self._allocate()
        self._set_masks(None)

    def _allocate(self) -> None:
        self._obs = np.zeros((self.num_envs, *self.obs_shape), self.obs_dtype)
        self._final = np.zeros_like(self._obs)
        self._rows = as_returned(self._reader.axes, self._obs)  # views with the axes of the environment
        self._final_rows = as_returned(self._reader.axes, self._final)
        self._raw, self._reward = np.zeros(self.num_envs), np.zeros(self.num_envs, np.float32)
        self._flags = np.zeros((4, self.num_envs), bool)
        self._terminated, self._truncated, self._over, self._first = self._flags
        self._valid = np.ones(self.num_envs, bool)
        self._floating = bool(np.issubdtype(self.obs_dtype, np.floating))
        self._obs_flat = self._obs.reshape(-1) if self._floating else np.zeros(0, np.float32)

    def _set_masks(self, masks: MaskReader | None) -> None:
        """Use these masks, and prepare the Step that is returned whenever no episode ends: all its arrays stay."""
        self._masks = masks
        self._quiet = Step(obs=self._obs, first=self._first, mask=None if masks is None else masks.rows,
                           reward=self._reward, terminated=self._terminated, truncated=self._truncated,
                           final_obs=self._final if self._same_step else None, valid=self._valid,
                           episode=self._episodes.nothing, metrics={})

    def reset(self) -> Step:
        """Begin every environment again from its seed."""
        self._time = 0
        self._plays: list[Callable[[Any], tuple[Any, ...]]] = [env.step for env in self._envs]
        self._flags.fill(False)
        for i, seed in enumerate(self._seeds):
            self._rows[i] = self._begin(i, seed)
        self._reward.fill(0)
        self._first.fill(True)
        self._valid.fill(True)
        self._any_over = self._begun = True
        self._check_numbers()
        return self._quiet._replace(episode=self._episodes.clear())

    def step(self, action: np.ndarray) -> Step:
        if self._any_over:
            self._flags.fill(False)
            self._valid.fill(True)
            self._any_over = False
        self._time += 1
        try:
            self._play(self._to_env(action))
        except (EnvError, UsageError, KeyboardInterrupt):
            raise
        except BaseException as error:
            check_actions(action, self.action_space, self.num_envs, self._env_id)
            advice = "" if isinstance(error, AnswerError) else CATCH
            raise self._fault(self._playing, what_failed(error, "raised") + advice) from error
        self._check_numbers()
        self._reward[:] = self._raw
        episode = self._episodes.count(self._raw, self._over if self._any_over else None, self._valid)
        return self._quiet if episode is self._quiet.episode else self._quiet._replace(episode=episode)

    def _play(self, actions: list[Any]) -> None:
        reader, rows, masks, raw = self._reader, self._rows, self._masks, self._raw.data  # refuses None and texts
        flatten, shape, dtype = reader.flatten, reader.native_shape, reader.native_dtype
        for i, (play, chosen) in enumerate(zip(self._plays, actions, strict=True)):
            self._playing = i
            answer = play(chosen)
            try:
                observation, raw[i], terminated, truncated, info = answer
            except (TypeError, ValueError):
                observation, raw[i], terminated, truncated, info = self._converted(i, converted_answer, answer)
            if masks is None and info and "action_mask" in info:
                raise self._fault(i, LATE_MASK)
            if masks is not None and not masks.read(i, observation, info, terminated or truncated):
                raise self._fault(i, NO_CHOICE)
            if flatten is not None:
                observation = flatten(observation)
            if type(observation) is not np.ndarray or observation.shape != shape or observation.dtype is not dtype:
                observation = self._converted(i, converted_obs, observation, reader)
            if terminated or truncated:
                observation = self._end(i, observation, terminated, truncated, info)
            rows[i] = observation

    def _end(self, i: int, observation: np.ndarray, terminated: Any, truncated: Any, info: Any) -> np.ndarray:
        """End the episode of row i; return what becomes its row of obs."""
        terminated = self._converted(i, terminal, terminated, truncated)
        self._any_over = self._over[i] = True
        self._terminated[i], self._truncated[i] = terminated, not terminated
        if not self._same_step:
            self._plays[i] = partial(self._begin_late, i)
            return observation
        self._final_rows[i] = observation
        if self._floating and not np.isfinite(self._final[i]).all():
            raise self._fault(i, f"the last observation of its episode is not finite in {self.obs_dtype}")
        self._first[i] = True
        return self._begin(i, None)

    def _begin_late(self, i: int, action: Any) -> tuple[Any, ...]:
        """Take the place of a step that only resets (next-step mode): a filler row."""
        observation, info = reset_answer(self._envs[i].reset(), self._env_id)
        self._plays[i] = self._envs[i].step
        self._any_over, self._first[i], self._valid[i] = True, True, False
        return observation, 0.0, False, False, info

    def _begin(self, i: int, seed: int | None) -> np.ndarray:
        """Reset row i; return its first observation, flattened and checked."""
        reader = self._reader
        try:
            observation, info = reset_answer(self._envs[i].reset(seed=seed), self._env_id)
            if self._masks is None and (reader.masked or "action_mask" in info or self._mask_methods):
                if self._begun:
                    raise self._fault(i, LATE_MASK)
                self._open_masks()
            if self._masks is not None and not self._masks.read(i, observation, info, False):
                raise self._fault(i, NO_CHOICE)
            if reader.flatten is not None:
                observation = reader.flatten(observation)
        except (EnvError, UsageError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self._fault(i, what_failed(error, "reset raised", " (at reset)")) from error
        return np.asarray(self._converted(i, converted_obs, observation, reader, where=" (at reset)"))

    def _open_masks(self) -> None:
        check_repeats(self._envs[0], self._env_id)
        self._set_masks(MaskReader(self.action_space, self.num_envs, self._reader.masked, self._env_id,
                                   self._mask_methods))

    def _converted(self, i: int, convert: Callable[..., Any], value: Any, *how: Any, where: str = "") -> Any:
        """Return `value` as a learner needs it, or raise a fault of environment i."""
        try:
            return convert(value, self._env_id, *how)
        except ValueError as error:
            raise self._fault(i, f"{error}{where}") from error

    def _check_numbers(self) -> None:
        if fault := wrong_numbers(self._raw, self._obs, self._obs_flat):
            raise self._fault(*fault)

    def _fault(self, i: int, cause: str) -> EnvError:
        return EnvError(f"environment {self.first_index + i} ({self._env_id}), step {self._time}: {cause}")

    @property
    def keeps_state(self) -> bool:
        """See VecEnv.keeps_state. The first call compares steps with those of a copy and stores the answer."""
        return self._replays

    @cached_property
    def _replays(self) -> bool:
        return replays_exactly(self, self._make_one, self._seeds[0])

    def state(self) -> dict[str, Any] | None:
        return warn_if_opaque(self.snapshot, self._env_id) if self.keeps_state else None

    def snapshot(self) -> dict[str, Any]:
        """Return the state, exact or not; OpaqueError if it cannot be saved."""
        return {"envs": {str(i): get_env_state(env) for i, env in enumerate(self._envs)}, "time": self._time,
                "episodes": self._episodes.state(), "over": self._over.copy(), "masked": self._masks is not None}

    def begin_episode(self) -> np.ndarray:
        """Begin a new episode in row 0 without a seed. Returns its first observation."""
        self._plays[0] = self._envs[0].step
        return self._begin(0, None)

    def load(self, state: dict[str, Any]) -> None:
        set_env_states(self._envs, state["envs"])
        self._episodes.load(state["episodes"])
        self._time, self._any_over = int(state["time"]), True
        if state["masked"] and self._masks is None:
            self._open_masks()
        self._over[:] = state["over"]
        self._plays = [partial(self._begin_late, i) if self._over[i] and not self._same_step else env.step
                       for i, env in enumerate(self._envs)]

    def call(self, name: str, /, *args: Any, **options: Any) -> list[Any]:
        """See call_envs."""
        return [call_method(env, partial(self._fault, i), name, *args, **options) for i, env in enumerate(self._envs)]

    @property
    def render_fps(self) -> float | None:
        return env_fps(self._envs[0])

    def render(self) -> np.ndarray | None:
        return render_env(self._envs[0])

    def close(self) -> None:
        """Close every environment; a fault of one is a warning."""
        for i, env in enumerate(self._envs):
            close_env(env, f"environment {self.first_index + i} ({self._env_id})")
