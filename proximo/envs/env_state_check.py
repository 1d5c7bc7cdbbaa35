"""Check that a saved state is the whole state: a copy that continues from it must make the same steps."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from proximo.envs.spaces import scripted_action
from proximo.errors import EnvError
from proximo.protocols import Step, VecEnv

Suite = TypeVar("Suite", bound=VecEnv)

BEFORE, AFTER = 20, 50  # steps before the copy takes over the state, and steps that must then be equal


def replays_exactly(make: Callable[[int], Suite], seed: int,
                    snapshot: Callable[[Suite], dict[str, Any] | None]) -> bool:
    """Play one environment, load its state into another, and compare the steps of both.

    Args:
        make: Makes one numpy environment from a seed.
        seed: The seed of the first environment; the second one gets `seed + 1`.
        snapshot: Returns the state of the first environment, or None if it cannot be saved.

    Returns:
        True if all compared steps are equal in every bit; False also if there is no state or a step fails.
    """
    model = make(seed)
    try:
        copy = make(seed + 1)
        try:
            return _continues(model, copy, snapshot)
        except EnvError:
            return False
        finally:
            copy.close()
    finally:
        model.close()


def _continues(model: Suite, copy: Suite, snapshot: Callable[[Suite], dict[str, Any] | None]) -> bool:
    rng = np.random.default_rng(0)
    copy.step(_random_action(copy, copy.reset(), rng))
    step = model.reset()
    for t in range(BEFORE + AFTER):
        if t == BEFORE:
            state = snapshot(model)
            if state is None:
                return False
            copy.load(state)
        action = _random_action(model, step, rng)
        step = model.step(action)
        if t >= BEFORE and not same_steps(step, copy.step(action)):
            return False
    return True


def _random_action(envs: VecEnv, step: Step, rng: np.random.Generator) -> np.ndarray:
    return scripted_action(envs.action_space, None if step.mask is None else step.mask[0], rng)[None]


def same_steps(one: Step, other: Step) -> bool:
    """Return whether two steps of numpy suites are equal in every bit that may be read."""
    ended, finished = one.terminated | one.truncated, one.episode.finished
    pairs = [(one.obs, other.obs), (one.first, other.first), (one.reward, other.reward), (one.valid, other.valid),
             (one.terminated, other.terminated), (one.truncated, other.truncated), (finished, other.episode.finished),
             (one.episode.ret[finished], other.episode.ret[finished]),
             (one.episode.length[finished], other.episode.length[finished])]
    if one.mask is not None:
        pairs.append((one.mask, other.mask))
    if one.final_obs is not None and other.final_obs is not None:
        pairs.append((one.final_obs[ended], other.final_obs[ended]))
    return all(np.array_equal(left, right) for left, right in pairs)
