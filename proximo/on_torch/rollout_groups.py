"""Collecting in groups of environments that take turns (`--env-groups G`): double-buffered sampling.

While one group steps, the policy acts for another one. The order of all computations is fixed, so that the result does
not depend on how long a step takes (Petrenko et al. 2020, arXiv 2006.11751, section 3.2).
"""

from copy import copy
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from proximo.config import Config
from proximo.envs.normalize import Normalizer, Statistics
from proximo.on_torch.modes import keep_gradients_off
from proximo.on_torch.rollout import Collected, Policy, Storage, bootstrap, choose_actions, finish
from proximo.protocols import GroupedVecEnv, Step, VecEnv
from proximo.types import Carry


class GroupedStorage(Storage):
    """A rollout buffer with one view of its columns per group of environments.

    Args:
        groups: Number of groups, which divides the number of environments.
        envs: See Storage, like the others.
    """

    def __init__(self, groups: int, envs: VecEnv, *others: Any) -> None:
        super().__init__(envs, *others)
        size = envs.num_envs // groups
        self.columns = [slice(g * size, (g + 1) * size) for g in range(groups)]
        self.groups = [view_columns(self, columns) for columns in self.columns]


def view_columns(storage: Storage, columns: slice) -> Storage:
    """Return a rollout buffer of some environments, whose arrays are views of those of `storage`."""
    part = copy(storage)
    part.arrays = {name: x[:, columns] for name, x in storage.arrays.items()}
    part.metrics = {name: x[:, columns] for name, x in storage.metrics.items()}
    part.host_rows, part.metric_rows = ({name: list(x) for name, x in arrays.items()}
                                        for arrays in (part.arrays, part.metrics))
    part.env_actions = [row[columns] for row in storage.env_actions]
    part.tensors = {name: x[:, columns] for name, x in storage.tensors.items()}
    part.rows = {name: list(x.unbind(0)) for name, x in part.tensors.items()}
    part.masks = part.rows.get("mask", [None] * len(storage.masks))
    return part


@torch.no_grad()
def collect_in_groups(policy: Policy, envs: VecEnv, normalizer: Normalizer, carry: Carry, storage: Storage,
                      noise: Tensor) -> Collected:
    """Play len(noise) steps in every group, in turns; see `collect`.

    Statistics of normalisation count the steps in the order of the groups. The action of a group is chosen when those
    of the groups before it were counted, and not yet those of the groups after it.
    """
    grouped, whole, statistics = cast(GroupedVecEnv, envs), cast(GroupedStorage, storage), carry.statistics
    states = [tuple(x[columns] for x in carry.state) for columns in whole.columns]
    bootstrapped = np.zeros(noise.shape[:2], bool)
    storage.start(carry)

    def act_and_send(g: int, t: int) -> None:
        states[g] = choose_actions(policy, whole.groups[g], t, states[g], noise[t, whole.columns[g]])
        grouped.send(g, whole.groups[g].env_actions[t])

    for g in range(len(states)):
        act_and_send(g, 0)
    for t in range(len(noise)):
        for g, columns in enumerate(whole.columns):
            statistics, step = normalize_columns(normalizer, statistics, columns, grouped.receive(g))
            keep_gradients_off()
            whole.groups[g].put(t, step)
            bootstrapped[t, columns] = bootstrap(policy, whole.groups[g], t, step, states[g])
            if t + 1 < len(noise):
                act_and_send(g, t + 1)
    state = tuple(torch.cat(parts) for parts in zip(*states, strict=True))
    return finish(policy, storage, storage.closing(state, statistics), bootstrapped)


def normalize_columns(normalizer: Normalizer, statistics: Statistics | None, columns: slice,
                      step: Step) -> tuple[Statistics | None, Step]:
    """Normalise the step of a group by the statistics of all environments."""
    if statistics is None:
        return normalizer.step(None, step)
    counted, step = normalizer.step(statistics._replace(running=statistics.running[columns]), step)
    running = statistics.running.copy()
    running[columns] = counted.running
    return counted._replace(running=running), step


def one_group(carry: Carry, cfg: Config) -> Carry:
    """Return the part of a carry that one group of environments has."""
    rows = slice(len(carry.obs) // cfg.env_groups)
    return carry._replace(obs=carry.obs[rows], mask=None if carry.mask is None else carry.mask[rows],
                          first=carry.first[rows], state=tuple(x[rows] for x in carry.state))
