"""Environments in worker processes, which write their Steps into shared memory (`--env-workers K`).

Gymnasium's AsyncVectorEnv transfers the data. It hangs if a worker dies or stops, therefore the code around it watches
the processes: a worker that raises, dies or does not answer becomes one EnvError within seconds, and no process is
left.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.util import Finalize
from typing import Any, cast

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from proximo.envs.arrays.joint_actions import action_shape, plain_space
from proximo.envs.calls import check_sent
from proximo.envs.time_limit import OWN_PORT, POLL_SECONDS, TimeLeft, time_limit
from proximo.envs.workers.ends import END_SECONDS, FAULT_SECONDS, end_all, find_dead, is_stopped
from proximo.envs.workers.process import FIELDS, FLAGS, METRIC, Bundle, MakeRows
from proximo.envs.workers.start import start_workers
from proximo.errors import EnvError, ProximoError, UsageError, warn_once
from proximo.protocols import Episode, Play, Step


class WorkerEnvs:
    """Environments in several processes, as a VecEnv. Every step is equal to that of one process, bit for bit.

    Args:
        make_rows: Makes the environments of one process.
        seeds: One seed per environment.
        workers: Number of processes.
        timeout: Seconds after which a worker that has not answered is an error.
        name: The id of the environment, for error messages.

    Raises:
        UsageError: The number of seeds is not a multiple of `workers`.
        EnvError: A worker process did not start.
    """

    arrays = "numpy"
    play: Play = "host"
    players: tuple[str, ...] = ()
    render_fps: float | None = None

    def __init__(self, make_rows: MakeRows, seeds: Sequence[int], workers: int, timeout: float, name: str) -> None:
        self.num_envs, self._name, self._timeout = len(seeds), name, timeout
        self._rows, self._time = len(seeds) // workers, 0
        if len(seeds) % workers:
            raise UsageError(f"The {len(seeds)} environments of a process cannot be divided among "
                             f"env_workers={workers}. Use a number of workers that divides them.")
        with time_limit(timeout, f"{name}: making and resetting the first environment"):
            probe = make_rows(seeds[:1])
            try:
                self.obs_shape, self.obs_dtype, self.action_space = probe.obs_shape, probe.obs_dtype, probe.action_space
                self.observation_space, self.frames = probe.observation_space, probe.frames
                sample = probe.reset()
            finally:
                probe.close()
        floats = isinstance(self.action_space, (spaces.Box, spaces.Dict, spaces.Tuple))
        self._action_dtype: np.dtype = np.dtype(np.float32 if floats else np.int64)
        self._action_shape, self.metric_names = action_shape(self.action_space), tuple(sample.metrics)
        self._booleans = (*FLAGS, "obs", "final_obs") if self.obs_dtype == np.bool_ else FLAGS  # arrive as int8
        self.bundles = [partial(Bundle, make_rows, seeds[k * self._rows:(k + 1) * self._rows], k * self._rows, sample,
                                plain_space(self.action_space), self._action_dtype) for k in range(workers)]
        vector = start_workers(self.bundles, timeout, name)
        self._vector: AsyncVectorEnv[Any, Any] | None = vector
        self._at_exit = Finalize(self, end_all, (vector, END_SECONDS), exitpriority=0)  # if nobody calls close()

    def reset(self) -> Step:
        self._time = 0
        with self._guarded() as vector:
            vector.reset_async()
            self._watch(vector)
            return self._join(*vector.reset_wait())

    def step(self, action: np.ndarray) -> Step:
        self._time += 1
        with self._guarded() as vector:
            vector.step_async(self.parts_of_action(action))
            self._watch(vector)
            parts, _, _, _, infos = vector.step_wait()
            return self._join(parts, infos)

    def parts_of_action(self, action: np.ndarray) -> np.ndarray:
        """Return the actions of each worker, (K, rows, ...)."""
        return np.asarray(action, self._action_dtype).reshape(-1, self._rows, *self._action_shape)

    def join_answers(self, vector: "AsyncVectorEnv[Any, Any]", first: int, answers: list[Any]) -> Step:
        """Join what the workers from `first` on have answered to "step", as AsyncVectorEnv.step_wait does for all."""
        infos: dict[str, Any] = {}
        for k, (answer, success) in enumerate(answers, first):
            if not success:
                vector._raise_if_errors([i != k for i in range(vector.num_envs)])
            infos = vector._add_info(infos, answer[-1], k)
        shared = cast(dict[str, np.ndarray], vector.observations)
        return self._join({name: part[first:first + len(answers)] for name, part in shared.items()}, infos)

    def _join(self, parts: dict[str, np.ndarray], infos: dict[str, Any]) -> Step:
        """Join (K, rows, ...) of each field in shared memory to (N, ...), without a copy."""
        if "fault" in infos:
            raise EnvError(next(fault for fault in infos["fault"] if fault))
        for text in {text for text in infos.get("said", ()) if text}:
            for sentence in text.splitlines():
                warn_once(sentence)
        parts = {name: part.reshape(-1, *part.shape[2:]) for name, part in parts.items()}
        parts = {name: part.view(bool) if name in self._booleans else part for name, part in parts.items()}
        episode = Episode(*(parts[name] for name in Episode._fields))
        metrics = {name.removeprefix(METRIC): part for name, part in parts.items() if name.startswith(METRIC)}
        return Step(**{name: parts.get(name) for name in FIELDS}, episode=episode, metrics=metrics)

    def _watch(self, vector: "AsyncVectorEnv[Any, Any]") -> None:
        """Wait until every worker has answered. Raise EnvError for one that was stopped or takes too long."""
        left = TimeLeft(self._timeout)
        for k in range(len(vector.processes)):
            self.wait_for_answer(vector, k, left)

    def wait_for_answer(self, vector: "AsyncVectorEnv[Any, Any]", k: int, left: TimeLeft) -> None:
        """Wait until worker k has answered, or has ended, or no time is left; see _watch."""
        pipe, stopped = vector.parent_pipes[k], 0
        while not pipe.poll(min(POLL_SECONDS, left.seconds())):
            stopped = stopped + 1 if is_stopped(vector.processes[k].pid) else 0
            if stopped == 2:  # seen twice: this is not a Ctrl-Z for all processes that has just ended
                raise self.fault(k, "was stopped by a signal (SIGSTOP)")
            if left.seconds() == 0:
                slow = "environments need" if self._time else "environments, which are made now, need"
                own = "" if self._time else f". {OWN_PORT.removesuffix('.')}"
                raise self.fault(k, f"did not answer within {self._timeout:g} s. Increase --env-timeout if its "
                                    f"{slow} more time{own}")

    @contextmanager
    def _guarded(self) -> Iterator["AsyncVectorEnv[Any, Any]"]:
        """Give the workers. After any error in the block, end all of them and raise one EnvError."""
        vector = self._vector
        if vector is None:
            raise EnvError(f"the worker processes of {self._name} have ended. Make the environments again.")
        try:
            yield vector
        except Exception as error:
            dead = None if isinstance(error, EnvError) else find_dead(vector)
            self.close()
            if isinstance(error, EnvError):
                raise
            if dead is not None:
                raise self.fault(*dead) from error
            raise EnvError(f"environments of {self._name}, step {self._time}: "
                           f"{type(error).__name__}: {error}") from error

    def fault(self, k: int, cause: str) -> EnvError:
        """Return the error of worker k."""
        first, last = k * self._rows, (k + 1) * self._rows - 1
        rows = f"environment {first}" if first == last else f"environments {first}-{last}"
        return EnvError(f"{rows} ({self._name}), step {self._time}: worker process {k} {cause}")

    @property
    def keeps_state(self) -> bool:
        try:
            return all(self._call("keeps_state"))
        except EnvError as error:
            raise EnvError(f"{error}. This happened before training, when copies of its environments were played to "
                           "find out whether their state can be saved") from error

    def state(self) -> dict[str, Any] | None:
        parts = self._call("get_state")
        if any(part is None for part in parts):
            return None
        return {"time": self._time, "workers": {str(k * self._rows): part for k, part in enumerate(parts)}}

    def load(self, state: dict[str, Any]) -> None:
        self._call("set_state", state["workers"])
        self._time = int(state["time"])

    def render(self) -> np.ndarray | None:
        return self._call("get_picture")[0]

    def call(self, name: str, /, *arguments: Any, **options: Any) -> list[Any]:
        """See call_envs. The workers live on after an error of a method."""
        check_sent((arguments, options), f"call_envs({name!r}): an argument")
        answers = self._call("call_rows", name, arguments, options)
        if fault := next((answer for answer in answers if isinstance(answer, ProximoError)), None):
            raise fault
        return [one for answer in answers for one in answer]

    def _call(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        """Call a method of every Bundle, or read an attribute."""
        with self._guarded() as vector:
            vector.call_async(name, *arguments)
            self._watch(vector)
            return vector.call_wait()

    def close(self) -> None:
        """Close the environments and end all workers within seconds, whatever they are doing."""
        if self._vector is not None:
            vector, self._vector = self._vector, None
            self._at_exit.cancel()
            end_all(vector, END_SECONDS if vector._state == AsyncState.DEFAULT else FAULT_SECONDS)
