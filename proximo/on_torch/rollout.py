"""Playing T steps in N environments: who acts on what, and what truly followed each action."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from proximo.protocols import Step, VecEnv


class Carry(NamedTuple):
    """What acting goes on from: exactly an agent's arguments, in its order."""

    obs: Tensor  # (N, *obs_shape)
    mask: Tensor | None  # (N, A) bool
    first: Tensor  # (N,) bool
    state: tuple[Tensor, ...]  # the memory's, (N, memory_size) each; () without memory


class Rollout(NamedTuple):
    """One batch, time first. Its tensors are the storage's own: read them before the next collect."""

    obs: Tensor  # (T, N, *obs_shape)
    first: Tensor  # (T, N) bool
    mask: Tensor | None  # (T, N, A) bool
    action: Tensor  # (T, N, *action_shape)  as sampled, before clipping to bounds
    logprob: Tensor  # (T, N)   of the action, under the policy that took it
    value: Tensor  # (T, N)     V(obs[t])
    next_value: Tensor  # (T, N)  V of what really followed action[t]: V(final_obs) where truncated
    reward: Tensor  # (T, N)
    terminated: Tensor  # (T, N) bool  no bootstrap
    done: Tensor  # (T, N) bool  terminated or truncated: cuts the recursion of gae
    valid: Tensor  # (T, N) bool  False for filler rows: no part of loss, statistics or step counts


class Ended(NamedTuple):
    """Episodes that ended in one rank's rollout, in order of time, and the means of other metrics."""

    time: np.ndarray  # (k,) step t of the rollout
    row: np.ndarray  # (k,) environment
    ret: np.ndarray  # (k,) raw return
    length: np.ndarray  # (k,) decisions
    metrics: dict[str, float]


class Policy(NamedTuple):
    """The closed functions that play: an agent's own methods, or the same frozen ahead of time."""

    act: Callable  # (obs, mask, first, state, noise) -> Acted
    value: Callable  # (obs, first, state) -> (N,)
    evaluate: Callable | None  # (obs, mask, action) -> logprob (T, N), value (T + 1, N); None: act hands them out


class Storage:
    """Preallocated arrays of one rollout: tensors to learn from, and views that the environments' arrays go into."""

    def __init__(self, envs: VecEnv, num_steps: int, head: Any, mask_size: int | None, device: torch.device):
        self.host = envs.arrays == "numpy"
        self.device = device
        lead, place = (num_steps, envs.num_envs), torch.device("cpu") if self.host else device
        dtype = torch.from_numpy(np.empty(0, envs.obs_dtype)).dtype

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=place)

        self.tensors = {
            "obs": empty(num_steps + 1, envs.num_envs, *envs.obs_shape, dtype=dtype),
            "first": empty(num_steps + 1, envs.num_envs, dtype=torch.bool),
            "action": empty(*lead, *head.action_shape, dtype=head.action_dtype),
            **{name: empty(*lead) for name in ("logprob", "value", "final_value", "reward", "ret")},
            **{name: empty(*lead, dtype=torch.bool) for name in ("terminated", "truncated", "valid", "finished")},
            "length": empty(*lead, dtype=torch.int32)}
        if mask_size is not None:
            self.tensors["mask"] = empty(num_steps + 1, envs.num_envs, mask_size, dtype=torch.bool)
        self.metrics = {name: empty(*lead) for name in envs.metric_names}
        every = self.tensors | self.metrics
        self.rows = {name: list(x.unbind(0)) for name, x in every.items()}
        self.views = {name: [row.numpy() for row in rows] if self.host else rows for name, rows in self.rows.items()}
        self.actions_to_step = [row.reshape(envs.num_envs, *envs.action_space.shape)
                                for row in self.views["action"]]

    def put(self, t: int, step: Step) -> None:
        """What came of the action at t: obs, first and mask belong to t + 1."""
        views = self.views
        views["obs"][t + 1][...] = step.obs
        views["first"][t + 1][...] = step.first
        if step.mask is not None:
            views["mask"][t + 1][...] = step.mask
        views["reward"][t][...] = step.reward
        views["terminated"][t][...] = step.terminated
        views["truncated"][t][...] = step.truncated
        views["valid"][t][...] = step.valid
        views["finished"][t][...] = step.episode.finished
        views["ret"][t][...] = step.episode.ret
        views["length"][t][...] = step.episode.length
        for name, value in step.metrics.items():
            views[name][t][...] = value

    def all(self, name: str) -> Tensor | None:
        """A whole buffer on the device that learns; None where the suite has none (mask)."""
        return self.tensors[name].to(self.device) if name in self.tensors else None


def collect(policy: Policy, envs: VecEnv, carry: Carry, storage: Storage,
            noise: Tensor) -> tuple[Rollout, Carry, Ended]:
    """Play len(noise) steps from `carry`; `noise` (T, N, ...) decides the actions. Nothing here is differentiated."""
    rows, device = storage.rows, storage.device
    num_steps, state, never = len(noise), carry.state, torch.zeros_like(carry.first)
    here = _unmoved if device.type == "cpu" else partial(torch.Tensor.to, device=device)
    rows["obs"][0].copy_(carry.obs)
    rows["first"][0].copy_(carry.first)
    if carry.mask is not None:
        rows["mask"][0].copy_(carry.mask)
    masks = rows.get("mask", [None] * (num_steps + 1))
    obs_rows, first_rows, action_rows, final_rows = rows["obs"], rows["first"], rows["action"], []
    for t, step_noise in enumerate(noise.unbind(0)):
        mask = None if masks[t] is None else here(masks[t])
        acted = policy.act(here(obs_rows[t]), mask, here(first_rows[t]), state, step_noise)
        state = acted.state
        action_rows[t].copy_(acted.action)
        if acted.value is not None:
            rows["logprob"][t].copy_(acted.logprob)
            rows["value"][t].copy_(acted.value)
        step = envs.step(storage.actions_to_step[t])
        storage.put(t, step)
        if step.final_obs is not None and step.truncated.any():
            final_obs = torch.as_tensor(step.final_obs, device=device)
            rows["final_value"][t].copy_(policy.value(final_obs, never, state))
            final_rows.append(t)
    closing = Carry(rows["obs"][-1].to(device), None if masks[-1] is None else masks[-1].to(device),
                    rows["first"][-1].to(device), state)
    logprob, value, closing_value = _evaluated(policy, storage, closing, never)
    next_value = torch.cat([value[1:], closing_value[None]])
    if final_rows:
        known = torch.zeros(num_steps, 1, dtype=torch.bool)
        known[final_rows] = True
        next_value = torch.where(storage.all("truncated") & known.to(device), storage.all("final_value"), next_value)
    mask = storage.all("mask")
    truncated, terminated = storage.all("truncated"), storage.all("terminated")
    rollout = Rollout(storage.all("obs")[:-1], storage.all("first")[:-1], None if mask is None else mask[:-1],
                      storage.all("action"), logprob, value, next_value, storage.all("reward"), terminated,
                      terminated | truncated, storage.all("valid"))
    kept_mask = None if closing.mask is None else closing.mask.clone()
    return rollout, Carry(closing.obs.clone(), kept_mask, closing.first.clone(), state), _finished(storage)


def _unmoved(x: Tensor) -> Tensor:
    """Tensors of a CPU's storage are where they learn: Tensor.to costs a microsecond even then."""
    return x


def _evaluated(policy: Policy, storage: Storage, closing: Carry, never: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """logprob (T, N), value (T, N) and V of the closing observation (N,), which never advances the carry's state."""
    if policy.evaluate is None:
        return storage.all("logprob"), storage.all("value"), policy.value(closing.obs, never, closing.state)
    mask = storage.all("mask")
    logprob, value = policy.evaluate(storage.all("obs"), None if mask is None else mask[:-1], storage.all("action"))
    return logprob, value[:-1], value[-1]


def _finished(storage: Storage) -> Ended:
    tensors = storage.tensors
    time, row = (index.cpu().numpy() for index in torch.nonzero(tensors["finished"], as_tuple=True))
    means = {f"charts/{name}": float(x.nanmean()) for name, x in storage.metrics.items()}
    return Ended(time, row, tensors["ret"].cpu().numpy()[time, row], tensors["length"].cpu().numpy()[time, row],
                    means)
