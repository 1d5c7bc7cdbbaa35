"""Worker processes that are replaced when they die or stall (`--restart-envs N`)."""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector.utils import CloudpickleWrapper

from proximo.envs.kept_attributes import KeptAttributes
from proximo.envs.search_path import trusted_modules
from proximo.envs.worker_ends import find_dead, kill_all
from proximo.envs.worker_envs import WorkerEnvs
from proximo.envs.worker_process import MakeRows, run_worker
from proximo.errors import EnvError, ProximoError, warn
from proximo.protocols import Step

LOST: Any = ((None, 0.0, False, False, {}), True)  # what a worker answers to "step", in place of one that was replaced


READING = ("get_wrapper_attr", "has_wrapper_attr")  # methods whose results are copies, so that they change nothing


class OneWorker(NamedTuple):
    """The environments of one worker, as call_envs takes them."""

    call: Callable[..., list[Any]]


class WritingPipe:
    """The pipe of a worker that has replaced another one.

    Gymnasium keeps no handle to its shared memory that a new process could open. The observations of a new worker
    therefore come through its pipe, and are written to that memory here.
    """

    def __init__(self, pipe: Any, rows: dict[str, np.ndarray]) -> None:
        self._pipe, self._rows = pipe, rows
        self.poll, self.send, self.close = pipe.poll, pipe.send, pipe.close

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return bool(self._pipe.closed)

    def recv(self) -> Any:
        """Return an answer of the worker, after its observations were written."""
        answer, success = self._pipe.recv()
        if success and isinstance(answer, tuple) and isinstance(answer[0], dict):
            for name, part in answer[0].items():
                self._rows[name][...] = part
        return answer, success


class RestartedWorkers(WorkerEnvs):
    """WorkerEnvs in which a worker that dies, is stopped or does not answer in time is replaced by a new one.

    Its rows of that step are truncated and not valid: nothing is learned from them, and what came before continues in
    the value of the last observation. Episodes begin in all of them, with seeds that depend on the seeds of the rows
    and on the number of the restart, so that a fault that depends on the seed is not repeated. They have the attributes
    that `call` has set, and otherwise nothing of those that they replace; a warning names what else was called.

    Args:
        most: How many workers are replaced. The next one that is lost is an EnvError.
        make_rows: See WorkerEnvs, like the others. The environments reset in the step in which an episode ends.
    """

    def __init__(self, most: int, make_rows: MakeRows, seeds: Sequence[int], workers: int, timeout: float,
                 name: str) -> None:
        super().__init__(make_rows, seeds, workers, timeout, name)
        self._most, self._restarts = most, 0
        self._kept, self._others = KeptAttributes(), set[str]()  # what `call` has set, and other methods that it called
        self.metric_names = (*self.metric_names, "env_restarts")

    def _step(self, vector: "AsyncVectorEnv[Any, Any]", action: np.ndarray) -> Step:
        pipes: list[Any] = list(vector.parent_pipes)
        lost: dict[int, Exception] = {}
        answers: list[Any] = []
        for k, part in enumerate(self.parts_of_action(action)):
            try:
                pipes[k].send(("step", part))
            except OSError:  # it has ended; receiving says so too
                pass
        end = time.monotonic() + self._timeout
        for k, pipe in enumerate(pipes):
            try:
                self.wait_for_answer(vector, k, end)
                answers.append(pipe.recv())
            except (EOFError, OSError, EnvError) as error:
                lost[k] = error
                answers.append(LOST)
        shared = cast(dict[str, np.ndarray], vector.observations)
        last = {k: shared["obs"][k].copy() for k in lost}
        for k, cause in lost.items():
            self._replace(vector, k, cause)
            shared["final_obs"][k], shared["truncated"][k], shared["valid"][k] = last[k], True, False
        return self.join_answers(vector, 0, answers)

    def _join(self, parts: dict[str, np.ndarray], infos: dict[str, Any]) -> Step:
        step = super()._join(parts, infos)
        restarts = np.full(self.num_envs, self._restarts, np.float32)
        return step._replace(metrics=step.metrics | {"env_restarts": restarts})

    def _replace(self, vector: "AsyncVectorEnv[Any, Any]", k: int, error: Exception) -> None:
        """Start a new worker in place of a lost one, and let its environments begin an episode."""
        dead = None if isinstance(error, EnvError) else find_dead(vector, k)
        fault = error if isinstance(error, EnvError) else self.fault(*(dead or (k, f"was lost ({error})")))
        if self._restarts == self._most:
            raise EnvError(f"{fault}. {self._most} workers were replaced before (--restart-envs).") from error
        self._restarts += 1
        lacks = f" Its environments get the attributes that call_envs has set, but not what these methods may have " \
                f"changed: {', '.join(sorted(self._others))}."
        warn(f"{fault}. It is replaced (restart {self._restarts} of {self._most}).{lacks if self._others else ''}")
        kill_all([vector.processes[k]])
        vector.parent_pipes[k].close()
        context = multiprocessing.get_context("spawn")
        parent, child = context.Pipe()
        process = context.Process(
            target=run_worker, daemon=True,
            args=(k, CloudpickleWrapper(partial(self.bundles[k], restart=self._restarts)), child, parent, None,
                  vector.error_queue, vector.autoreset_mode))
        with child, trusted_modules():  # the new process has its own copy of this end
            try:
                process.start()
            except BaseException:
                parent.close()
                raise
        pipes, processes = cast(list[Any], vector.parent_pipes), cast(list[Any], vector.processes)
        shared = cast(dict[str, np.ndarray], vector.observations)
        processes[k], pipes[k] = process, WritingPipe(parent, {name: part[k] for name, part in shared.items()})
        self._kept.set_in(OneWorker(partial(self._ask, vector, k)))
        parent.send(("reset", {}))
        self.wait_for_answer(vector, k, time.monotonic() + self._timeout)
        (_, info), _ = pipes[k].recv()
        if "fault" in info:
            raise EnvError(info["fault"])

    def _ask(self, vector: "AsyncVectorEnv[Any, Any]", k: int, name: str, /, *arguments: Any, **options: Any
             ) -> list[Any]:
        """Call a method of the environments of one worker."""
        pipe = vector.parent_pipes[k]
        pipe.send(("_call", ("call_rows", (name, arguments, options), {})))
        self.wait_for_answer(vector, k, time.monotonic() + self._timeout)
        answer, success = pipe.recv()
        if not success or isinstance(answer, ProximoError):
            raise answer if success else self.fault(k, f"could not call {name}")
        return answer

    def call(self, name: str, /, *arguments: Any, **options: Any) -> list[Any]:
        found = super().call(name, *arguments, **options)
        if name not in READING and self._kept.changed(name, arguments, options, found):
            self._others.add(name)
        return found

    def state(self) -> dict[str, Any] | None:
        state = super().state()
        return None if state is None else self._kept.added_to(state | {"restarts": self._restarts})

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self._kept = KeptAttributes(state)
        self._restarts = int(state.get("restarts", 0))  # 0: saved without --restart-envs
