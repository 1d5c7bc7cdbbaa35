"""Collecting T steps in N environments: which action each observation got, and what followed it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from proximo.envs.normalize import Normalizer, Statistics
from proximo.on_torch.device import host_zeros, keep_computed, local_copies
from proximo.on_torch.modes import keep_gradients_off
from proximo.part_checks import check_acted, check_rows
from proximo.protocols import COUNTS, Acted, Episode, Head, Step, VecEnv
from proximo.types import Carry, Rollout, RolloutBuffer


class Policy(NamedTuple):
    """The functions of an agent that collecting calls: its own methods, or the same, compiled."""

    act: Callable[..., Acted]  # (obs, mask, first, state, noise) -> Acted
    value: Callable[..., Tensor]  # (obs, first, state) -> (N,)
    evaluate: Callable[..., tuple[Tensor, Tensor, Tensor]]  # (storage, closing) -> logprob, value (T, N); V(closing)
    evaluates_later: bool  # Agent.evaluates_later


class Collected(NamedTuple):
    """The result of a rollout."""

    rollout: Rollout
    carry: Carry
    episode: Episode  # (T, N) numpy arrays
    metrics: dict[str, float]  # charts/<name>; see Step.metrics


class Storage(RolloutBuffer):
    """A rollout buffer of tensors, which networks read as `rows` and `masks`. Numpy environments share their memory."""

    def __init__(self, envs: VecEnv, obs_dtype: np.dtype[Any], num_steps: int, head: Head, mask_size: int | None,
                 device: torch.device, obs_rows: int | None = None) -> None:
        host, self.device, self.local = envs.arrays == "numpy", device, local_copies(device)

        def zeros(shape: tuple[int, ...], dtype: Any) -> Any:
            array = host_zeros(shape, dtype, device)
            return array if host else torch.from_numpy(array).to(device)

        super().__init__(envs, obs_dtype, num_steps, head, mask_size, zeros, obs_rows)
        self.tensors = keep_computed(device, {name: torch.from_numpy(x) if host else x
                                              for name, x in self.arrays.items()})
        self.rows = {name: list(x.unbind(0)) for name, x in self.tensors.items()}
        self.masks: list[Any] = self.rows.get("mask", [None] * (num_steps + 1))
        self.count_nonzero: Callable[[Any], Any] = np.count_nonzero if host else torch.count_nonzero

    def start(self, carry: Carry) -> None:
        """Write what the first action depends on."""
        self.rows["obs"][0].copy_(carry.obs)
        self.rows["first"][0].copy_(carry.first)
        if carry.mask is not None:
            self.masks[0].copy_(carry.mask)

    def closing(self, state: tuple[Tensor, ...], statistics: Statistics | None) -> Carry:
        """Return what the next rollout continues from."""
        last = self.masks[-1]
        return Carry(obs=self.rows["obs"][-1].to(self.device, copy=True), state=state, statistics=statistics,
                     first=self.rows["first"][-1].to(self.device, copy=True),
                     mask=None if last is None else last.to(self.device, copy=True))

    def whole(self, name: str) -> Tensor:
        """Return one array of the rollout on the device that learns."""
        return self.local(self.tensors[name])

    def rollout(self, logprob: Tensor, value: Tensor, next_value: Tensor) -> Rollout:
        """Return everything that learning reads."""
        terminated, truncated = self.whole("terminated"), self.whole("truncated")
        return Rollout(obs=self.whole("obs")[:-1], first=self.whole("first")[:-1],
                       mask=self.whole("mask")[:-1] if "mask" in self.tensors else None, action=self.whole("action"),
                       logprob=logprob, value=value, next_value=next_value, reward=self.whole("reward"),
                       terminated=terminated, done=terminated | truncated, valid=self.whole("valid"))

    def episode(self) -> Episode:
        """Return which episodes ended where, as numpy arrays (T, N)."""
        return Episode(finished=self.tensors["finished"].cpu().numpy(), ret=self.tensors["ret"].cpu().numpy(),
                       length=self.tensors["length"].cpu().numpy())

    def charts(self) -> dict[str, float]:
        """Return the mean of every further metric of the environments; of a count, what it is at the end."""
        return {f"charts/{name}": float(torch.as_tensor(x[-1] if name in COUNTS else x).nanmean())
                for name, x in self.metrics.items()}


def make_policy(agent: Any) -> Policy:
    """Bundle the functions of an Agent, not compiled."""
    later = make_evaluate_all(agent.evaluate) if agent.evaluates_later else make_evaluate_last(agent.value)
    return Policy(act=agent.act, value=agent.value, evaluate=later, evaluates_later=agent.evaluates_later)


def make_evaluate_all(evaluate: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Make Policy.evaluate for an agent that computes log-probabilities and values in one pass after the rollout."""
    def evaluate_all(storage: Storage, closing: Carry) -> tuple[Tensor, Tensor, Tensor]:
        mask = None if closing.mask is None else storage.whole("mask")[:-1]
        logprob, value = evaluate(storage.whole("obs"), mask, storage.whole("action"))
        return logprob, value[:-1], value[-1]

    return evaluate_all


def make_evaluate_last(value: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Make Policy.evaluate for an agent whose acting has returned log-probabilities and values already."""
    def evaluate_last(storage: Storage, closing: Carry) -> tuple[Tensor, Tensor, Tensor]:
        last = value(closing.obs, torch.zeros_like(closing.first), closing.state)
        return storage.whole("logprob"), storage.whole("value"), last

    return evaluate_last


@torch.no_grad()
def collect(policy: Policy, envs: VecEnv, normalizer: Normalizer, carry: Carry, storage: Storage,
            noise: Tensor) -> Collected:
    """Play len(noise) steps from `carry`. `noise` (T, N, ...) decides the actions. No gradient is recorded.

    V(final_obs) and V of the closing observation read the state of the recurrent layer, and do not advance it.
    """
    state, statistics, bootstrapped = carry.state, carry.statistics, np.zeros((len(noise), 1), bool)
    storage.start(carry)
    for t, step_noise in enumerate(noise.unbind(0)):
        state = choose_actions(policy, storage, t, state, step_noise)
        statistics, step = normalizer.step(statistics, envs.step(storage.env_actions[t]))
        keep_gradients_off()
        storage.put(t, step)
        bootstrapped[t] = bootstrap(policy, storage, t, step, state)
    return finish(policy, storage, storage.closing(state, statistics), bootstrapped)


def choose_actions(policy: Policy, storage: Storage, t: int, state: tuple[Tensor, ...],
                   noise: Tensor) -> tuple[Tensor, ...]:
    """Write the actions of step t, and what evaluates them. Return the state of the recurrent layer after it."""
    mask, local = storage.masks[t], storage.local
    acted = policy.act(local(storage.rows["obs"][t]), None if mask is None else local(mask),
                       local(storage.rows["first"][t]), state, noise)
    check_acted(acted, policy.evaluates_later, storage.rows["action"][t])
    storage.rows["action"][t].copy_(acted.action)
    if acted.value is not None:
        storage.rows["logprob"][t].copy_(acted.logprob)
        storage.rows["value"][t].copy_(acted.value)
    return acted.state


def bootstrap(policy: Policy, storage: Storage, t: int, step: Step, state: tuple[Tensor, ...]) -> bool:
    """Write V(final_obs) as row t if a time limit ended an episode in this step. Return whether one did."""
    cut = step.final_obs is not None and storage.count_nonzero(step.truncated) > 0  # any() takes five times as long
    if cut:
        final_obs = torch.as_tensor(step.final_obs, device=storage.device)
        never = torch.zeros(len(final_obs), dtype=torch.bool, device=storage.device)
        storage.rows["final_value"][t].copy_(policy.value(final_obs, never, state))
    return bool(cut)


def finish(policy: Policy, storage: Storage, closing: Carry, bootstrapped: np.ndarray) -> Collected:
    """Return what was played, and its values. final_value was written where `bootstrapped` (T, N) or (T, 1) is True."""
    logprob, value, last = policy.evaluate(storage, closing)
    check_rows(storage.tensors["reward"].shape, "a rollout", logprob=logprob, value=value)
    next_value = torch.cat([value[1:], last[None]])
    if bootstrapped.any():
        final = storage.whole("truncated") & torch.from_numpy(bootstrapped).to(storage.device)
        next_value = torch.where(final, storage.whole("final_value"), next_value)
    return Collected(storage.rollout(logprob, value, next_value), closing, storage.episode(), storage.charts())
