"""Entries of info in the last step of each episode, such as is_success, as metrics of the log (`--info-metrics`)."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np

from proximo.envs.gym_loop import GymEnvs
from proximo.envs.gym_source import EnvSource
from proximo.envs.masks import MaskReader
from proximo.protocols import Step


class InfoGymEnvs(GymEnvs):
    """GymEnvs whose steps have entries of info as metrics, in rows in which an episode ends; NaN elsewhere.

    Args:
        metrics: The keys of info.
        given: The arguments of GymEnvs.
        options: Its keyword arguments.
    """

    def __init__(self, metrics: Collection[str], *given: Any, **options: Any) -> None:
        self.metric_names = tuple(metrics)
        super().__init__(*given, **options)

    def _set_masks(self, masks: MaskReader | None) -> None:
        super()._set_masks(masks)
        self._values = {name: np.full(self.num_envs, np.nan, np.float32) for name in self.metric_names}
        self._quiet = self._quiet._replace(metrics=self._values)

    def _forget(self) -> None:
        for values in self._values.values():
            values.fill(np.nan)

    def reset(self) -> Step:
        """See VecEnv.reset."""
        self._forget()
        return super().reset()

    def step(self, action: np.ndarray) -> Step:
        """See VecEnv.step."""
        if self._any_over:
            self._forget()
        return super().step(action)

    def _end(self, i: int, observation: np.ndarray, terminated: Any, truncated: Any, info: Any) -> np.ndarray:
        for name, values in self._values.items():
            if name in info:
                try:
                    values[i] = info[name]
                except (TypeError, ValueError) as error:
                    raise self._fault(i, f"info[{name!r}] is {info[name]!r:.60} at the end of an episode; info_metrics "
                                         "needs a number") from error
        return super()._end(i, observation, terminated, truncated, info)


def rows_class(source: EnvSource) -> Callable[..., GymEnvs]:
    """Return what makes the environments of a source in one process, from the arguments of GymEnvs."""
    return partial(InfoGymEnvs, source.metrics) if source.metrics else GymEnvs
