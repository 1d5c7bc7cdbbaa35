"""Metrics of a VectorEnv from `info`, which holds arrays of all environments: of last steps, and of every step."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from proximo.envs.arrays.batch_rows import ArrayKind
from proximo.envs.custom.steps import described
from proximo.envs.info_metrics import warn_of_missing
from proximo.errors import UsageError
from proximo.protocols import Array


class VectorMetrics:
    """Reads metrics (N,) from `info`; NaN where there is none.

    Attributes:
        names: Of all metrics.

    Args:
        ends: Entries of info in the last steps of episodes, or of info["final_info"].
        steps: Entries of info, or of info["log"], in every step: an array (N,), or one number for all.
        kind: The arrays of the environments.
        name: The name of the environments, for messages.
        num_envs: N.
    """

    def __init__(self, ends: Sequence[str], steps: Sequence[str], kind: ArrayKind, name: str, num_envs: int) -> None:
        self._ends, self._steps, self._kind, self._name, self._num_envs = ends, steps, kind, name, num_envs
        self.names = tuple(dict.fromkeys((*ends, *steps)))
        self._unseen = set(self.names)  # until the first episode ends

    def none(self) -> dict[str, Array]:
        """Return NaN."""
        return {name: self._kind.zeros((self._num_envs,), np.float32) + np.nan for name in self.names}

    def read(self, info: Mapping[str, Any], over: Array, valid: Array) -> dict[str, Array]:
        """Return the metrics of a step.

        Args:
            info: What step() returned.
            over: (N,) bool, where episodes end.
            valid: (N,) bool, False where the step only reset an environment.
        """
        last, log = (x if isinstance(x := info.get(key), Mapping) else usual
                     for key, usual in (("final_info", info), ("log", {})))
        found = self.none()
        for name in self._ends:
            self._fill(found, name, last, over)
        for name in self._steps:
            self._fill(found, name, info if name in info else log, valid, for_all=True)
            if last is not info and (name in info or name in last):  # info is that of the reset where an episode ended
                found[name] = self._kind.where(over, np.nan, found[name])
                self._fill(found, name, last, over, for_all=True)
        if self._unseen and bool(over.any()):
            read = {*last, *log} - {"log"} if self._unseen & {*self._steps} else {*last}
            warn_of_missing(sorted(self._unseen), read, self._name)
            self._unseen.clear()
        return found

    def _fill(self, found: dict[str, Array], name: str, entries: Mapping[str, Any], rows: Array,
              for_all: bool = False) -> None:
        """Write an entry of info into the metric, where `rows` are True and the entry is known."""
        if name not in entries:
            return
        self._unseen.discard(name)
        x, kind = entries[name], self._kind
        wanted: tuple[tuple[int, ...], ...] = ((self._num_envs,), ()) if for_all else ((self._num_envs,),)
        said = f"{self._name}.step() returned info[{name!r}] {described(x)}, which is named as a metric."
        if getattr(x, "shape", () if isinstance(x, (int, float)) else None) not in wanted:
            raise UsageError(f"{said} Its shape has to be {' or '.join(map(str, wanted))}.")
        try:
            values = kind.cast(x, np.float32)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{said} It has to be numbers.") from error
        known = rows & kind.cast(entries.get(f"_{name}", rows | ~rows), np.bool_)
        found[name] = kind.where(known, values, found[name])
