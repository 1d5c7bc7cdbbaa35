"""Refuse snapshot(), weights() and call_envs() of an iteration when a later one has begun."""

from collections.abc import Callable, Generator
from functools import partial, wraps
from typing import Any, ParamSpec

from proximo.errors import UsageError, warn_once
from proximo.types import Iteration

REMADE = ("The state of these environments cannot be saved. They are made again every checkpoint_every iterations, "
          "without what call_envs has changed: let the function that makes them read such a value.")

Arguments = ParamSpec("Arguments")


class Newest:
    """The newest iteration of a training: the only one whose snapshot(), weights() and call_envs() have a meaning."""

    def __init__(self) -> None:
        self.number, self.closed = 0, False

    def guarded(self, it: Iteration) -> Iteration:
        """Return an Iteration whose functions raise UsageError when they are called too late."""
        return it._replace(snapshot=partial(self._call, it, "snapshot"), weights=partial(self._call, it, "weights"),
                           call_envs=partial(self._call, it, "call_envs"))

    def _call(self, it: Iteration, name: str, /, *arguments: Any, **options: Any) -> Any:
        if self.number != it.iteration:
            raise UsageError(f"{name}() of iteration {it.iteration} was called when iteration {self.number} had begun, "
                             "which changes what it returns. Call it before the next iteration.")
        if self.closed and name != "weights":
            raise UsageError(f"{name}() of iteration {it.iteration} was called when training had ended, which closes "
                             "the environments. Call it inside of the loop over iterations.")
        found = getattr(it, name)(*arguments, **options)
        if name == "call_envs" and not it.keeps_state:
            warn_once(REMADE)
        return found


def only_newest(train: Callable[Arguments, Generator[Iteration, None, None]]
                ) -> Callable[Arguments, Generator[Iteration, None, None]]:
    """Decorate a generator of iterations: their functions are refused when a later one has begun."""
    @wraps(train)
    def guarded(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Generator[Iteration, None, None]:
        newest, training = Newest(), train(*args, **kwargs)
        try:
            for it in training:
                newest.number = it.iteration
                yield newest.guarded(it)
                newest.number += 1
            newest.number -= 1
        finally:
            newest.closed = True
            training.close()

    return guarded
