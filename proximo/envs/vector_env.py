"""Environments behind Gymnasium's VectorEnv, which steps N of them in one call, as a VecEnv of this package."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from gymnasium.vector import AutoresetMode

from proximo.envs.arrays.batch_rows import BatchRows, arrays_of, batch_actions
from proximo.envs.calls import call_object
from proximo.envs.custom.vector_checks import VectorChecks, check_single
from proximo.envs.episodes import Running, count_episodes
from proximo.envs.render import render_env
from proximo.envs.vector_metrics import VectorMetrics
from proximo.errors import EnvError, ProximoError, UsageError, is_out_of_memory, with_place
from proximo.protocols import Array, Episode, FrameStack, Play, Step

FINAL_OBS = ("final_obs", "final_observation")  # keys of info, of Gymnasium 1 and of earlier versions


class GymVectorEnvs:
    """A VectorEnv of Gymnasium, or an object with its members, with numpy arrays or torch tensors, as a VecEnv.

    Tensors stay on their device. A row that is terminated and truncated at once counts as terminated. The mask of
    actions is `info["action_mask"]`, or the key `action_mask` of a Dict observation. Checkpoints do not contain the
    environments.

    Args:
        envs: The environments. `reset` is called here, which shows what arrays they return.
        seed: The seed of the first reset.
        autoreset: When an episode that has ended is reset, a value of gymnasium.vector.AutoresetMode: "NextStep",
            "SameStep", or "Disabled" (here they are reset in the same step, by `options={"reset_mask": ...}`). None:
            what `metadata["autoreset_mode"]` says.
        final_obs: What the value of a truncated episode is computed from, where they reset in the same step: "info",
            `info["final_obs"]`, or "before", the observation before its last action, for simulators that do not return
            the last one (as rsl_rl does). A recurrent layer reads that observation a second time to compute the value.
        metrics: Entries of `info` in the last steps of episodes, such as ("is_success",), which the log gets as
            charts/NAME. They are read from `info["final_info"]` if there is one.
        step_metrics: The same for every step, such as the terms of a reward: entries of `info` or of the dict
            `info["log"]`, each an array (N,) or one number for all.

    Raises:
        UsageError: There is no policy for the spaces, `autoreset` is not known, or `reset` does not return what it has
            to.
    """

    play: Play = "host"
    keeps_state = False
    frames: FrameStack | None = None
    players: tuple[str, ...] = ()

    def __init__(self, envs: Any, seed: int, *, autoreset: str | None = None,
                 final_obs: Literal["info", "before"] = "info", metrics: Sequence[str] = (),
                 step_metrics: Sequence[str] = ()) -> None:
        self._bare = bare = getattr(envs, "unwrapped", envs)
        self.name = type(bare).__name__
        self._envs, self._seed, self._before = envs, int(seed), final_obs == "before"
        self._mode = _autoreset_mode(envs, autoreset, self.name)
        self.num_envs = envs.num_envs
        self.action_space, self.observation_space = envs.single_action_space, envs.single_observation_space
        check_single(envs, self.name)
        self._checks = VectorChecks(self.name, self.num_envs)
        obs, _ = self._call_reset(seed=self._seed)
        self._kind = arrays_of(obs)
        self.arrays = self._kind.name
        self._rows = BatchRows(self.observation_space, self._kind, self._checks)
        self.obs_shape, self.obs_dtype = self._rows.shape, self._rows.dtype
        self._written = batch_actions(self.action_space, self._kind, self.name, self.num_envs)
        self._rows(obs, "reset")  # checks it
        self._metrics = VectorMetrics(metrics, step_metrics, self._kind, self.name, self.num_envs)
        self.metric_names = self._metrics.names
        call = getattr(bare, "call", None) or partial(call_object, bare)  # of a simulator
        self.call = lambda method, /, *args, **options: list(call(method, *args, **options))

    def _call_reset(self, **given: Any) -> tuple[Any, Mapping[str, Any]]:
        """Return obs and info."""
        try:
            answer = self._envs.reset(**given)
        except Exception as error:
            if isinstance(error, ProximoError) or is_out_of_memory(error):
                raise
            said = f"{self.name}.reset() raised {with_place(error)}"
            if isinstance(error, TypeError) and "keyword argument" in str(error):
                raise UsageError(f"{said}. It has to take the keyword arguments seed and options, as that of "
                                 "gymnasium.vector.VectorEnv.") from error
            raise EnvError(said) from error
        return self._checks.reset(answer)

    def reset(self) -> Step:
        obs, info = self._call_reset(seed=self._seed)
        self._obs = rows = self._rows(obs, "reset")
        none, zeros, zero = (self._kind.zeros((self.num_envs,), dtype) for dtype in (np.bool_, np.float32, np.int32))
        self._only_reset, self._running = none, Running(zeros, zero)  # rows that the next step only resets
        return Step(obs=rows, first=~none, mask=self._rows.mask(obs, info, "reset"), reward=zeros, terminated=none,
                    truncated=none, final_obs=None if self._mode is AutoresetMode.NEXT_STEP else rows,
                    valid=~none, episode=Episode(none, zeros, zero), metrics=self._metrics.none())

    def step(self, action: Array) -> Step:
        kind, begun = self._kind, self._only_reset
        obs, reward, terminated, truncated, info = self._checks.step(self._envs.step(self._written(action)))
        read = ~terminated if self._mode is AutoresetMode.DISABLED else ...  # the last observation of a task that ended
        valid, rows, mask = ~begun, self._rows(obs, "step", read), self._rows.mask(obs, info, "step")
        reward = kind.where(valid, kind.cast(reward, np.float32), 0)
        terminated = kind.cast(terminated, np.bool_) & valid
        truncated = kind.cast(truncated, np.bool_) & valid & ~terminated
        over = terminated | truncated
        metrics = self._metrics.read(info, over, valid)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._only_reset, first, final = over, begun, None
        else:
            first, final = over, self._final_rows(rows, over, truncated, info)
        if self._mode is AutoresetMode.DISABLED and bool(over.any()):
            obs, info = self._call_reset(options={"reset_mask": over})
            rows = self._rows(obs, "reset")
            begins = self._rows.mask(obs, info, "reset")  # of the rows that were reset
            mask = None if mask is None or begins is None else kind.where(over[:, None], begins, mask)
        self._obs = rows
        self._running, episode = count_episodes(self._running, reward, over, valid, kind)
        return Step(obs=rows, first=first, mask=mask, reward=reward, terminated=terminated,
                    truncated=truncated, final_obs=final, valid=valid, episode=episode, metrics=metrics)

    def _final_rows(self, rows: Array, over: Array, truncated: Array, info: Mapping[str, Any]) -> Array:
        """Return the observations to which the actions led."""
        if self._mode is AutoresetMode.DISABLED or not bool(over.any()):
            return rows
        if self._before:
            return self._obs
        given = next((info[key] for key in FINAL_OBS if key in info), None)
        if given is not None:
            return self._rows.of_ended(given, rows, over, truncated)
        if not bool(truncated.any()):
            return rows  # a terminated episode has no value after its end
        raise EnvError(f"{self.name} resets in the same step, and info has no 'final_obs' where an episode was "
                       "truncated: the value of what was cut off cannot be computed. Add it to info, or pass "
                       "GymVectorEnvs(envs, seed, final_obs='before').")

    def state(self) -> None:
        """Never called, because keeps_state is False."""

    def load(self, state: dict[str, Any]) -> None:
        """Never called, because keeps_state is False."""

    @property
    def render_fps(self) -> float | None:
        fps: float | None = (getattr(self._envs, "metadata", None) or {}).get("render_fps")
        return fps

    def render(self) -> np.ndarray | None:
        if not hasattr(self._bare, "render_mode"):
            return None
        one_by_one = getattr(self._bare, "envs", None)  # of SyncVectorEnv
        frames: Any = render_env(one_by_one[0] if one_by_one else self._envs)
        if hasattr(frames, "detach"):
            frames = frames.cpu().numpy()
        return frames[0] if isinstance(frames, (tuple, list)) or np.ndim(frames) == 4 else frames

    def close(self) -> None:
        self._envs.close()


def _autoreset_mode(envs: Any, given: str | None, name: str) -> AutoresetMode:
    """Return when episodes that have ended are reset."""
    said = given if given is not None else (getattr(envs, "metadata", None) or {}).get("autoreset_mode")
    try:
        return AutoresetMode(said)
    except ValueError:
        known = ", ".join(repr(mode.value) for mode in AutoresetMode)
        raise UsageError(f"{name}: it is not known when an episode that has ended is reset (autoreset={said!r:.40}). "
                         f"Set metadata['autoreset_mode'] of the VectorEnv, or pass GymVectorEnvs(envs, seed, "
                         f"autoreset=...) with one of {known}.") from None
