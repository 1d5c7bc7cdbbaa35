"""Functions that proximo.train calls after every iteration, and some that end training."""

import numbers
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsFloat

from proximo.errors import COLUMNS, UsageError, call_part, is_column
from proximo.runs.logs.output import return_text

if TYPE_CHECKING:
    from proximo.types import Iteration

Callback = Callable[["Iteration"], Mapping[str, SupportsFloat] | None]  # returns metrics for the log, or None


class StopTraining(Exception):
    """Raised by a callback to end training: the run counts as finished after this iteration, and can be resumed."""


def run_callbacks(callbacks: Sequence[Callback], it: "Iteration") -> tuple[dict[str, float], str]:
    """Call every function once.

    Args:
        callbacks: The functions.
        it: The iteration.

    Returns:
        Their metrics under user/NAME, and why training should end; "" if it should not.

    Raises:
        UsageError: A function returned something else than numbers by name, a name that metrics.csv cannot hold, or
            one that another function returned too.
    """
    metrics: dict[str, float] = {}
    reason = ""
    for callback in callbacks:
        try:
            found = call_part("callbacks", callback, it)
        except StopTraining as stop:
            reason = str(stop) or "a callback ended training"
            continue
        if found is None:
            continue
        try:
            logged = {f"user/{_checked_name(name)}": float(value) for name, value in found.items()}
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError(f"A callback returned {found!r:.60}. Return None, or numbers by name such as "
                             '{"entropy": 0.5}. To end training, raise proximo.StopTraining.') from None
        if twice := sorted(metrics.keys() & logged.keys()):
            raise UsageError(f"Two callbacks returned the metric {', '.join(twice)}. Give each a name of its own.")
        metrics |= logged
    return metrics, reason


def _checked_name(name: object) -> str:
    if not is_column(name):
        raise UsageError(f"A callback returned a metric with the name {name!r:.60}. {COLUMNS}")
    return str(name)


def problems_of_callbacks(callbacks: object) -> list[str]:
    """Return what is wrong with the argument `callbacks`, one sentence for each part that is no function."""
    if isinstance(callbacks, (list, tuple)):
        makers = (stop_at, stop_at_evaluation, stop_after, stop_without_improvement)
        return [f"callbacks has {one.__name__}, which makes a callback. Call it: {one.__name__}(...)."
                for one in callbacks if any(one is maker for maker in makers)] + [
                f"callbacks has {one!r:.60}, which is not a function. Use functions of an iteration."
                for one in callbacks if not callable(one) or isinstance(one, type)] + [
                f"callbacks has {getattr(one, '__name__', type(one).__name__)}, which has state() and no load(state). "
                "A resume calls load() with what state() has returned: add it."
                for one in callbacks if has_method(one, "state") and not has_method(one, "load")]
    return [f"callbacks={callbacks!r:.60} is not a list of functions. Write callbacks=[FUNCTION]."]


def has_method(callback: object, name: str) -> bool:
    """Return whether a callback is an object, or a function, with such a method; not one that answers to any name."""
    found = name in getattr(callback, "__dict__", ()) or hasattr(type(callback), name)
    return found and not isinstance(callback, type) and callable(getattr(callback, name, None))


def _check_arguments(name: str, **values: object) -> None:
    """Check the arguments of a function that makes a callback.

    Args:
        name: The function.
        values: Its arguments: numbers, and counts, which are `episodes` and `iterations`.

    Raises:
        UsageError: They are no numbers, or counts below 1; one sentence for each.
    """
    wrong = []
    for argument, value in values.items():
        counts = argument in ("episodes", "iterations")
        if isinstance(value, bool) or not isinstance(value, numbers.Integral if counts else numbers.Real) or (
                value < 1 if counts else value != value):
            wrong.append(f"{name}: {argument}={value!r:.60} is not allowed. Use a "
                         f"{'whole number of at least 1' if counts else 'number'}.")
    if wrong:
        raise UsageError("\n".join(wrong))


def _with_state(name: str, callback: Callback, state: Callable[[], Any], load: Callable[[Any], None]) -> Callback:
    """Give a callback a name and a state, which is part of a checkpoint (runs/folder/callback_state.py)."""
    named: Any = callback
    named.__name__, named.state, named.load = name, state, load
    return callback


def stop_at(ret: float, episodes: int = 100) -> Callback:
    """Return a callback that ends training when the mean return of the last training episodes reaches a value.

    Args:
        ret: The value.
        episodes: How many episodes the mean is over; so many must have ended.

    Raises:
        UsageError: `ret` is not a number, or `episodes` not a whole number of at least 1.
    """
    _check_arguments("stop_at", ret=ret, episodes=episodes)
    returns: deque[float] = deque(maxlen=int(episodes))

    def callback(it: "Iteration") -> None:
        returns.extend(it.finished.ret.tolist())
        mean = sum(returns) / max(1, len(returns))
        if len(returns) == episodes and mean >= ret:
            raise StopTraining(f"the mean return of the last {episodes} episodes is {return_text(mean)}")

    def load(state: list[float]) -> None:
        returns.clear()
        returns.extend(state)

    return _with_state("stop_at", callback, lambda: list(returns), load)


def stop_at_evaluation(ret: float) -> Callback:
    """Return a callback that ends training when the mean return of an evaluation (`eval_every`) reaches a value.

    It has no state: an evaluation belongs to one iteration.

    Args:
        ret: The value.

    Raises:
        UsageError: `ret` is not a number. The callback raises it in a run without evaluations.
    """
    _check_arguments("stop_at_evaluation", ret=ret)

    def callback(it: "Iteration") -> None:
        if (mean := it.stats.get("eval/return_mean")) is None:
            raise UsageError("stop_at_evaluation: the run has no evaluations. Set eval_every to the number of "
                             "environment steps between two of them.")
        if mean >= ret:
            raise StopTraining(f"the mean return of the evaluation is {return_text(mean)}")

    return callback


def stop_after(seconds: float) -> Callback:
    """Return a callback that ends training after some time.

    Args:
        seconds: How long, counted from this call. A resume adds the time up to the checkpoint in earlier processes.

    Raises:
        UsageError: `seconds` is not a number.
    """
    _check_arguments("stop_after", seconds=seconds)
    begin = time.monotonic()

    def callback(it: "Iteration") -> None:
        if time.monotonic() - begin >= seconds:
            raise StopTraining(f"{seconds:g} seconds have passed")

    def load(passed: float) -> None:
        nonlocal begin
        begin = time.monotonic() - passed

    return _with_state("stop_after", callback, lambda: time.monotonic() - begin, load)


def stop_without_improvement(iterations: int, episodes: int = 100) -> Callback:
    """Return a callback that ends training when the mean return has had no new maximum for a while.

    Args:
        iterations: How many iterations without a new maximum end training.
        episodes: How many of the last training episodes the mean is over.

    Raises:
        UsageError: An argument is not a whole number of at least 1.
    """
    _check_arguments("stop_without_improvement", iterations=iterations, episodes=episodes)
    returns: deque[float] = deque(maxlen=int(episodes))
    best, best_iteration = float("-inf"), 0

    def callback(it: "Iteration") -> None:
        nonlocal best, best_iteration
        returns.extend(it.finished.ret.tolist())
        mean = sum(returns) / len(returns) if len(returns) == episodes else float("-inf")
        if mean > best or best == float("-inf"):
            best, best_iteration = mean, it.iteration
        if it.iteration - best_iteration >= iterations:
            raise StopTraining(f"the mean return of the last {episodes} episodes has not exceeded "
                               f"{return_text(best)} for {iterations} iterations")

    def load(state: tuple[list[float], float, int]) -> None:
        nonlocal best, best_iteration
        returns.clear()
        returns.extend(state[0])
        best, best_iteration = state[1:]

    return _with_state("stop_without_improvement", callback, lambda: (list(returns), best, best_iteration), load)
