"""Worker processes that step environments and write what they see into shared memory (`--env-workers K`).

Gymnasium's AsyncVectorEnv moves the data; the watch around it turns a worker that raises, dies or stalls into one
EnvError within seconds, since theirs hangs, and leaves no process behind.
"""

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from multiprocessing.connection import wait
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv

from proximo.config import Config
from proximo.envs.worker_process import FIELDS, FLAGS, Bundle
from proximo.errors import EnvError
from proximo.protocols import Episode, Play, Step, VecEnv

MakeRows = Callable[..., VecEnv]  # (seeds, first_index=0) -> environments

GLANCE = 1.0  # seconds between two looks at the processes while waiting


def make_rows_or_workers(make_rows: MakeRows, cfg: Config, seeds: Sequence[int], name: str) -> VecEnv:
    """Make environments in this process, or in `cfg.env_workers` processes if that is not 0.

    Args:
        make_rows: Makes environments in one process from their seeds. It is pickled for worker processes.
        cfg: Its `env_workers` and `env_timeout` (seconds) are read.
        seeds: One seed per environment.
        name: The id of the environment, for error messages.
    """
    if not cfg.env_workers:
        return make_rows(seeds)
    return WorkerEnvs(make_rows, seeds, cfg.env_workers, cfg.env_timeout, name)


class WorkerEnvs:
    """GymEnvs spread over `workers` processes, each with as many rows; the same behaviour, bit for bit.

    `timeout`: seconds after which a worker that has not answered is called stalled.
    """

    arrays = "numpy"
    play: Play = "host"
    players: tuple[str, ...] = ()
    metric_names: tuple[str, ...] = ()
    statistics = None
    render_fps: float | None = None

    def __init__(self, make_rows: Callable[..., Any], seeds: Sequence[int], workers: int, timeout: float,
                 name: str) -> None:
        self.num_envs, self._name, self._timeout = len(seeds), name, timeout
        self._rows, self._time = len(seeds) // workers, 0
        probe = make_rows(seeds[:1])
        self.obs_shape, self.obs_dtype, self.action_space = probe.obs_shape, probe.obs_dtype, probe.action_space
        sample = probe.reset()
        probe.close()
        self._action_dtype = np.dtype(np.float32 if isinstance(self.action_space, spaces.Box) else np.int64)
        self._action_shape = self.action_space.shape
        self._vector: AsyncVectorEnv | None = None
        self._start([partial(Bundle, make_rows, seeds[k * self._rows:(k + 1) * self._rows], k * self._rows, sample,
                             self._action_shape, self._action_dtype) for k in range(workers)])

    def _start(self, bundles: list[Callable[[], Bundle]]) -> None:
        """Spawned, not forked: the parent has threads. The timer ends a worker that hangs before it is watched."""
        before = set(multiprocessing.active_children())
        timer = threading.Timer(self._timeout, lambda: _kill_all(set(multiprocessing.active_children()) - before))
        timer.start()
        try:
            self._vector = AsyncVectorEnv(bundles, context="spawn", copy=False)
        except Exception as error:
            _kill_all(set(multiprocessing.active_children()) - before)
            raise EnvError(f"{self._name}: a worker process did not start ({type(error).__name__}: {error}); "
                           "a script that trains must do so under `if __name__ == \"__main__\":`") from error
        finally:
            timer.cancel()

    def reset(self) -> Step:
        """See VecEnv.reset."""
        self._time = 0
        return self._guarded(self._play_reset)

    def _play_reset(self) -> Step:
        self._vector.reset_async()
        self._watch()
        return self._joined(*self._vector.reset_wait())

    def step(self, action: np.ndarray) -> Step:
        """See VecEnv.step."""
        self._time += 1
        return self._guarded(partial(self._play_step, action))

    def _play_step(self, action: np.ndarray) -> Step:
        action = np.asarray(action, self._action_dtype).reshape(-1, self._rows, *self._action_shape)
        self._vector.step_async(action)
        self._watch()
        parts, _, _, _, infos = self._vector.step_wait()
        return self._joined(parts, infos)

    def _joined(self, parts: dict[str, np.ndarray], infos: dict) -> Step:
        """(K, rows, ...) of each field in shared memory becomes (N, ...), without a copy."""
        if "fault" in infos:
            raise EnvError(next(fault for fault in infos["fault"] if fault))
        parts = {name: part.reshape(-1, *part.shape[2:]) for name, part in parts.items()}
        parts = {name: part.view(bool) if name in FLAGS else part for name, part in parts.items()}
        episode = Episode(*(parts[name] for name in Episode._fields))
        return Step(**{name: parts.get(name) for name in FIELDS}, episode=episode, metrics={})

    def _watch(self) -> None:
        """Waits until every worker has answered; raises EnvError for one that died, stopped or stalled."""
        end = time.monotonic() + self._timeout
        stopped = 0
        for k, pipe in enumerate(self._vector.parent_pipes):
            process = self._vector.processes[k]
            while not pipe.poll(min(GLANCE, max(end - time.monotonic(), 0))):
                stopped = stopped + 1 if _is_stopped(process.pid) else 0
                if stopped == 2:  # seen twice: not a Ctrl-Z that has just ended for all of us
                    raise self._fault(k, "was stopped (SIGSTOP)")
                if time.monotonic() >= end:
                    raise self._fault(k, f"did not answer within {self._timeout:g} s; --env-timeout sets the limit")

    def _guarded(self, play: Callable[[], Any]) -> Any:
        """Any fault ends all workers, then is told as one EnvError."""
        if self._vector is None:
            raise EnvError(f"the worker processes of {self._name} have ended; make the environments anew")
        try:
            return play()
        except Exception as error:
            dead = None if isinstance(error, EnvError) else self._dead()
            self._kill()
            if isinstance(error, EnvError):
                raise
            if dead is not None:
                raise self._fault(*dead) from error
            raise EnvError(f"environments of {self._name}, step {self._time}: "
                           f"{type(error).__name__}: {error}") from error

    def _dead(self) -> tuple[int, str] | None:
        """The first worker that ended by itself, and how."""
        ended = wait([process.sentinel for process in self._vector.processes], 0.5)
        for k, process in enumerate(self._vector.processes):
            if process.sentinel in ended:
                process.join(1)  # the exit status comes a moment after the end
            code = process.exitcode
            if code is not None:
                return k, f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        return None

    def _fault(self, k: int, cause: str) -> EnvError:
        first, last = k * self._rows, (k + 1) * self._rows - 1
        rows = f"environment {first}" if first == last else f"environments {first}-{last}"
        return EnvError(f"{rows} ({self._name}), step {self._time}: worker process {k} {cause}")

    @property
    def keeps_state(self) -> bool:
        """See VecEnv.keeps_state; each worker tries it once."""
        return all(self._called("keeps_state"))

    def state(self) -> dict | None:
        """See VecEnv.state."""
        parts = self._called("kept_state")
        if any(part is None for part in parts):
            return None
        return {"time": self._time, "workers": {str(k * self._rows): part for k, part in enumerate(parts)}}

    def load(self, state: dict) -> None:
        """See VecEnv.load."""
        self._called("load_state", state["workers"])
        self._time = int(state["time"])

    def render(self) -> np.ndarray | None:
        return self._called("picture")[0]

    def _called(self, name: str, *arguments: Any) -> tuple:
        return self._guarded(partial(self._play_call, name, *arguments))

    def _play_call(self, name: str, *arguments: Any) -> tuple:
        self._vector.call_async(name, *arguments)
        self._watch()
        return self._vector.call_wait()

    def close(self) -> None:
        """Ends all workers, within seconds, whatever they are doing."""
        self._kill()

    def _kill(self) -> None:
        vector, self._vector = self._vector, None
        if vector is None:
            return
        _kill_all(vector.processes)
        for pipe in vector.parent_pipes:
            if pipe is not None:
                pipe.close()
        vector.error_queue.close()
        vector.closed = True  # theirs would wait for answers that cannot come


def _kill_all(processes: Iterable[Any]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join(5)


def _is_stopped(pid: int) -> bool:
    """Whether a process is held by a signal; where the system does not say (no /proc), False."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def running_workers(envs: WorkerEnvs) -> list[int]:
    """Ids of the worker processes."""
    return [process.pid for process in envs._vector.processes] if envs._vector else []

