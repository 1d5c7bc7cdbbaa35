"""Refuse snapshot(), weights() and call_envs() of an iteration when a later one has begun; keep what call_envs sets."""

from collections.abc import Callable, Generator
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec

from proximo.config import Config
from proximo.envs.state.kept_attributes import KeptAttributes
from proximo.errors import UsageError, warn_once
from proximo.protocols import MakeEnvs
from proximo.types import Iteration

REMADE = ("The state of these environments cannot be saved. They are made again every checkpoint_every iterations, "
          'without what call_envs has changed. An exception is it.call_envs("set_wrapper_attr", NAME, VALUE) with a '
          "number, a text, an array, or lists and dicts of these: new environments get the last value of each "
          "attribute.")

Arguments = ParamSpec("Arguments")


class Newest:
    """The newest iteration of a training: the only one whose snapshot(), weights() and call_envs() have a meaning.

    Args:
        kept: What call_envs has set, which snapshots contain.
    """

    def __init__(self, kept: KeptAttributes | None = None) -> None:
        self.number, self.closed, self._kept = 0, False, kept or KeptAttributes()

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
        if name == "call_envs" and self._kept.changed(arguments[0], arguments[1:], options, found) and \
                not it.keeps_state:
            warn_once(REMADE)
        return self._kept.added_to(found) if name == "snapshot" else found


def only_newest(train: Callable[Concatenate[Config, MakeEnvs, Arguments], Generator[Iteration, None, None]]
                ) -> Callable[Concatenate[Config, MakeEnvs, Arguments], Generator[Iteration, None, None]]:
    """Decorate a generator of iterations: their functions are refused when a later one has begun.

    Attributes that call_envs has set are part of the snapshots, and environments that are made again have them.
    """
    @wraps(train)
    def guarded(cfg: Config, make_envs: MakeEnvs, *args: Arguments.args, **kwargs: Arguments.kwargs
                ) -> Generator[Iteration, None, None]:
        state: Any = kwargs.get("state", args[2] if len(args) > 2 else None)  # make_agent, loss_fn, state
        kept = KeptAttributes(state)
        newest, training = Newest(kept), train(cfg, kept.making(make_envs), *args, **kwargs)
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
