"""--compile on a CPU: all that happens between two steps of the environments, as one compiled call.

It normalises what a step returned, writes it into the rollout buffer and chooses the next action. On HalfCheetah this
takes a quarter of the time of separate calls, each of which begins with code that is not in the CPU's caches.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proximo.config import Config
from proximo.envs.arrays import torch_arrays
from proximo.envs.arrays.moments import IN_MODELS, Moments, Statistics
from proximo.envs.normalize import Normalizer, apply_statistics, count_step
from proximo.on_torch.compile.aot import TensorFunction
from proximo.on_torch.modes import keep_gradients_off
from proximo.on_torch.rollout import Collected, Policy, Storage, bootstrap, finish
from proximo.protocols import Acted, Agent, Step, VecEnv
from proximo.types import Carry

SCALARS = ("gamma", "clip_obs", "clip_norm_reward")  # settings of normalisation
WRITTEN = ("obs", "reward", "action")  # arrays of the rollout buffer that are written
WITHOUT_WHERE = (torch.uint16, torch.uint32, torch.uint64)  # dtypes that torch.where does not compile
OTHERS = {"first": False, "terminated": False, "truncated": False, "finished": False, "ret": 0, "length": 0,
          "valid": True}  # the arrays that are only written where an episode ends, and what they are elsewhere


def can_fuse(agent: Agent, storage: Storage, carry: Carry) -> bool:
    """Return whether a step has no more parts than observations in numpy, rewards and actions."""
    host = type(storage) is Storage and storage.count_nonzero is np.count_nonzero
    whole = carry.statistics is None or carry.statistics.obs.mean.shape == carry.obs.shape[1:]
    simple = agent.evaluates_later and not agent.recurrent and carry.mask is None and not storage.metrics
    return host and whole and simple and carry.obs.dtype not in WITHOUT_WHERE


def make_advance(act: Callable[..., Acted], num_steps: int, cfg: Config) -> TensorFunction:
    """Make the function that FusedStep calls, of tensors only. It returns nothing.

    Its arguments, which it changes in place where they are arrays of a rollout or statistics:
        row: (1,) int64, the row of the observation to act on, 0 to T.
        is_new: () bool, whether `obs` and `reward` become this row and the reward before it.
        obs, reward: (N, *obs_shape) and (N,) as the environments return them.
        noise: (T, N, ...), decides the actions.
        all_obs, all_rewards, all_actions: (T + 1, N, *obs_shape), (T, N) and (T, N, *action_shape).
        gamma, clip_obs, clip_norm_reward: () float64 each, and statistics, see flat(). None of them if nothing is
            normalised. As arguments, their values need no compilation of their own.
    """
    @torch.no_grad()
    def advance(row: Tensor, is_new: Tensor, obs: Tensor, reward: Tensor, noise: Tensor,
                *arrays: Tensor) -> tuple[()]:
        all_obs, all_rewards, all_actions, *normalisation = arrays
        if normalisation:
            numbers, statistics = normalisation[:len(SCALARS)], normalisation[len(SCALARS):]
            settings = SimpleNamespace(norm_obs=cfg.norm_obs, norm_reward=cfg.norm_reward,
                                       **dict(zip(SCALARS, numbers)))
            obs, reward, *counted = normalize(obs, reward, statistics, settings)
            for old, new in zip(statistics, counted, strict=True):
                if new is not old:
                    old.copy_(torch.where(is_new, new, old))
        obs = torch.where(is_new, obs, all_obs.index_select(0, row)[0])
        all_obs.index_copy_(0, row, obs[None])
        before = (row - 1).clamp(min=0)
        reward = torch.where(is_new, reward.to(all_rewards.dtype), all_rewards.index_select(0, before)[0])
        all_rewards.index_copy_(0, before, reward[None])
        at = row.clamp(max=num_steps - 1)  # nothing follows the last observation
        action = act(obs, None, None, (), noise.index_select(0, at)[0]).action
        action = torch.where(row < num_steps, action.to(all_actions.dtype), all_actions.index_select(0, at)[0])
        all_actions.index_copy_(0, at, action[None])
        return ()

    return advance


def normalize(obs: Tensor, reward: Tensor, statistics: Sequence[Tensor], settings: Any) -> list[Tensor]:
    """Return normalised observations and rewards of a step in which no episode ends, and the statistics after it."""
    never = torch.zeros(len(reward), dtype=torch.bool)
    step: Any = Step(obs=obs, first=never, mask=None, reward=reward, terminated=never, truncated=never,
                     final_obs=obs, valid=~never, episode=None, metrics={})  # type: ignore[arg-type]
    counted = count_step(unflat(statistics), step, settings, torch_arrays)
    after: Any = apply_statistics(counted, step._replace(final_obs=None), settings, torch_arrays)
    return [after.obs, after.reward, *flat(counted)]


def flat(statistics: Statistics | None) -> list[Any]:
    """Return the arrays of statistics that steps change in float64."""
    if statistics is None:
        return []
    size = len(IN_MODELS)
    return [*statistics.obs[:size], *statistics.ret[:size], statistics.running]


def unflat(arrays: Sequence[Any]) -> Statistics:
    """Return the statistics of flat()."""
    size = len(IN_MODELS)
    return Statistics(obs=Moments(*arrays[:size]), ret=Moments(*arrays[size:2 * size]), running=arrays[-1])


class FusedStep:
    """Normalises, writes and acts by one compiled function, whose arguments it owns; see make_advance().

    Args:
        weights: (P,) of the agent, which the optimizer changes in place.
        carry: Shows the shapes of observations and statistics.
        cfg: The configuration.
    """

    def __init__(self, weights: Tensor, carry: Carry, cfg: Config) -> None:
        self._weights, self._statistics = weights, carry.statistics
        obs = torch.zeros(carry.obs.shape, dtype=torch.float64 if cfg.norm_obs else carry.obs.dtype)
        reward = torch.zeros(len(obs), dtype=torch.float64 if cfg.norm_reward else torch.float32)
        self._step = (torch.zeros(1, dtype=torch.int64), torch.zeros((), dtype=torch.bool), obs, reward)
        self._row, self._is_new, self._obs, self._reward = (x.numpy() for x in self._step)
        self._numbers = [torch.tensor(float(getattr(cfg, name)), dtype=torch.float64) for name in SCALARS]
        self._moments = [torch.from_numpy(np.array(x, np.float64)) for x in flat(carry.statistics)]
        self._run: TensorFunction
        self._arguments: tuple[Tensor, ...] = ()

    def compile(self, compile: Callable[..., TensorFunction], advance: TensorFunction, storage: Storage,
                noise: Tensor) -> None:
        """Compile `advance`, a function of the weights and of what make_advance() names, for such arguments."""
        self.begin(self._statistics, storage, noise)
        self._run = compile(advance, self._arguments, "acting")

    def begin(self, statistics: Statistics | None, storage: Storage, noise: Tensor) -> None:
        """Prepare a rollout into `storage`."""
        self.load(statistics)
        for name, usual in OTHERS.items():
            storage.arrays[name][...] = usual
        written = (storage.tensors[name] for name in WRITTEN)
        normalisation = [*self._numbers, *self._moments] if self._moments else []
        self._arguments = (self._weights, *self._step, noise, *written, *normalisation)

    def act(self, row: int) -> None:
        """Choose the action of a row whose observation is in the rollout buffer."""
        self._row[0], self._is_new[...] = row, False
        self._run(*self._arguments)

    def observe(self, row: int, step: Step) -> None:
        """Write what a step returned as `row`, and its reward in the row before; choose the next action."""
        self._row[0], self._is_new[...] = row, True
        self._obs[...], self._reward[...] = step.obs, step.reward
        self._run(*self._arguments)

    def statistics(self) -> Statistics | None:
        """Return a copy of the statistics, in numpy."""
        if self._statistics is None:
            return None
        now = unflat([x.numpy().copy() for x in self._moments])
        return now._replace(obs=now.obs._replace(rest=self._statistics.obs.rest),
                            ret=now.ret._replace(rest=self._statistics.ret.rest))

    def load(self, statistics: Statistics | None) -> None:
        """Continue from these statistics."""
        self._statistics = statistics
        for own, x in zip(self._moments, flat(statistics), strict=True):
            own.numpy()[...] = x


@torch.no_grad()
def collect_fused(fused: FusedStep, policy: Policy, envs: VecEnv, normalizer: Normalizer, carry: Carry,
                  storage: Storage, noise: Tensor) -> Collected:
    """Play len(noise) steps from `carry`, as collect() does, with one call of a FusedStep between two steps.

    A step in which an episode ends or begins, or with fillers, is normalised and written as in collect().
    """
    count_nonzero, bootstrapped = np.count_nonzero, np.zeros((len(noise), 1), bool)
    fused.begin(carry.statistics, storage, noise)
    storage.start(carry)
    fused.act(0)
    for t in range(len(noise)):
        step = envs.step(storage.env_actions[t])
        keep_gradients_off()
        if not (count_nonzero(step.first) or count_nonzero(step.terminated) or count_nonzero(step.truncated)
                or count_nonzero(step.episode.finished) or count_nonzero(step.valid) < len(step.valid)):
            fused.observe(t + 1, step)
            continue
        statistics, step = normalizer.step(fused.statistics(), step)
        fused.load(statistics)
        storage.put(t, step)
        bootstrapped[t] = bootstrap(policy, storage, t, step, ())
        fused.act(t + 1)
    return finish(policy, storage, storage.closing((), fused.statistics()), bootstrapped)
