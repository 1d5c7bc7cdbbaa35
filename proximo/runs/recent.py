"""A copy of the newest finished iteration, which is saved when the process must end during the next one."""

import time
from typing import Any, NamedTuple

import numpy as np

from proximo.runs.log import Log
from proximo.types import Iteration

LEAST_SECONDS = 1.0  # between two copies
SHARE = 0.01  # of the time, which copying takes at most


class Content(NamedTuple):
    """The content of a checkpoint."""

    it: Iteration
    log: dict[str, Any]  # Log.state()


class Recent:
    """Copies iterations: a checkpoint of one can be written while the next one changes weights and environments.

    Every iteration is copied that ends LEAST_SECONDS after the last copy, or later where copying takes long.
    Iterations whose snapshot does not continue exactly are not copied.
    """

    def __init__(self) -> None:
        self.content: Content | None = None
        self._due = 0.0

    def offer(self, it: Iteration, log: Log) -> None:
        """Copy an iteration that has just ended, if it is time."""
        begin = time.perf_counter()
        if not it.keeps_state or begin < self._due:
            return
        snapshot, weights = copied(it.snapshot()), copied(it.weights())
        self.content = Content(it=it._replace(snapshot=lambda: snapshot, weights=lambda: weights), log=log.state())
        end = time.perf_counter()
        self._due = end + max(LEAST_SECONDS, (end - begin) / SHARE)

    def forget(self) -> None:
        """Forget the copy: a newer iteration was saved."""
        self.content = None


def copied(tree: Any) -> Any:
    """Return a copy of nested dicts and lists of arrays, numbers and strings."""
    if isinstance(tree, dict):
        return {name: copied(part) for name, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [copied(part) for part in tree]
    return tree.copy() if isinstance(tree, np.ndarray) else tree
