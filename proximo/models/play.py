"""Evaluate a trained model in new environments, and record videos of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from proximo.catalog import Parts
from proximo.config import Config
from proximo.errors import ProximoError, UsageError, notify, warn
from proximo.models.evaluate import MAX_STEPS, Evaluation, ShowProgress, episode_returns, evaluate, frames
from proximo.models.model import Model
from proximo.models.read_folder import model_from, read_model
from proximo.models.task import check_bounds, fitted
from proximo.protocols import VecEnv
from proximo.runs.logs.output import return_text
from proximo.streams import env_seeds

MOST_EPISODES = 1_000_000  # their returns are kept in memory


class HowPlayed(NamedTuple):
    """How the episodes of an evaluation are played."""

    episodes: int = 100  # in self-play rounded up to as many for each player
    deterministic: bool = True
    seed: int = 0
    max_steps: int = MAX_STEPS
    num_envs: int = 8  # most environments that play at once; in self-play players, rounded up to whole games


def make_playing_envs(cfg: Config, parts: Parts, rows: int, seed: int) -> VecEnv:
    """Make environments to play in, in this process.

    Args:
        cfg: The configuration of the model.
        parts: What makes the environments.
        rows: Number of environments.
        seed: The seed of the environments.
    """
    engine = "auto" if cfg.engine == "jax" else cfg.engine  # the same task, stepped by Gymnasium
    here = replace(cfg, env_workers=0, env_groups=1, num_envs=rows, seed=seed, engine=engine)
    return parts.make_envs(here, env_seeds(seed, rows, stream="eval"))


def make_drawn_envs(cfg: Config, parts: Parts, rows: int, seed: int) -> VecEnv:
    """Make environments to draw; they reset one step late if they can, so that episodes have a last frame."""
    try:
        return make_playing_envs(replace(cfg, autoreset="next-step"), parts, rows, seed)
    except UsageError:  # they reset in the same step
        return make_playing_envs(cfg, parts, rows, seed)


@contextmanager
def playing_envs(model: Model, parts: Parts, rows: int, seed: int,
                 drawn: bool = False) -> Iterator[tuple[Model, VecEnv]]:
    """Make environments for a model to play in, and close them at the end; see `make_drawn_envs` for `drawn`.

    Yields:
        What plays (see `fitted`), and the environments.

    Raises:
        UsageError: They have other observations or actions than those that the model was trained with.
    """
    envs = (make_drawn_envs if drawn else make_playing_envs)(model.cfg, parts, rows, seed)
    try:
        player = fitted(model, envs, parts.make_actor)
        check_bounds(player.spec, envs, model.cfg)
        yield player, envs
    finally:
        envs.close()


def play_in_new_envs(model: Model, parts: Parts, how: HowPlayed, show: ShowProgress | None = None) -> Evaluation:
    """Play whole episodes in new environments; see `evaluate`. There may be none.

    Args:
        model: The model that acts.
        parts: What makes the environments.
        how: How to play.
        show: Called after every step.

    Raises:
        EnvError: An environment failed.
    """
    players = parts.rows_per_game(model.cfg)
    rows = -(-min(how.num_envs, how.episodes) // players) * players
    with playing_envs(model, parts, rows, how.seed) as (player, envs):
        return evaluate(player, envs, how.episodes, how.deterministic, how.seed, how.max_steps, show)


def evaluate_model(model: Model, parts: Parts, how: HowPlayed, show: ShowProgress | None = None) -> Evaluation:
    """Do what play_in_new_envs does, and warn of missing episodes.

    Raises:
        UsageError: No episode ended within `how.max_steps` steps.
        EnvError: An environment failed.
    """
    found = play_in_new_envs(model, parts, how, show)
    if not found.returns:
        raise UsageError(f"{model.cfg.env_id}: no episode ended within {how.max_steps:,} steps. Allow more with "
                         "--max-steps N (from Python: max_steps=N); an environment whose episodes never end needs a "
                         "time limit.")
    if len(found.returns) < how.episodes:
        warn(f"Only {len(found.returns)} of {how.episodes} episodes ended within {how.max_steps:,} steps: the longest "
             "are missing. Allow more with --max-steps N (from Python: max_steps=N).")
    return found


def record_video(model: Model, parts: Parts, out: Path, deterministic: bool = True, seed: int = 0,
                 max_frames: int = 2000, episodes: range = range(1)) -> None:
    """Record whole episodes, one after the other, at the environment's own speed.

    Args:
        model: The model that plays.
        parts: What makes the environment.
        out: The video, an .mp4 or a .gif.
        deterministic: Take the most likely actions instead of sampling them.
        seed: The seed of environment and actions.
        max_frames: Largest number of frames.
        episodes: The episodes that are shown, counted from 0.

    Raises:
        UsageError: The environment cannot draw, or `out` is neither an .mp4 nor a .gif.
        EnvError: Drawing fails.
        FilesError: `out` cannot be written.
    """
    from proximo.models.video import check_format, write_video

    check_format(out)
    with playing_envs(model, parts, parts.rows_per_game(model.cfg), seed, drawn=True) as (player, envs):
        pictures = frames(player, envs, deterministic, seed, max_frames, episodes)
        first = next(pictures, None)
        if first is None:
            raise UsageError(f"{model.cfg.env_id} cannot be drawn: {_why_not_drawn(model, envs)}")
        write_video(chain([first], pictures), out, envs.render_fps or 30)


def _why_not_drawn(model: Model, envs: VecEnv) -> str:
    if envs.play == "inside":
        return ("an environment in JAX needs the functions render_init, render_image and render_close, and "
                "render_image must return the canvas and an array (H, W, 3) of uint8.")
    why = "it has no render_mode rgb_array, or its render() returns None. It must return an array (H, W, 3) of uint8."
    given = "render_mode=rgb_array" in model.cfg.env_kwargs
    return why if given else (f"{why} If what makes it takes a render_mode, as games of PettingZoo do, add "
                                   "--env-kwargs render_mode=rgb_array.")


def pick_episode(model: Model, parts: Parts, best: bool, episodes: int, deterministic: bool, seed: int) -> range:
    """Play episodes without drawing them; return the best or the worst one for `record_video` with the same seed.

    Raises:
        UsageError: No episode ended, or the environment is another task than that of the model.
        EnvError: An environment failed.
    """
    with playing_envs(model, parts, parts.rows_per_game(model.cfg), seed, drawn=True) as (player, envs):
        returns = episode_returns(player, envs, deterministic, seed, episodes)
    if not returns:
        raise UsageError(f"{model.cfg.env_id}: no episode ended within {MAX_STEPS:,} steps, so there is none to pick. "
                         "Record one without --pick.")
    place = returns.index(max(returns) if best else min(returns))
    notify(f"Episode {place + 1} of {len(returns)} is the {'best' if best else 'worst'}: return "
           f"{return_text(returns[place])}, mean {return_text(sum(returns) / len(returns))}.")
    return range(place, place + 1)


def record_run_video(cfg: Config, parts: Parts, folder: Path, steps: int) -> None:
    """Record the model of a run in training. If the recording fails, warn and return."""
    try:
        model = model_from(read_model(folder), cfg, parts.make_actor)
        record_video(model, parts, folder / "videos" / f"step-{steps:09d}.mp4")
    except ProximoError as error:
        warn(f"No video: {error}")
