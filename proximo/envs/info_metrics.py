"""Entries of info in the last step of each episode, such as is_success, as metrics of the log (`--info-metrics`)."""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import numpy as np

from proximo.envs.arrays.masks import MaskReader
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.gym_source import EnvSource
from proximo.errors import warn_once
from proximo.protocols import Step

MOST_KEYS = 20  # entries of info in a message


class InfoGymEnvs(GymEnvs):
    """GymEnvs whose steps have entries of info as metrics, in rows in which an episode ends; NaN elsewhere.

    Args:
        metrics: The keys of info.
        given: The arguments of GymEnvs.
        options: Its keyword arguments.
    """

    def __init__(self, metrics: Collection[str], *given: Any, **options: Any) -> None:
        self.metric_names = tuple(metrics)
        self._ended = False  # whether an episode has
        super().__init__(*given, **options)

    def _set_masks(self, masks: MaskReader | None) -> None:
        super()._set_masks(masks)
        self._values = {name: np.full(self.num_envs, np.nan, np.float32) for name in self.metric_names}
        self._quiet = self._quiet._replace(metrics=self._values)

    def _forget(self) -> None:
        for values in self._values.values():
            values.fill(np.nan)

    def reset(self) -> Step:
        self._forget()
        return super().reset()

    def step(self, action: np.ndarray) -> Step:
        if self._any_over:
            self._forget()
        return super().step(action)

    def _end(self, i: int, observation: np.ndarray, terminated: Any, truncated: Any, info: Any) -> np.ndarray:
        if not self._ended and (missing := [name for name in self.metric_names if name not in info]):
            warn_of_missing(missing, info, self._env_id)
        self._ended = True
        for name, values in self._values.items():
            if name in info:
                try:
                    values[i] = np.asarray(info[name]).item()  # also of an array of one number
                except (TypeError, ValueError) as error:
                    raise self._fault(i, f"info[{name!r}] is {info[name]!r:.60} at the end of an episode; info_metrics "
                                         "needs a number") from error
        return super()._end(i, observation, terminated, truncated, info)


def warn_of_missing(missing: Iterable[str], known: Iterable[str], env_id: str) -> None:
    """Warn once of metrics that info does not have when the first episode ends, with the entries that it has.

    Args:
        missing: The names that info lacks.
        known: The keys of info. A key of Gymnasium's VectorEnv that begins with _ says which rows have an entry.
        env_id: The name of the environments.
    """
    names = sorted(str(key) for key in known if not str(key).startswith(("_", "final_")))
    more = f" and {len(names) - MOST_KEYS} others" * (len(names) > MOST_KEYS)
    has = f"It has {', '.join(names[:MOST_KEYS])}{more}." if names else "It has no entries."
    warn_once(f"{env_id}: info has no {', '.join(missing)} at the end of the first episode. {has} A metric that never "
              "appears is an empty column of the log.")


def rows_class(source: EnvSource) -> Callable[..., GymEnvs]:
    """Return what makes the environments of a source in one process, from the arguments of GymEnvs."""
    return partial(InfoGymEnvs, source.metrics) if source.metrics else GymEnvs
