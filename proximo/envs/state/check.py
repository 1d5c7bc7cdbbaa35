"""Check that a saved state is the whole state: a copy that continues from it must make the same steps."""

from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from typing import Any, Protocol

import numpy as np

from proximo.envs.arrays.spaces import scripted_action
from proximo.envs.state.codes import OpaqueError, same_value
from proximo.errors import ProximoError, notify, warn, warn_once
from proximo.protocols import Step, VecEnv

BEFORE, AFTER, AGAIN = 20, 30, 20  # steps before the copy takes over the state, steps that must then be equal, and
#                                    steps of a new episode that both begin then


class Replayable(VecEnv, Protocol):
    """Environments that can be checked."""

    def snapshot(self) -> dict[str, Any]:
        """Return what load() takes; OpaqueError if it cannot be saved."""
        ...

    def begin_episode(self) -> np.ndarray:
        """Begin a new episode in row 0, wherever the present one is. Returns its first observation."""
        ...


def replays_exactly(envs: Replayable, make: Callable[[int], Replayable], seed: int) -> bool:
    """Play one environment, load its state into another, and compare the steps of both, and a new episode of each.

    Args:
        envs: Environments that are not played here. If they have no state now, none are made.
        make: Makes one such numpy environment from a seed.
        seed: The seed of the first environment; the second one gets `seed + 1`.

    Returns:
        True if all compared steps are equal in every bit; False also if there is no state, or if making or playing one
        fails, with a warning where that is a fault of the environment: no fault of saving stops one that runs without.
    """
    with ExitStack() as opened:
        try:
            envs.snapshot()
            model = opened.enter_context(closing(make(seed)))
            copy = opened.enter_context(closing(make(seed + 1)))
            exact = _continues(model, copy)
        except ProximoError as error:
            warn(f"It was tested with two more environments whether their state can be saved, and one failed: {error}")
            return False
        except OpaqueError as error:
            notify(f"The environments have a state that cannot be saved: {error}.")
            return False
        except Exception:  # there is no state
            return False
    if not exact and not warn_if_random(make, seed):
        notify("The environments have a state that cannot be saved: another one went on differently with the saved "
               "attributes, so that some state is elsewhere, for example in a variable of a module, in the generators "
               "of random and np.random, or in a library.")
    return exact


def warn_if_random(make: Callable[[int], Replayable], seed: int) -> bool:
    """Warn if two environments with the same seed and actions make different steps. Return whether they do."""
    with ExitStack() as opened, suppress(Exception):
        one, other = (opened.enter_context(closing(make(seed))) for _ in range(2))
        rng, step, twin = np.random.default_rng(0), one.reset(), other.reset()
        for _ in range(BEFORE):
            if not same_steps(step, twin):
                warn_once("The environments make different steps with the same seed and actions, for example because "
                          "they draw from np.random instead of self.np_random. Equal seeds then give different runs, "
                          "and a resumed run differs from an uninterrupted one.")
                return True
            action = _random_action(one, step, rng)
            step, twin = one.step(action), other.step(action)
    return False


def _continues(model: Replayable, copy: Replayable) -> bool:
    rng = np.random.default_rng(0)
    copy.step(_random_action(copy, copy.reset(), rng))
    step = model.reset()
    for t in range(BEFORE + AFTER + AGAIN):
        if t == BEFORE:
            kept = model.snapshot()
            copy.load(kept)
            if not same_value(_by_name(copy.snapshot()), _by_name(kept)):
                return False
        if t == BEFORE + AFTER and not np.array_equal(model.begin_episode(), copy.begin_episode()):
            return False
        action = _random_action(model, step, rng)
        step = model.step(action)
        if t >= BEFORE and not same_steps(step, copy.step(action)):
            return False
    return True


def _by_name(state: Any) -> Any:
    """Return a state with names in order: loading keeps the order in which an environment has set its attributes."""
    return {name: _by_name(state[name]) for name in sorted(state)} if isinstance(state, dict) else state


def _random_action(envs: VecEnv, step: Step, rng: np.random.Generator) -> np.ndarray:
    masks = [None] * envs.num_envs if step.mask is None else step.mask
    return np.stack([scripted_action(envs.action_space, mask, rng) for mask in masks])


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
