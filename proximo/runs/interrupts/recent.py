"""A copy of the newest finished iteration, which is saved when the process must end during the next one."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from proximo.callbacks import Callback
from proximo.runs.folder.callback_state import packed_states
from proximo.runs.logs.log import Log
from proximo.types import Iteration

LEAST_SECONDS = 1.0  # between two copies
CHECKPOINT_SECONDS = 1.0  # least time between two scheduled checkpoints, unless all are kept
CHECKPOINT_SHARE = 0.02  # of the time, which writing them takes at most: mostly waiting for the disk
SHARE = 0.01  # of the time, which copying takes at most


class Content(NamedTuple):
    """The content of a checkpoint."""

    it: Iteration
    log: dict[str, Any]  # Log.state()
    callbacks: Sequence[dict[str, Any]] = ()  # packed_states()


class Recent:
    """Copies iterations: a checkpoint of one can be written while the next one changes weights and environments.

    Every iteration is copied that ends LEAST_SECONDS after the last copy or checkpoint, or later where copying takes
    long. All runs of a command are copied at the same iteration, so that they can continue together. Iterations whose
    snapshot does not continue exactly are not copied.

    Attributes:
        contents: The copy of each run, by its number.
    """

    def __init__(self) -> None:
        self.contents: dict[int, Content] = {}
        self._due, self._checkpoint_due = 0.0, -math.inf

    def offer(self, ended: Mapping[int, tuple[Iteration, Log, Sequence[Callback]]]) -> None:
        """Copy an iteration that these runs have just ended, if it is time."""
        begin = time.perf_counter()
        if begin < self._due or not all(it.keeps_state for it, *_ in ended.values()):
            return
        self.contents = {number: copied_content(*one) for number, one in ended.items()}  # replaced as a whole
        end = time.perf_counter()
        self._due = end + max(LEAST_SECONDS, (end - begin) / SHARE)

    def forget(self, seconds: float) -> None:
        """Forget the copies: a newer iteration was saved, which took so many seconds."""
        self.contents, now = {}, time.perf_counter()
        self._due = max(self._due, now + LEAST_SECONDS)
        self._checkpoint_due = now + seconds_between(seconds)

    def saved_just_now(self) -> bool:
        """Return whether an iteration was saved so recently that a scheduled checkpoint is left out."""
        return time.perf_counter() < self._checkpoint_due


def seconds_between(seconds: float) -> float:
    """Return the least time between two scheduled checkpoints, if writing one takes so many seconds."""
    return max(CHECKPOINT_SECONDS, seconds / CHECKPOINT_SHARE)


def copied_content(it: Iteration, log: Log, callbacks: Sequence[Callback]) -> Content:
    """Return a copy of an iteration that has just ended, and of the states of the callbacks after it."""
    snapshot, weights = copied(it.snapshot()), copied(it.weights())
    return Content(it=it._replace(snapshot=lambda: snapshot, weights=lambda: weights), log=log.state(),
                   callbacks=packed_states(callbacks))


def copied(tree: Any) -> Any:
    """Return a copy of nested dicts and lists of arrays, numbers and strings."""
    if isinstance(tree, dict):
        return {name: copied(part) for name, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [copied(part) for part in tree]
    return tree.copy() if isinstance(tree, np.ndarray) else tree
