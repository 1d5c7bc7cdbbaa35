"""What check-env compares of environments as training sees them: the same seed, other seeds, and saved state."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from proximo.envs.spaces import scripted_action
from proximo.protocols import Step, VecEnv


class Finding(NamedTuple):
    """One thing that was checked."""

    ok: bool | None  # None: a remark, or it cannot be told
    what: str
    advice: str = ""
    ends: bool = False  # the environment fails: training would end there with exit code 3


class Seen(NamedTuple):
    """What a step of N environments has returned: (N, ...), (N,) and (N,)."""

    obs: np.ndarray
    reward: np.ndarray
    over: np.ndarray


def failure(what: str) -> Finding:
    """Return the finding of an environment that fails."""
    return Finding(False, what, "Fix the environment: training would stop there too.", ends=True)


def row_findings(one: VecEnv, two: VecEnv, other: VecEnv) -> Iterator[Finding]:
    """Compare environments with others of the same seeds, and with those of other seeds. All check what they return."""
    seen = track(one)
    masked = ", with an action_mask" if one.reset().mask is not None else ""
    yield Finding(True, f"observations {one.obs_shape} {one.obs_dtype} and rewards are finite and well formed{masked}")
    again = track(two)
    equal = same_track(seen, again)
    yield Finding(True, "the same seed gives the same episode") if equal else _unequal_episodes(seen, again)
    if equal:
        differs = not same_track(seen, track(other))
        yield Finding(True if differs else None, "different seeds give different episodes" if differs else
                      "different seeds give the same episode", "" if differs else
                      "This is right if nothing in the environment is random; otherwise reset ignores its seed.")
    one.reset()
    kept = one.keeps_state
    yield Finding(True if kept else None, "its state can be saved: resumed runs continue exactly" if kept else
                  "its state cannot be saved", "" if kept else
                  "Runs make it again at each checkpoint (--checkpoint-every), so resuming is exact all the same.")


def track(envs: VecEnv) -> list[Seen]:
    """Return what 200 scripted random actions after a reset give."""
    rng, step = np.random.default_rng(0), envs.reset()
    seen = [_seen(step)]
    for _ in range(200):
        step = envs.step(scripted_actions(envs, step, rng))
        seen.append(_seen(step))
    return seen


def _seen(step: Step) -> Seen:
    return Seen(on_host(step.obs), on_host(step.reward), on_host(step.terminated | step.truncated))


def same_track(one: list[Seen], other: list[Seen]) -> bool:
    """Return whether all observations and rewards are equal."""
    return all(np.array_equal(a.obs, b.obs) and np.array_equal(a.reward, b.reward) for a, b in zip(one, other))


def _unequal_episodes(one: list[Seen], other: list[Seen]) -> Finding:
    """Return the finding of a seed that gives different episodes: from the first one on, or only after a reset."""
    ended = np.zeros(len(one[0].over), bool)
    for a, b in zip(one, other):
        if not np.array_equal(a.reward[~ended], b.reward[~ended]):
            break
        ended |= a.over & b.over
        if not np.array_equal(a.obs[~ended], b.obs[~ended]):
            break
    else:
        return Finding(False, "the same seed gives the same first episode, and different ones after it",
                       "Draw only from self.np_random. A reset() without a seed must continue self.np_random and not "
                       "make a new generator. If the environment is not yours, a wrapper can give every reset() a seed "
                       "(docs/other-environments.md).")
    return Finding(False, "the same seed gives different episodes", "Draw only from self.np_random, call "
                   "super().reset(seed=seed) in reset, and begin everything again there that an episode changes.")


def scripted_actions(envs: VecEnv, step: Step, rng: np.random.Generator) -> Any:
    """Return one random action for each environment after a step, as an array of their kind."""
    masks = list[Any]([None] * envs.num_envs) if step.mask is None else list(on_host(step.mask))
    if step.final_obs is None:  # the next step only resets environments whose episode has ended: any action will do
        masks = [None if over else one for one, over in zip(masks, on_host(step.terminated | step.truncated))]
    actions = np.stack([scripted_action(envs.action_space, one, rng) for one in masks])
    if envs.arrays != "torch":
        return actions
    import torch

    return torch.from_numpy(actions).to(step.obs.device)


def on_host(x: Any) -> np.ndarray:
    """Return a copy of an array in numpy."""
    return np.array(x.cpu() if hasattr(x, "cpu") else x)
