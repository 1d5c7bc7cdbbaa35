"""What check-env compares of environments as training sees them: the same seed, other seeds, and saved state."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from proximo.envs.arrays.obs_layout import obs_layout
from proximo.envs.arrays.spaces import scripted_action
from proximo.protocols import Step, VecEnv

COMPARED_STEPS = 200  # after a reset that are compared with those of other environments
COMPARED_SECONDS = 10.0  # of them, after which fewer are compared


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
    """Return the finding of an environment that fails. One that is too slow has advice of its own."""
    fix = "" if "Increase --env-timeout" in what else "Fix the environment. "
    return Finding(False, what, f"{fix}Training would stop there too.", ends=True)


def row_findings(one: VecEnv, two: VecEnv, other: VecEnv) -> Iterator[Finding]:
    """Compare environments with others of the same seeds, and with those of other seeds. All check what they return."""
    seen = track(one)
    masked = ", with an action_mask" if one.reset().mask is not None else ""
    yield Finding(True, f"{shown_observations(one)} and rewards are finite and well formed{masked}")
    again = track(two, len(seen) - 1)
    equal = same_track(seen, again)
    yield Finding(True, "the same seed gives the same episode") if equal else _unequal_episodes(seen, again)
    if equal:
        differs = not same_track(seen, track(other, len(seen) - 1))
        yield Finding(True if differs else None, "different seeds give different episodes" if differs else
                      "different seeds give the same episode", "" if differs else
                      "This is right if nothing in the environment is random; otherwise reset ignores its seed.")
    one.reset()
    kept = one.keeps_state
    yield Finding(True if kept else None, "its state can be saved: resumed runs continue exactly" if kept else
                  "its state cannot be saved", "" if kept else
                  "Runs make it again at each checkpoint (--checkpoint-every), " + (
                      "so resuming is exact all the same." if equal else "and its seed does not determine its "
                      "episodes: a resumed run differs from an uninterrupted one."))


def shown_rate(per_second: float) -> str:
    """Return steps per second as a text; a slow environment has fewer than one."""
    return f"{per_second:.0f}" if per_second >= 10 else f"{per_second:.2g}"


def shown_observations(envs: VecEnv) -> str:
    """Return shape and dtype of observations; of several parts, those of each part as its space has them."""
    layout = obs_layout(envs.observation_space)
    if layout is None:
        return f"observations {envs.obs_shape} {envs.obs_dtype}"
    return ", ".join(f"{part.name} {part.space.shape} {part.space.dtype}" for part in layout.parts)


def track(envs: VecEnv, steps: int | None = None) -> list[Seen]:
    """Return what scripted random actions after a reset give.

    Args:
        envs: The environments.
        steps: How many steps; None: COMPARED_STEPS, or fewer in slow environments.
    """
    rng, step, begin = np.random.default_rng(0), envs.reset(), time.perf_counter()
    seen = [_seen(step)]
    for t in range(COMPARED_STEPS if steps is None else steps):
        if steps is None and t and time.perf_counter() - begin > COMPARED_SECONDS:
            break
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
