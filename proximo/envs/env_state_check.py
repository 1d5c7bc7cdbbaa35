"""Whether a kept state is the whole state: a copy that took it over must play on exactly as its model does."""

from collections.abc import Callable

import numpy as np

from proximo.envs.spaces import scripted_action
from proximo.errors import EnvError
from proximo.protocols import Step, VecEnv

BEFORE, AFTER = 20, 50  # steps until the copy takes over, and steps that must then be equal


def replays_exactly(model: VecEnv, copy: VecEnv, snapshot: Callable[[], dict | None]) -> bool:
    """Both hold one environment, of different seeds; `snapshot` is the model's state where it can be kept."""
    rng = np.random.default_rng(0)
    try:
        copy.step(scripted_action(copy.action_space, _row(copy.reset().mask), rng)[None])
        step = model.reset()
        for played in range(BEFORE + AFTER):
            if played == BEFORE:
                state = snapshot()
                if state is None:
                    return False
                copy.load(state)
            action = scripted_action(model.action_space, _row(step.mask), rng)[None]
            step = model.step(action)
            if played >= BEFORE and not same_steps(step, copy.step(action)):
                return False
        return True
    except EnvError:
        return False


def _row(mask: np.ndarray | None) -> np.ndarray | None:
    return None if mask is None else mask[0]


def same_steps(one: Step, other: Step) -> bool:
    """Whether two steps of numpy suites are equal in every bit that may be read."""
    ended = one.terminated | one.truncated
    pairs = [(one.obs, other.obs), (one.first, other.first), (one.reward, other.reward), (one.valid, other.valid),
             (one.terminated, other.terminated), (one.truncated, other.truncated),
             (one.episode.finished, other.episode.finished)]
    if one.mask is not None:
        pairs.append((one.mask, other.mask))
    if one.final_obs is not None:
        pairs.append((one.final_obs[ended], other.final_obs[ended]))
    finished = one.episode.finished
    pairs += [(one.episode.ret[finished], other.episode.ret[finished]),
              (one.episode.length[finished], other.episode.length[finished])]
    return all(np.array_equal(left, right) for left, right in pairs)
