"""Collecting in groups of environments that take turns (`--env-groups G`): double-buffered sampling.

While one group steps, the policy acts for another one. The order of all computations is fixed, so that the result does
not depend on how long a step takes (Petrenko et al. 2020, arXiv 2006.11751, section 3.2).
"""

from copy import copy
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from proximo.envs.normalize import Normalizer, Statistics
from proximo.on_torch.modes import keep_gradients_off
from proximo.on_torch.rollout import Collected, Policy, Storage, finish
from proximo.part_checks import check_acted
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

    def act(g: int, t: int) -> None:
        states[g] = act_for_group(policy, whole.groups[g], states[g], t, noise[t, whole.columns[g]])
        grouped.send(g, whole.groups[g].env_actions[t])

    for g in range(len(states)):
        act(g, 0)
    for t in range(len(noise)):
        for g, columns in enumerate(whole.columns):
            statistics, step = normalize_columns(normalizer, statistics, columns, grouped.receive(g))
            keep_gradients_off()
            whole.groups[g].put(t, step)
            bootstrapped[t, columns] = bootstrap(policy, whole.groups[g], t, step, states[g])
            if t + 1 < len(noise):
                act(g, t + 1)
    rows, mask, device = storage.rows, storage.masks[-1], storage.device
    closing = Carry(obs=rows["obs"][-1].to(device, copy=True), first=rows["first"][-1].to(device, copy=True),
                    mask=None if mask is None else mask.to(device, copy=True),
                    state=tuple(torch.cat(parts) for parts in zip(*states, strict=True)), statistics=statistics)
    return finish(policy, storage, closing, bootstrapped)


def act_for_group(policy: Policy, group: Storage, state: tuple[Tensor, ...], t: int,
                  noise: Tensor) -> tuple[Tensor, ...]:
    """Choose the actions of a group at step t, and return the state of its recurrent layer."""
    rows, mask = group.rows, group.masks[t]
    acted = policy.act(group.local(rows["obs"][t]), None if mask is None else group.local(mask),
                       group.local(rows["first"][t]), state, noise)
    check_acted(acted, policy.evaluates_later, rows["action"][t])
    rows["action"][t].copy_(acted.action)
    if acted.value is not None:
        rows["logprob"][t].copy_(acted.logprob)
        rows["value"][t].copy_(acted.value)
    return acted.state


def bootstrap(policy: Policy, storage: Storage, t: int, step: Step, state: tuple[Tensor, ...]) -> bool:
    """Write V(final_obs) as row t where a time limit ended an episode in this step. Return whether one did."""
    if step.final_obs is None or not storage.count_nonzero(step.truncated):
        return False
    final_obs = torch.as_tensor(step.final_obs, device=storage.device)
    never = torch.zeros(len(final_obs), dtype=torch.bool, device=storage.device)
    storage.rows["final_value"][t].copy_(policy.value(final_obs, never, state))
    return True


def normalize_columns(normalizer: Normalizer, statistics: Statistics | None, columns: slice,
                      step: Step) -> tuple[Statistics | None, Step]:
    """Normalise the step of a group by the statistics of all environments."""
    if statistics is None:
        return normalizer.step(None, step)
    counted, step = normalizer.step(statistics._replace(running=statistics.running[columns]), step)
    running = statistics.running.copy()
    running[columns] = counted.running
    return counted._replace(running=running), step
