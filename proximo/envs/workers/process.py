"""What one worker process runs: some environments behind one Gymnasium environment that observes whole Steps."""

import logging
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.async_vector_env import _async_worker

from proximo.envs.arrays.joint_actions import action_shape, plain_space
from proximo.envs.arrays.obs_faults import space_layout
from proximo.envs.calls import call_envs, check_sent
from proximo.envs.time_limit import OWN_PORT
from proximo.envs.workers.ends import end_with_parent
from proximo.envs.workers.search_path import remove_path_variable
from proximo.errors import LOGGER, EnvError, ProximoError, UsageError
from proximo.protocols import Step, VecEnv

FLAGS = ("first", "mask", "terminated", "truncated", "valid", "finished")  # are transferred as int8
METRIC = "metrics."  # begins the names of what is in Step.metrics
LOST_STEP = "lost_step"  # of the state of a worker that has replaced another one, and has not been stepped since
FIELDS = ("obs", "first", "mask", "reward", "terminated", "truncated", "final_obs", "valid")
SOME_MASKS = ("the first reset() of some environments returns an action_mask, and that of others does not. Return it "
              "from every reset() and step()")


class RowEnvs(VecEnv, Protocol):
    """Environments that know the number of their first row among those of all workers."""

    first_index: int


class MakeRows(Protocol):
    """Makes environments in one process."""

    def __call__(self, seeds: Sequence[int], first_index: int = 0) -> RowEnvs: ...


class KeptMessages(logging.Handler):
    """Stores warnings of a worker process until the parent reads them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Store a message."""
        self.texts.append(record.getMessage())

    def take(self) -> str:
        """Return the stored messages, one per line, and remove them."""
        text, self.texts = "\n".join(self.texts), []
        return text


def run_worker(*arguments: Any) -> None:
    """Run Gymnasium's worker. If the parent has ended, nothing reads the answer, and there is nothing to report."""
    more = _async_worker.__code__.co_argcount - len(arguments)  # since Gymnasium 1.4, a semaphore
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _async_worker(*arguments, *[None] * more)


class Bundle(gymnasium.Env[Any, Any]):
    """Some environments behind one Gymnasium environment, for Gymnasium's AsyncVectorEnv.

    Gymnasium makes one in the parent too, to read its spaces. Therefore the environments are made when they are first
    needed.

    Args:
        make_rows: Makes the environments.
        seeds: One seed per environment of this worker.
        first_index: The number of the first environment among those of all workers.
        sample: A Step of one environment, which shows shapes and dtypes.
        action_space: Of one environment; see plain_space.
        action_dtype: Dtype in which actions are transferred.
        restart: How many workers were replaced before this one started.
    """

    def __init__(self, make_rows: MakeRows, seeds: Sequence[int], first_index: int, sample: Step,
                 action_space: spaces.Space[Any], action_dtype: np.dtype, restart: int = 0) -> None:
        self._make = partial(make_rows, restart_seeds(seeds, restart), first_index=first_index)
        self._made: RowEnvs | None = None
        self._lost_step: dict[str, np.ndarray] | None = None  # what the next step() returns; see begin_again
        self._messages = KeptMessages()
        self.observation_space: spaces.Dict = _step_space(sample, len(seeds))
        self._layouts = {name: space_layout(part) for name, part in self.observation_space.items()}
        self._expected, self._row = action_space, (sample.obs.shape[1:], sample.obs.dtype)
        self.action_space = _unbounded_box((len(seeds), *action_shape(action_space)), action_dtype)

    @property
    def _envs(self) -> RowEnvs:
        if self._made is None:
            self._begin_process()
            try:
                made = self._make()
            except EnvError as error:  # the parent has made one before, and closed it
                raise EnvError(str(error) if OWN_PORT in str(error) else f"{error}. {OWN_PORT}") from error
            if (made.obs_shape, made.obs_dtype) != self._row:
                shape, dtype = self._row
                raise UsageError(f"an environment has observations {made.obs_shape} {made.obs_dtype}, and another one "
                                 f"has {shape} {dtype}. All environments of a run need the same spaces.")
            if plain_space(made.action_space) != self._expected:
                raise UsageError(f"an environment has the action space {made.action_space}, and another one has "
                                 f"{self._expected}. All environments of a run need the same spaces.")
            self._made = made
        return self._made

    def _begin_process(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C
        signal.signal(signal.SIGTERM, lambda number, frame: None)  # and this, which schedulers send to all processes
        end_with_parent()
        remove_path_variable()
        if self._messages not in LOGGER.handlers:
            LOGGER.addHandler(self._messages)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any],
                                                                                                dict[str, Any]]:
        """Begin all environments again from their own seeds; `seed` and `options` are not used."""
        self._lost_step = None
        return self._observe(lambda: _flat_step(self._envs.reset()))

    def step(self, action: np.ndarray) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Step all environments of this worker. Reward and ends are parts of the observation."""
        lost, self._lost_step = self._lost_step, None
        observation, info = self._observe(lambda: _flat_step(self._envs.step(action)) if lost is None else lost)
        return observation, 0.0, False, False, info

    def begin_again(self, last_obs: np.ndarray) -> ProximoError | None:
        """Begin episodes in place of those of a lost worker. A fault is returned, as by call_rows.

        The next step() ends the lost episodes: its rows are truncated and not valid, and its action is not used.

        Args:
            last_obs: (rows, ...) the last observations of the lost episodes.
        """
        observation, info = self.reset()
        if "fault" in info:
            return EnvError(info["fault"])
        ends = np.ones(len(last_obs), bool)
        self._lost_step = {name: part.copy() for name, part in observation.items()}
        self._lost_step |= {"final_obs": last_obs, "truncated": ends, "valid": ~ends}
        return None

    def _observe(self, play: Callable[[], dict[str, np.ndarray]]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the parts of a Step. A fault is returned in info: if it were raised, Gymnasium would print it."""
        try:
            observation = play()
            if ("mask" in observation) != ("mask" in self.observation_space.spaces):
                raise EnvError(f"environments {self._envs.first_index} and following: {SOME_MASKS}")
            return observation, {"said": self._messages.take()} if self._messages.texts else {}
        except (ProximoError, KeyboardInterrupt) as error:  # by an environment: Ctrl-C does not reach this process
            fault = str(error) if isinstance(error, ProximoError) else (
                f"environment {self._envs.first_index}, or another one in its process, raised KeyboardInterrupt")
            empty = {name: np.zeros(shape, dtype) for name, (shape, dtype) in self._layouts.items()}
            return empty, {"fault": fault}

    @property
    def keeps_state(self) -> bool:
        """See VecEnv.keeps_state. The parent reads this and calls the following methods by name."""
        return self._envs.keeps_state

    def get_state(self) -> dict[str, Any] | None:
        """Return the state of this worker's environments."""
        state = self._envs.state()
        return state if state is None or self._lost_step is None else state | {LOST_STEP: self._lost_step}

    def set_state(self, states: dict[str, dict[str, Any]]) -> None:
        """Continue from this worker's part of `states`, which has the number of its first environment as key."""
        state = states[str(self._envs.first_index)]
        self._envs.load(state)
        lost = state.get(LOST_STEP)
        self._lost_step = None if lost is None else {name: np.asarray(lost[name], dtype).reshape(shape)
                                                     for name, (shape, dtype) in self._layouts.items()}

    def get_picture(self) -> np.ndarray | None:
        """Return a picture of the first environment of all workers."""
        return self._envs.render() if self._envs.first_index == 0 else None

    def call_rows(self, name: str, arguments: Sequence[Any], options: dict[str, Any]) -> list[Any] | ProximoError:
        """Call a method of every environment. A fault is returned: if it were raised, Gymnasium would print it."""
        try:
            found = call_envs(self._envs, name, *arguments, **options)
            check_sent(found, f"call_envs({name!r}): the result")
            return found
        except ProximoError as error:
            return error

    def close(self) -> None:
        """Close the environments."""
        if self._made is not None:
            self._made.close()


def _unbounded_box(shape: tuple[int, ...], dtype: np.dtype) -> spaces.Box:
    if dtype.kind == "b":
        return spaces.Box(0, 1, shape, np.int8)
    if np.issubdtype(dtype, np.integer):
        whole: Any = dtype
        return spaces.Box(np.iinfo(whole).min, np.iinfo(whole).max, shape, whole)
    return spaces.Box(-np.inf, np.inf, shape, dtype)  # type: ignore[arg-type]


def _flat_step(step: Step) -> dict[str, np.ndarray]:
    parts = {name: getattr(step, name) for name in FIELDS} | step.episode._asdict()
    parts |= {METRIC + name: values for name, values in step.metrics.items()}
    return {name: part for name, part in parts.items() if part is not None}


def _step_space(sample: Step, rows: int) -> spaces.Dict:
    return spaces.Dict({name: _unbounded_box((rows, *part.shape[1:]), part.dtype)
                        for name, part in _flat_step(sample).items()})


def restart_seeds(seeds: Sequence[int], restart: int) -> list[int]:
    """Return the seeds of environments that replace others: 31 bits each; those given for restart 0."""
    if not restart:
        return list(seeds)
    return [int(np.random.SeedSequence((seed, restart)).generate_state(1)[0]) % 2**31 for seed in seeds]
