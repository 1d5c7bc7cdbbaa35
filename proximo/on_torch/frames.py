"""A rollout of stacked frames, in which each frame is stored once: minibatches join their stacks when they are read."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from proximo.config import Config
from proximo.errors import EnvError
from proximo.on_torch.device import host_zeros
from proximo.on_torch.rollout import Storage
from proximo.protocols import FrameStack, Head, Step, VecEnv
from proximo.types import Carry, Rollout


class FrameStacks(NamedTuple):
    """Observations that share their frames, as `obs` of Rollout and Batch: with the methods of a tensor that learning
    calls."""

    frames: Tensor  # (slots, C, H, W)
    slots: Tensor  # (..., K) int64, where the frames of each observation are, oldest first

    def flatten(self, start: int, end: int) -> "FrameStacks":
        """Return the same observations with the leading axes `start` to `end` as one."""
        return self._replace(slots=self.slots.flatten(start, end))

    def index_select(self, axis: int, index: Tensor) -> Tensor:
        """Return some observations as a tensor (..., K * C, H, W)."""
        slots = self.slots.index_select(axis, index)
        return self.frames.index_select(0, slots.flatten()).view(*slots.shape[:-1], -1, *self.frames.shape[2:])

    def split(self, rows: int) -> Iterator[Tensor]:
        """Yield all observations in parts of at most `rows`."""
        every = torch.arange(len(self.slots), device=self.slots.device)
        return (self.index_select(0, part) for part in every.split(rows))


class FrameStorage(Storage):
    """A rollout buffer for observations that are stacks of frames: it needs a K-th of the memory.

    Only the observation that is acted on is there as a whole; every row of `obs` is that one. The frames of the first
    observation, one frame of each later one, the channels that never change, and a black frame have slots in one array.

    Args:
        envs: The environments, which have `frames` and arrays of numpy.
        obs_dtype: See RolloutBuffer, like the others.
        num_steps: T.
        head: Of the agent.
        mask_size: Actions that a mask covers.
        device: Where learning takes place.
    """

    def __init__(self, envs: VecEnv, obs_dtype: np.dtype[Any], num_steps: int, head: Head, mask_size: int | None,
                 device: torch.device) -> None:
        super().__init__(envs, obs_dtype, num_steps, head, mask_size, device, obs_rows=1)
        for rows in (self.host_rows, self.rows):
            rows["obs"] *= num_steps + 1
        stack = envs.frames
        assert stack is not None, "stored_frames() was asked before"
        self._name, self._length, width = type(envs).__name__, stack.length, stack.length * stack.channels
        obs: np.ndarray = self.arrays["obs"][0]
        count, shape = len(obs), (stack.channels, *obs.shape[2:])
        self._stacked, self._constant = obs[:, :width].reshape(count, stack.length, *shape), obs[:, width:]
        timed, constant = (num_steps + stack.length) * count, self._constant.shape[1] * count
        self._frames = host_zeros((timed + constant + 1, *shape), obs_dtype, device)
        self._by_time = self._frames[:timed].reshape(-1, count, *shape)
        self._constants = self._frames[timed:-1].reshape(count, -1, *shape)
        self._slots = np.zeros((num_steps + 1, count, stack.length + constant // count), np.int64)
        self._slots[0, :, :stack.length] = np.arange(stack.length * count).reshape(stack.length, count).T
        self._slots[:, :, stack.length:] = np.arange(timed, timed + constant).reshape(count, -1)

    def start(self, carry: Carry) -> None:
        """Write what the first action depends on. Its stack is stored whole, because the rollout lacks its frames."""
        super().start(carry)
        self._by_time[:self._length] = self._stacked.swapaxes(0, 1)
        self._constants[...] = self._constant[:, :, None]

    def put(self, t: int, step: Step) -> None:
        """Write what followed the action at t."""
        super().put(t, step)
        self._by_time[t + self._length] = self._stacked[:, -1]
        before, after, stacked = self._slots[t], self._slots[t + 1], slice(self._length - 1)
        after[:, stacked] = before[:, 1:self._length]
        after[:, self._length - 1] = np.arange(len(after)) + (t + self._length) * len(after)
        for n in np.flatnonzero(step.first).tolist():
            after[n, stacked] = self._first_slots(n, after[n])

    def _first_slots(self, n: int, slots: np.ndarray) -> Any:
        """Return the slots of the older frames of an episode's first observation; `slots` continue the stack."""
        older = self._stacked[n, :-1]
        black = len(self._frames) - 1
        for found in (slots[self._length - 1], black, slots[:self._length - 1]):
            if (self._frames[found] == older).all():
                return found
        raise EnvError(f"environment {n}: {self._name} declares stacks of {self._length} frames, but the first "
                       "observation of an episode neither repeats its frame, nor begins with black ones, nor continues "
                       "the last stack. Set `frames = None` in that class.")

    def rollout(self, logprob: Tensor, value: Tensor, next_value: Tensor) -> Rollout:
        """Return everything that learning reads."""
        frames, slots = torch.from_numpy(self._frames), torch.from_numpy(self._slots[:-1])
        return super().rollout(logprob, value, next_value)._replace(
            obs=FrameStacks(frames=self.local(frames), slots=self.local(slots)))


def stored_frames(cfg: Config, envs: VecEnv) -> FrameStack | None:
    """Return how to store observations as single frames; None if they are stored whole.

    Normalised observations are no stacks of the same frames any more. For small vectors it is not worth the time. The
    rollout buffers of groups of environments (--env-groups) are views of one array of whole observations. A channel
    that never changes has the place of a frame, so that there are none beside frames of several channels.
    """
    stack = envs.frames
    if stack is None or stack.length == 1 or cfg.model == "mlp" or cfg.norm_obs or cfg.env_groups > 1:
        return None
    fits = stack.channels == 1 or envs.obs_shape[0] == stack.length * stack.channels
    return stack if fits else None
