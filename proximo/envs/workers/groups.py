"""Worker processes in groups, each of which is stepped on its own (`--env-groups G`)."""

from collections.abc import Sequence

import numpy as np

from proximo.envs.time_limit import TimeLeft
from proximo.envs.workers.envs import WorkerEnvs
from proximo.envs.workers.process import MakeRows
from proximo.protocols import Step


class GroupedWorkers(WorkerEnvs):
    """WorkerEnvs of which one group can step while others wait for their actions (a GroupedVecEnv).

    Args:
        groups: Number of groups, which divides the number of workers.
        make_rows: See WorkerEnvs, like the others.
    """

    def __init__(self, groups: int, make_rows: MakeRows, seeds: Sequence[int], workers: int, timeout: float,
                 name: str) -> None:
        super().__init__(make_rows, seeds, workers, timeout, name)
        self.groups, self._workers_of_group = groups, workers // groups

    def send(self, group: int, action: np.ndarray) -> None:
        with self._guarded() as vector:
            for k, part in zip(self._workers(group), self.parts_of_action(action), strict=True):
                vector.parent_pipes[k].send(("step", part))

    def receive(self, group: int) -> Step:
        self._time += group == 0
        workers, left, answers = self._workers(group), TimeLeft(self._timeout), []
        with self._guarded() as vector:
            for k in workers:
                self.wait_for_answer(vector, k, left)
                answers.append(vector.parent_pipes[k].recv())
            return self.join_answers(vector, workers.start, answers)

    def _workers(self, group: int) -> range:
        return range(group * self._workers_of_group, (group + 1) * self._workers_of_group)
