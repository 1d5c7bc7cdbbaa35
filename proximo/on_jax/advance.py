"""From one iteration to the next: one or several per call of a compiled function."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proximo.config import Config
from proximo.envs.arrays.moments import Statistics
from proximo.on_jax.device import compiler_options
from proximo.on_jax.networks import on_cpu
from proximo.on_jax.play_inside import InsidePlayer
from proximo.on_jax.player import Player
from proximo.on_jax.train_step import Metrics, StepFn, TrainState

MOST = 16  # iterations per call
MOST_STEPS = 8192  # environment steps per call
LONGEST = 0.05  # seconds: where a call takes longer, the next one does not run more iterations


class Results(NamedTuple):
    """What the host reads of an iteration: with np.array, because jax.device_get takes four times as long."""

    metrics: Metrics
    ok: Any  # () bool, every gradient was finite
    scale: Any  # () factor of the learning rate (--desired-kl)
    statistics: Statistics | None  # of normalisation


class Ended(NamedTuple):
    """A finished iteration, as the host sees it."""

    results: Results
    state: Callable[[], TrainState]  # returns the state after it; to be called before the next iteration begins


RunFn = Callable[[TrainState, int], tuple[TrainState, Results]]  # see run_several


class Started(NamedTuple):
    """A call of the compiled function, which may still be running."""

    when: float  # time.perf_counter() before it
    number: int  # of iterations
    after: TrainState
    stacked: Results


class Advance(Protocol):
    """Runs iterations."""

    def __call__(self, state: TrainState, done: int) -> tuple[TrainState, list[Ended]]:
        """Run at least one iteration, and none beyond the next checkpoint or the end. `state` must not be used
        afterwards.

        Args:
            state: The state after `done` iterations.
            done: Number of iterations so far, less than that of the run.

        Returns:
            The state after the last of them, and every one of them in order.
        """
        ...


def make_advance(cfg: Config, player: Player) -> Advance:
    """Choose how many iterations a call runs. Environments inside the compiled function allow several."""
    if isinstance(player, InsidePlayer) and (most_iterations(cfg) > 1 or not on_cpu()):
        run = jax.jit(partial(run_several, player.step, most_iterations(cfg)), compiler_options=compiler_options())
        return Several(run, cfg, ahead=not on_cpu())  # a call for a GPU returns before its results are there
    return OneByOne(player)


def most_iterations(cfg: Config) -> int:
    """Return how many iterations of one run a call may have."""
    return max(1, min(MOST, MOST_STEPS // (cfg.num_envs * cfg.num_steps)))


class OneByOne:
    """Runs one iteration per call; see Advance."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def __call__(self, state: TrainState, done: int) -> tuple[TrainState, list[Ended]]:
        after, metrics = self._player.iterate(state)
        return after, [Ended(read_results(after, metrics, self._player.statistics(after)), lambda: after)]


class Several:
    """Runs several iterations per call of the compiled function, with the same results; see Advance.

    Only the state after the last one is kept. If an earlier state is requested, which is rare, its iterations are run
    again by the same function. The number of iterations doubles from call to call, unless the last call took LONGEST
    or its last state was requested; it is 1 after an earlier state was requested. Results do not depend on it.
    """

    def __init__(self, run: RunFn, cfg: Config, ahead: bool) -> None:
        """Store what runs.

        Args:
            run: The compiled function.
            cfg: The hyper-parameters, for most_iterations(cfg) at most.
            ahead: Whether the next call starts before the results of this one are there, and these are copied to the
                host while it runs: where a call returns before its results are there.
        """
        self._run, self._capacity, self._ahead, self._pace = run, most_iterations(cfg), ahead, 1
        self._every, self._total, self._read = cfg.checkpoint_every, cfg.num_iterations, 0.0  # when results were read
        self._next: Started | None = None  # the call that runs already, from the state `after` of the last one
        self._after: TrainState | None = None

    def __call__(self, state: TrainState, done: int) -> tuple[TrainState, list[Ended]]:
        pace = self._pace
        runs = self._next if state is self._after else None  # another state has environments that were made again
        started = runs or self._start(state, done)
        count, after = started.number, started.after
        self._next = self._start(after, done + count) if self._ahead and done + count < self._total else None
        leaves, layout = jax.tree.flatten(started.stacked)
        arrays, began = [np.array(x) for x in leaves], max(started.when, self._read)
        self._after, self._read = after, time.perf_counter()
        if self._read - began < LONGEST:
            self._pace = min(2 * pace, self._capacity)
        reached = {0: state, count: after}  # by number of iterations since `state`
        paces = [1] * (count - 1) + [pace]
        return after, [Ended(jax.tree.unflatten(layout, [x[k] for x in arrays]),
                             partial(self._asked_for, reached, k + 1, paces[k])) for k in range(count)]

    def _start(self, state: TrainState, done: int) -> Started:
        began, count = time.perf_counter(), min(self._pace, self._every - done % self._every, self._total - done)
        started = Started(began, count, *self._run(state, count))
        for x in jax.tree.leaves(started.stacked) if self._ahead else ():
            x.copy_to_host_async()
        return started

    def _asked_for(self, reached: dict[int, TrainState], number: int, pace: int) -> TrainState:
        """Return the state after `number` iterations of a call, and limit the next call to `pace` iterations."""
        self._pace = min(self._pace, pace)
        nearest = max(known for known in reached if known <= number)
        if nearest < number:
            reached[number], _ = self._run(reached[nearest], number - nearest)
        return reached[number]


def run_several(step: StepFn, capacity: int, state: TrainState, count: Array) -> tuple[TrainState, Results]:
    """Run `count` iterations, as a pure function of JAX.

    Args:
        step: The function of one iteration.
        capacity: The largest count, which gives results their first axis.
        state: The state to begin with.
        count: () int32.

    Returns:
        The state after the last iteration, and the results of all, (capacity, ...), of which the first `count` are set.
    """
    def step_and_report(state: TrainState) -> tuple[TrainState, Results]:
        after, metrics = step(state)
        return after, Results(metrics, after.adam.ok, after.adam.scale, after.carry.statistics)

    def body(k: Array, now: tuple[TrainState, Results]) -> tuple[TrainState, Results]:
        after, results = step_and_report(now[0])
        return after, jax.tree.map(lambda rows, x: rows.at[k].set(x), now[1], results)

    _, shapes = jax.eval_shape(step_and_report, state)
    empty = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), shapes)
    return jax.lax.fori_loop(0, count, body, (state, empty))


def read_results(state: TrainState, metrics: Metrics, statistics: Statistics | None) -> Results:
    """Copy the results of an iteration to the host."""
    return jax.tree.map(np.array, Results(metrics, state.adam.ok, state.adam.scale, statistics))
