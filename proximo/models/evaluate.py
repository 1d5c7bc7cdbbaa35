"""Play episodes with a trained model: their returns, or their frames for a video."""

import math
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from proximo.envs.render import gl_advice
from proximo.errors import EnvError, ProximoError, warn_once, with_place
from proximo.models.model import Model
from proximo.protocols import Step, VecEnv

PATIENCE = 5_000  # steps of every environment without a finished episode after which a warning is logged
MAX_STEPS = 50_000  # an Atari game is truncated after 27,000


ShowProgress = Callable[[int, int], None]  # (episodes that have ended, environment steps)


class Evaluation(NamedTuple):
    """Episodes of an evaluation, in order of rows, then of time."""

    returns: list[float]
    """undiscounted return of raw rewards of each episode"""
    lengths: list[int]
    """environment steps of each episode"""
    rows: list[int]
    """the environment that each episode was played in"""
    players: tuple[str, ...] = ()
    """games of several agents: label of each player of a game; row i belongs to player i modulo their number"""
    metrics: Mapping[str, list[float]] = MappingProxyType({})
    """`Step.metrics` in the last step of each episode, such as what --info-metrics names; NaN where there is none"""


def evaluate(model: Model, envs: VecEnv, episodes: int, deterministic: bool, seed: int = 0,
             max_steps: int = MAX_STEPS, show: ShowProgress | None = None) -> Evaluation:
    """Play whole episodes.

    Every environment plays the same number of episodes, so that short episodes are not favoured. If `episodes` is not a
    multiple of the number of environments, the last environments play episodes that are left out.

    Args:
        model: The model that acts.
        envs: N environments whose observations are not normalised; the model normalises them with its own statistics,
            which do not change.
        episodes: Number of episodes; in self-play rounded up to as many for each player.
        deterministic: Take the most likely actions instead of sampling them.
        seed: The seed of the noise of sampled actions.
        max_steps: Longest episode, in steps. An environment with a longer one plays no further episodes.
        show: Called after every step.

    Returns:
        The episodes; fewer than `episodes` if some did not end within `max_steps`.
    """
    quota = -(-episodes // envs.num_envs)
    finished: list[list[tuple[float, int, list[float]]]] = [[] for _ in range(envs.num_envs)]
    began = np.zeros(envs.num_envs, int)  # steps played before the current episode of each environment
    given_up = np.zeros(envs.num_envs, bool)
    for count, step in enumerate(play(model, envs, deterministic, seed)):
        for row in np.flatnonzero(to_numpy(step.episode.finished) & ~given_up):
            last = [_of_row(step.metrics[name], int(row)) for name in envs.metric_names]
            finished[row].append((float(step.episode.ret[row]), int(step.episode.length[row]), last))
            began[row] = count
        began[to_numpy(step.first)] = count  # later than the last end, where a filler row resets or an agent waits
        given_up |= count - began >= max_steps
        if show is not None:
            show(min(episodes, sum(min(len(one), quota) for one in finished)), count * envs.num_envs)
        if all(len(one) >= quota or stopped for one, stopped in zip(finished, given_up)):
            break
        if count == PATIENCE and not any(finished):
            warn_once(f"{model.cfg.env_id}: no episode has ended within {count:,} steps. Evaluation waits for up to "
                      f"{max_steps:,} steps (--max-steps; during training --eval-max-steps).")
    kept = [(row, *episode) for row, one in enumerate(finished) for episode in one[:quota]]
    if not envs.players:
        kept = kept[:episodes]
    return Evaluation(returns=[ret for _, ret, _, _ in kept], lengths=[length for _, _, length, _ in kept],
                      rows=[row for row, _, _, _ in kept], players=envs.players,
                      metrics={name: [last[k] for _, _, _, last in kept] for k, name in enumerate(envs.metric_names)})


def metric_means(found: Evaluation) -> dict[str, float]:
    """Return the mean of each metric over the episodes that have it; NaN where none has."""
    known = {name: [x for x in values if not math.isnan(x)] for name, values in found.metrics.items()}
    return {name: float(np.mean(values)) if values else math.nan for name, values in known.items()}


def _of_row(values: Any, row: int) -> float:
    """Return the value of one row; some metrics are one number for all."""
    flat = to_numpy(values).reshape(-1)
    return float(flat[row if len(flat) > 1 else 0])


def summarize(found: Evaluation, first: int = 0, every: int = 1) -> dict[str, Any]:
    """Return number, mean and standard deviation of the returns of rows first, first + every, ...; None if empty."""
    returns = [ret for ret, row in zip(found.returns, found.rows) if row % every == first]
    return {"episodes": len(returns), "episodic_return_mean": float(np.mean(returns)) if returns else None,
            "episodic_return_std": float(np.std(returns)) if returns else None}


def summarize_players(found: Evaluation) -> dict[str, dict[str, Any]]:
    """Return the summary of each player of a game; {} without self-play."""
    return {name: summarize(found, row, len(found.players)) for row, name in enumerate(found.players)}


def evaluation_record(found: Evaluation, env_id: str, deterministic: bool, seed: int) -> dict[str, Any]:
    """Return the content of eval.json: the settings, the summary, and return, length and metrics of every episode."""
    players = summarize_players(found)
    means = {name: _number(mean) for name, mean in metric_means(found).items()}
    episodes = {name: [_number(one) for one in values] for name, values in found.metrics.items()}
    return {"env_id": env_id, "deterministic": deterministic, "seed": seed, **summarize(found),
            "returns": found.returns, "lengths": found.lengths} | ({"players": players} if players else {}) | (
                {"metrics": means, "episode_metrics": episodes} if means else {})


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def frames(model: Model, envs: VecEnv, deterministic: bool, seed: int = 0, max_frames: int = 2000,
           episodes: range = range(1)) -> Iterator[np.ndarray]:
    """Play in the first environment and yield the frames of some episodes, one after the other.

    A same-step suite has begun the next episode when an episode ends, so the last frame of an episode is the one before
    its last action.

    Args:
        model: The model that acts.
        envs: The environments, as in `evaluate`.
        deterministic: Take the most likely actions instead of sampling them.
        seed: The seed of the noise of sampled actions.
        max_frames: Largest number of frames.
        episodes: The episodes that are drawn, counted from 0; those before them are played without frames.

    Yields:
        (H, W, 3) uint8; nothing if the environment cannot draw.

    Raises:
        EnvError: Drawing failed.
    """
    ended, drawn, rows = 0, 0, len(envs.players)
    for count, step in enumerate(play(model, envs, deterministic, seed)):
        over = count > 0 and _is_over(step, rows) if rows else bool(to_numpy(step.episode.finished)[0])
        has_next_begun = over and bool(rows or to_numpy(step.first)[0])
        shown = ended + has_next_begun
        ended += over
        if shown in episodes:
            frame = _render(envs, model.cfg.env_id)
            if frame is None:
                return
            yield frame
            drawn += 1
        if drawn == max_frames or ended == episodes.stop:
            return


def _is_over(step: Step, rows: int) -> bool:
    """Return whether the first game, of so many rows, has ended: none of its players goes on."""
    return not bool(to_numpy(step.valid & ~(step.terminated | step.truncated))[:rows].any())


def episode_returns(model: Model, envs: VecEnv, deterministic: bool, seed: int, episodes: int) -> list[float]:
    """Play the episodes that `frames` draws, and return their returns, up to the first one of MAX_STEPS steps.

    Args:
        model: The model that acts.
        envs: The environments, as in `evaluate`.
        deterministic: Take the most likely actions instead of sampling them.
        seed: The seed of the noise of sampled actions.
        episodes: Number of episodes.
    """
    returns, began = list[float](), 0
    for count, step in enumerate(play(model, envs, deterministic, seed)):
        if to_numpy(step.episode.finished)[0]:
            returns.append(float(step.episode.ret[0]))
            began = count
        if to_numpy(step.first)[0]:
            began = count
        if len(returns) == episodes or count - began >= MAX_STEPS:
            break
    return returns


def play(model: Model, envs: VecEnv, deterministic: bool, seed: int) -> Iterator[Step]:
    """Reset the environments and a copy of the model, then yield the result of the reset and of each step, without end.

    The recurrent state and the noise of `model` stay as they are.
    """
    model = copy(model)
    model.reset(seed)
    step = envs.reset()
    yield step
    while True:
        mask = None if step.mask is None else to_numpy(step.mask)
        action = model.choose(to_numpy(step.obs), to_numpy(step.first), mask, deterministic)
        step = envs.step(like(action, step.reward))
        yield step


def _render(envs: VecEnv, env_id: str) -> np.ndarray | None:
    try:
        return envs.render()
    except ProximoError:
        raise
    except Exception as error:
        advice = gl_advice(error) or (". If it draws only in the mode in which it was made, add --env-kwargs "
                                      "render_mode=rgb_array. `proximo doctor` finds what this machine lacks for "
                                      "drawing.")
        raise EnvError(f"{env_id}: render raised {with_place(error).rstrip('.')}{advice}") from error


def to_numpy(array: Any) -> np.ndarray:
    """Return an array of numpy, torch or JAX, whatever its device, as one of numpy."""
    return array if isinstance(array, np.ndarray) else np.asarray(array.cpu() if hasattr(array, "cpu") else array)


def like(action: np.ndarray, example: Any) -> Any:
    """Convert the action to a tensor if `example` is one; environments with JAX arrays take numpy actions too."""
    return example.new_tensor(action) if hasattr(example, "new_tensor") else action
