"""Worker processes that are replaced when they die or stall (`--restart-envs N`)."""

import multiprocessing
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector.utils import CloudpickleWrapper

from proximo.envs.state.kept_attributes import READING, KeptAttributes
from proximo.envs.time_limit import TimeLeft
from proximo.envs.workers.ends import find_dead, kill_all
from proximo.envs.workers.envs import WorkerEnvs
from proximo.envs.workers.process import MakeRows, run_worker
from proximo.envs.workers.search_path import trusted_modules
from proximo.errors import EnvError, ProximoError, warn
from proximo.protocols import Step

BEFORE = ("keeps_state", "set_state")  # what is called before training: a worker that is lost then is not replaced


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
    the value of the last observation. If it was lost between two steps, these are its rows of the next one. Episodes
    begin in all of them, with seeds that depend on the seeds of the rows and on the number of the restart, so that a
    fault that depends on the seed is not repeated. They have the attributes that `call` has set, and otherwise nothing
    of those that they replace; a warning names what else was called.

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

    def step(self, action: np.ndarray) -> Step:
        self._time += 1
        with self._guarded() as vector:
            commands = [("step", part) for part in self.parts_of_action(action)]
            return self.join_answers(vector, 0, self._answers(vector, commands))

    def _call(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        if name in BEFORE:
            return super()._call(name, *arguments)
        with self._guarded() as vector:
            answers = self._answers(vector, [("_call", (name, arguments, {}))] * len(vector.processes))
            vector._raise_if_errors([success for _, success in answers])
            return tuple(answer for answer, _ in answers)

    def _answers(self, vector: "AsyncVectorEnv[Any, Any]", commands: Sequence[Any]) -> list[Any]:
        """Send each worker a command, and return all answers. Workers that are lost are replaced, and asked again."""
        answers: dict[int, Any] = {}
        while asked := [k for k in range(len(commands)) if k not in answers]:
            for k in asked:
                with suppress(OSError):  # it has ended; receiving says so too
                    vector.parent_pipes[k].send(commands[k])
            lost, left = dict[int, Exception](), TimeLeft(self._timeout)
            for k in asked:
                try:
                    self.wait_for_answer(vector, k, left)
                    answers[k] = vector.parent_pipes[k].recv()
                except (EOFError, OSError, EnvError) as error:
                    lost[k] = error
            for k, cause in lost.items():
                self._replace(vector, k, cause)
        return [answers[k] for k in range(len(commands))]

    def _join(self, parts: dict[str, np.ndarray], infos: dict[str, Any]) -> Step:
        step = super()._join(parts, infos)
        restarts = np.full(self.num_envs, self._restarts, np.float32)
        return step._replace(metrics=step.metrics | {"env_restarts": restarts})

    def _replace(self, vector: "AsyncVectorEnv[Any, Any]", k: int, error: Exception | None) -> None:
        """Start a new worker in place of a lost one, and another one where that is lost before it can be stepped."""
        while error is not None:
            self._count(vector, k, error)
            self._start(vector, k)
            error = self._begin(vector, k)

    def _count(self, vector: "AsyncVectorEnv[Any, Any]", k: int, error: Exception) -> None:
        """Count a lost worker and warn of it; EnvError if no more may be replaced."""
        dead = None if isinstance(error, EnvError) else find_dead(vector, k)
        fault = error if isinstance(error, EnvError) else self.fault(*(dead or (k, f"was lost ({error})")))
        if self._restarts == self._most:
            raise EnvError(f"{fault}. {self._most} workers were replaced before (--restart-envs).") from error
        self._restarts += 1
        lacks = f" Its environments get the attributes that call_envs has set, but not what these methods may have " \
                f"changed: {', '.join(sorted(self._others))}."
        warn(f"{fault}. It is replaced (restart {self._restarts} of {self._most}).{lacks if self._others else ''}")

    def _start(self, vector: "AsyncVectorEnv[Any, Any]", k: int) -> None:
        """End what is left of worker k, and start another process in its place."""
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

    def _begin(self, vector: "AsyncVectorEnv[Any, Any]", k: int) -> Exception | None:
        """Let the environments of a new worker begin episodes. Returns why the worker is lost, None if it is not."""
        last_obs = cast(dict[str, np.ndarray], vector.observations)["obs"][k].copy()
        try:
            self._kept.set_in(SimpleNamespace(call=partial(self._call_rows, vector, k)))
            fault = self._ask(vector, k, "begin_again", last_obs)
        except (EOFError, OSError, EnvError) as error:
            return error
        if fault is not None:
            raise fault
        return None

    def _call_rows(self, vector: "AsyncVectorEnv[Any, Any]", k: int, name: str, /, *arguments: Any, **options: Any
                   ) -> list[Any]:
        """Call a method of the environments of one worker."""
        found = self._ask(vector, k, "call_rows", name, arguments, options)
        if isinstance(found, ProximoError):
            raise found
        return cast(list[Any], found)

    def _ask(self, vector: "AsyncVectorEnv[Any, Any]", k: int, name: str, *arguments: Any) -> Any:
        """Call a method of the Bundle of one worker."""
        vector.parent_pipes[k].send(("_call", (name, arguments, {})))
        self.wait_for_answer(vector, k, TimeLeft(self._timeout))
        answer, success = vector.parent_pipes[k].recv()
        if not success:
            raise self.fault(k, f"could not call {name}")
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
