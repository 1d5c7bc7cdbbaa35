"""Playing with a trained model: returns of whole episodes, and frames for a video."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from proximo.envs.base import VecEnv
from proximo.errors import EnvError, ProximoError
from proximo.model import Model


class Evaluation(NamedTuple):
    """Raw returns and lengths of whole episodes, in the order in which rows and then time finished them."""

    returns: list[float]
    lengths: list[int]


def evaluate(model: Model, envs: VecEnv, episodes: int, deterministic: bool, seed: int = 0,
             max_steps: int = 1_000_000) -> Evaluation:
    """Play `episodes` episodes, the same number in every row (so that short ones are not favoured), at most max_steps
    decisions a row. `envs` is not normalised: the model does that itself, with statistics that stay as they are."""
    quota = -(-episodes // envs.num_envs)
    found: list[list[tuple[float, int]]] = [[] for _ in range(envs.num_envs)]
    for step in played(model, envs, deterministic, seed, max_steps):
        for row in np.flatnonzero(_host(step.episode.finished)):
            found[row].append((float(step.episode.ret[row]), int(step.episode.length[row])))
        if all(len(one) >= quota for one in found):
            break
    kept = [pair for one in found for pair in one[:quota]][:episodes]
    return Evaluation([ret for ret, _ in kept], [length for _, length in kept])


def frames(model: Model, envs: VecEnv, deterministic: bool, seed: int = 0,
           max_frames: int = 2000) -> Iterator[np.ndarray]:
    """Frames of the first environment, (H, W, 3) uint8, from its first observation until its first whole episode ends;
    none if it cannot draw. A same-step suite has begun the next episode by then: its last frame is that before the
    last action. Raises EnvError where drawing fails."""
    for step in played(model, envs, deterministic, seed, max_frames - 1):
        over = _host(step.episode.finished)[0]
        if over and _host(step.first)[0]:
            return
        frame = _picture(envs, model.cfg.env_id)
        if frame is None:
            return
        yield frame
        if over:
            return


def _picture(envs: VecEnv, env_id: str) -> np.ndarray | None:
    try:
        return envs.render()
    except ProximoError:
        raise
    except Exception as error:
        raise EnvError(f"{env_id}: render raised {type(error).__name__}: {error}") from error


def played(model: Model, envs: VecEnv, deterministic: bool, seed: int, max_steps: int) -> Iterator:
    """What reset() returns, then the steps of acting in `envs`, without end but for max_steps."""
    model.reset(seed)
    step = envs.reset()
    yield step
    for _ in range(max_steps):
        action = model.choose(_host(step.obs), _host(step.first), None if step.mask is None else _host(step.mask),
                              deterministic)
        step = envs.step(_like(action, step.reward))
        yield step


def _host(array) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else np.asarray(array.cpu() if hasattr(array, "cpu") else array)


def _like(action: np.ndarray, example):
    """The action in the array library of `example`."""
    return action if isinstance(example, np.ndarray) else example.new_tensor(action)
