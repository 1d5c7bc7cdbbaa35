"""How good are a run's checkpoints? In a zero-sum game returns do not tell, so they play each other and are rated."""

import importlib.util
import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from proximo.errors import EnvError, FilesError, UsageError
from proximo.models.model import Model
from proximo.protocols import VecEnv
from proximo.streams import env_seeds, stream_seed

MOST_PLAYERS = 4  # rows that make whole games, of two players or of four
Act = Callable[[np.ndarray], np.ndarray]  # raw observations (n, *obs_shape) to actions (n,)
Play = Callable[[Act, Act, int], tuple[float, float]]  # first, second, seed to both returns


def keeps_nothing(seed: int) -> None:
    """How a contestant without memory and chance begins a game."""


class Contestant(NamedTuple):
    """Who plays: a checkpoint after `steps` of training, or a random player (`steps` None). Before each game
    `begin(seed)` takes away its memory and gives it noise of that game and that side alone."""

    name: str
    steps: int | None
    act: Act
    begin: Callable[[int], None] = keeps_nothing


class Game(NamedTuple):
    """One game: names and raw returns of both sides."""

    first: str
    second: str
    return0: float
    return1: float


class Rating(NamedTuple):
    """Skill `mu`, known up to `sigma` (one standard deviation), after so many games."""

    name: str
    steps: int | None
    mu: float
    sigma: float
    won: int
    drawn: int
    lost: int


def rate(models: Sequence[Contestant], play: Play, rounds: int = 2, seed: int = 1) -> tuple[list[Rating], list[Game]]:
    """Ratings in the order of `models`: every pair plays `rounds` games from each side, pairs in random order.

    `play(first, second, seed)` plays one game. Higher returns win; equal ones are a draw. Ratings are Bradley and
    Terry's with Bayesian updates (Weng & Lin 2011, JMLR 12), as openskill computes them: all begin at 25 +- 8.3.
    Raises UsageError where there is nobody to compare, or openskill is missing.
    """
    if len(models) < 2 or len({model.name for model in models}) < len(models):
        raise UsageError(f"{len(models)} players cannot be rated: two at least are needed, with names of their own")
    if importlib.util.find_spec("openskill") is None:
        raise UsageError('ratings need openskill: pip install "proximo[rate]"')
    games: list[Game] = []
    for number in range(rounds):
        pairs = list(combinations(range(len(models)), 2))
        for k in np.random.default_rng((seed, number)).permutation(len(pairs)):
            one, two = (models[i] for i in pairs[k])
            start = env_seeds(seed, 1, number * len(pairs) + int(k), stream="eval")[0]  # the same from both sides
            for first, second in ((one, two), (two, one)):
                for side, player in enumerate((first, second)):  # else near policies would act by the same noise
                    player.begin(stream_seed(seed, "action", len(games), side))
                games.append(Game(first.name, second.name, *play(first.act, second.act, start)))
    return rate_games(models, games), games


def rate_games(models: Sequence[Contestant], games: Sequence[Game]) -> list[Rating]:
    """Ratings from games that were played, in their order."""
    from openskill.models import BradleyTerryFull

    scale = BradleyTerryFull()
    skill = {model.name: scale.rating(name=model.name) for model in models}
    results: dict[str, list[int]] = {model.name: [0, 0, 0] for model in models}
    for game in games:
        pair = (game.first, game.second)
        rated = scale.rate([[skill[name]] for name in pair], scores=[game.return0, game.return1], tau=0)
        for name, (new,), gain in zip(pair, rated, (game.return0 - game.return1, game.return1 - game.return0)):
            skill[name] = new
            results[name][1 - int(np.sign(gain))] += 1
    return [Rating(model.name, model.steps, skill[model.name].mu, skill[model.name].sigma, *results[model.name])
            for model in models]


def random_player(num_actions: int, seed: int = 1) -> Contestant:
    """Plays every action equally often."""
    random = np.random.default_rng(seed)

    def begin(seed: int) -> None:
        random.bit_generator.state = np.random.default_rng(seed).bit_generator.state

    return Contestant("random", None, lambda obs: random.integers(0, num_actions, len(obs)), begin)


def model_player(model: Model, steps: int) -> Contestant:
    """A checkpoint that samples its actions. It forgets where a game begins, since begin() resets it."""
    return Contestant(f"{steps:,} steps", steps, partial(model.choose, first=None, mask=None), model.reset)


def play_selfplay(make_envs: Callable[[list[int]], VecEnv]) -> Play:
    """A function that plays one whole game; `make_envs(seeds)` makes a self-play suite of one row a seed.

    Raises UsageError for games that are not for two.
    """
    whole = make_envs([1] * MOST_PLAYERS)
    whole.close()
    if len(whole.players) != 2:
        raise UsageError(f"this game has {len(whole.players) or 1} players; ratings compare two")

    def play(first: Act, second: Act, seed: int) -> tuple[float, float]:
        envs = make_envs([seed, seed])
        returns: list[float | None] = [None, None]
        step = envs.reset()
        while None in returns:
            step = envs.step(np.concatenate([np.asarray(first(step.obs[:1])), np.asarray(second(step.obs[1:]))]))
            for row in np.flatnonzero(step.episode.finished):
                returns[row] = float(step.episode.ret[row])
            if step.first.any() and None in returns:
                raise EnvError("the game ended for one of its two players only")
        envs.close()
        return returns[0], returns[1]

    return play


def write_ratings(ratings: Sequence[Rating], games: Sequence[Game], folder: Path) -> None:
    """rating.json (ratings and every game) and rating.png (rating over training) in `folder`. Raises FilesError."""
    kept = {"ratings": [rating._asdict() for rating in ratings], "games": [game._asdict() for game in games]}
    text = json.dumps(kept, indent=1)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rating.json").write_text(text + "\n", encoding="utf-8")
        draw_ratings(ratings, folder / "rating.png")
    except OSError as error:
        raise FilesError(f"the ratings cannot be written to {folder} ({error.strerror})") from error


def draw_ratings(ratings: Sequence[Rating], path: Path) -> None:
    """Rating over training with two standard deviations, players without training as lines across."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    trained = sorted((rating for rating in ratings if rating.steps is not None), key=lambda rating: rating.steps)
    axes.errorbar([rating.steps for rating in trained], [rating.mu for rating in trained],
                  [2 * rating.sigma for rating in trained], marker="o", capsize=3, label="checkpoints")
    for rating in ratings:
        if rating.steps is None:
            axes.axhline(rating.mu, linestyle="--", color="tab:gray", label=rating.name)
            axes.axhspan(rating.mu - 2 * rating.sigma, rating.mu + 2 * rating.sigma, color="tab:gray", alpha=0.15)
    axes.set_xlabel("steps of training")
    axes.set_ylabel("rating")
    axes.legend()
    figure.savefig(path, dpi=120)
