"""Playing with a trained model: returns of whole episodes, and frames for a video."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from proximo.errors import EnvError, ProximoError, notify
from proximo.models.model import Model
from proximo.protocols import VecEnv

PATIENCE = 5_000  # decisions without the end of an episode after which a user is told why nothing is printed
MAX_STEPS = 50_000  # an Atari game is cut after 27,000


class Evaluation(NamedTuple):
    """Raw returns and lengths of whole episodes, and the rows that played them, in order of rows and then of time."""

    returns: list[float]
    lengths: list[int]
    rows: list[int]


def evaluate(model: Model, envs: VecEnv, episodes: int, deterministic: bool, seed: int = 0,
             max_steps: int = MAX_STEPS) -> Evaluation:
    """Play `episodes` episodes, the same number in every row (so that short ones are not favoured); in self-play some
    more where they do not divide, so that every player has as many. A row whose episode has not ended after max_steps
    decisions is waited for no longer: fewer are returned then, or none. `envs` is not normalised: the model does that
    itself, with statistics that stay as they are."""
    quota = -(-episodes // envs.num_envs)
    found: list[list[tuple[float, int]]] = [[] for _ in range(envs.num_envs)]
    began = np.zeros(envs.num_envs, int)  # decisions made before the row's present episode
    for count, step in enumerate(played(model, envs, deterministic, seed)):
        for row in np.flatnonzero(_host(step.episode.finished)):
            found[row].append((float(step.episode.ret[row]), int(step.episode.length[row])))
            began[row] = count
        if all(len(one) >= quota or count - start >= max_steps for one, start in zip(found, began)):
            break
        if count == PATIENCE and not any(found):
            notify(f"{model.cfg.env_id}: no episode has ended in {count:,} decisions; waiting for {max_steps:,} "
                "(--max-steps)")
    kept = [(row, *pair) for row, one in enumerate(found) for pair in one[:quota]]
    if not envs.players:
        kept = kept[:episodes]
    return Evaluation([ret for _, ret, _ in kept], [length for _, _, length in kept], [row for row, _, _ in kept])


def frames(model: Model, envs: VecEnv, deterministic: bool, seed: int = 0,
           max_frames: int = 2000) -> Iterator[np.ndarray]:
    """Frames of the first environment, (H, W, 3) uint8, from its first observation until its first whole episode ends;
    none if it cannot draw. A same-step suite has begun the next episode by then: its last frame is that before the
    last action. Raises EnvError where drawing fails."""
    for step in islice(played(model, envs, deterministic, seed), max_frames):
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


def played(model: Model, envs: VecEnv, deterministic: bool, seed: int) -> Iterator:
    """What reset() returns, then the steps of acting in `envs`, without end."""
    model.reset(seed)
    step = envs.reset()
    yield step
    while True:
        action = model.choose(_host(step.obs), _host(step.first), None if step.mask is None else _host(step.mask),
                              deterministic)
        step = envs.step(_like(action, step.reward))
        yield step


def _host(array) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else np.asarray(array.cpu() if hasattr(array, "cpu") else array)


def _like(action: np.ndarray, example):
    """The action in the array library of `example`."""
    return action if isinstance(example, np.ndarray) else example.new_tensor(action)
