"""Rate the checkpoints of self-play runs by games, because returns of a zero-sum game say nothing about skill."""

import importlib.util
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete

from proximo.errors import EnvError, UsageError, warn_once
from proximo.models.evaluate import PATIENCE, like, to_numpy
from proximo.models.model import Model
from proximo.models.pictures import plain_style
from proximo.protocols import VecEnv
from proximo.runs.folder.writing import whole_file, write_json
from proximo.streams import env_seeds, stream_seed

Act = Callable[[np.ndarray, np.ndarray | None], np.ndarray]  # raw observations (n, *obs_shape) and masks to actions
PlayGame = Callable[[Act, Act, int], tuple[float, float]]  # (first player, second player, seed) to both returns


def begin_nothing(seed: int) -> None:
    """Begin a game with a contestant that has no recurrent state and no noise."""


class Contestant(NamedTuple):
    """A player: a checkpoint or a random player."""

    name: str
    steps: int | None
    """environment steps of training; None for a player without training"""
    act: Act
    begin: Callable[[int], None] = begin_nothing
    """called before each game with a seed of that game and side: clears the recurrent state and restarts the noise"""
    run: str = ""
    """which run it is of, if those of several play"""


class Game(NamedTuple):
    """One game: the names and the raw returns of both sides."""

    first: str
    second: str
    return0: float
    return1: float


class Rating(NamedTuple):
    """The skill of one contestant."""

    name: str
    steps: int | None
    mu: float
    """estimated skill"""
    sigma: float
    """one standard deviation of the estimate"""
    won: int
    drawn: int
    lost: int
    run: str = ""
    """that of the contestant"""


def rate(models: Sequence[Contestant], play: PlayGame, rounds: int = 2,
         seed: int = 1) -> tuple[list[Rating], list[Game]]:
    """Let every pair of contestants play, and rate them.

    Ratings are Bradley-Terry with Bayesian updates (Weng & Lin 2011, JMLR 12), computed by openskill. All contestants
    begin at 25 +- 8.3. The higher return wins; equal returns are a draw.

    Args:
        models: Two or more contestants with different names.
        play: `play(first, second, seed)` plays one game and returns both returns.
        rounds: Games of each pair from each side.
        seed: The seed of the games and of their order.

    Returns:
        The ratings in the order of `models`, and the games in the order in which they were played.

    Raises:
        UsageError: There are fewer than two contestants, two have the same name, or openskill is missing.
    """
    if len(models) < 2 or len({model.name for model in models}) < len(models):
        raise UsageError(f"{len(models)} players cannot be rated. At least two players with different names are "
                         "needed.")
    if importlib.util.find_spec("openskill") is None:
        raise UsageError('ratings need openskill: pip install "proximo[rate]"')
    games: list[Game] = []
    for number in range(rounds):
        pairs = list(combinations(range(len(models)), 2))
        for k in np.random.default_rng((seed, number)).permutation(len(pairs)):
            one, two = (models[i] for i in pairs[k])
            start = env_seeds(seed, 1, number * len(pairs) + int(k), stream="eval")[0]  # the same from both sides
            for first, second in ((one, two), (two, one)):
                for side, player in enumerate((first, second)):  # otherwise similar policies would share their noise
                    player.begin(stream_seed(seed, "action", len(games), side))
                return0, return1 = play(first.act, second.act, start)
                games.append(Game(first=first.name, second=second.name, return0=return0, return1=return1))
    return rate_games(models, games), games


def rate_games(models: Sequence[Contestant], games: Sequence[Game]) -> list[Rating]:
    """Compute ratings from games, in the order in which they were played."""
    from openskill.models import BradleyTerryFull

    scale = BradleyTerryFull(tau=0.0)  # players do not change between games; rate(tau=0) would mean the default
    skill = {model.name: scale.rating(name=model.name) for model in models}
    results: dict[str, list[int]] = {model.name: [0, 0, 0] for model in models}  # won, drawn, lost
    for game in games:
        pair = (game.first, game.second)
        updated = scale.rate([[skill[name]] for name in pair], scores=[game.return0, game.return1])
        for name, (new,), gain in zip(pair, updated, (game.return0 - game.return1, game.return1 - game.return0)):
            skill[name] = new
            results[name][1 - int(np.sign(gain))] += 1
    ratings = []
    for model in models:
        won, drawn, lost = results[model.name]
        ratings.append(Rating(name=model.name, steps=model.steps, mu=skill[model.name].mu,
                              sigma=skill[model.name].sigma, won=won, drawn=drawn, lost=lost, run=model.run))
    return ratings


def random_player(space: "Discrete[Any] | MultiDiscrete[Any]") -> Contestant:
    """Return a contestant that chooses every action that is allowed with equal probability.

    Args:
        space: The actions.
    """
    parts = [int(choices) for choices in np.ravel(space.n if isinstance(space, Discrete) else space.nvec)]
    random = np.random.default_rng(0)  # begin() seeds it

    def begin(seed: int) -> None:
        random.bit_generator.state = np.random.default_rng(seed).bit_generator.state

    def act(obs: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        if mask is None:
            chosen = random.integers(0, parts, (len(obs), len(parts)))
        else:
            draws = np.where(mask, random.random(mask.shape), -1.0)
            chosen = np.stack([part.argmax(-1) for part in np.split(draws, np.cumsum(parts)[:-1], -1)], -1)
        return chosen[:, 0] if isinstance(space, Discrete) else chosen

    return Contestant(name="random", steps=None, act=act, begin=begin)


def model_player(model: Model, steps: int) -> Contestant:
    """Return a contestant that samples its actions from a model."""
    return Contestant(name=f"{steps:,} steps", steps=steps, act=lambda obs, mask: model.choose(obs, None, mask),
                      begin=model.reset)


def play_selfplay(make_envs: Callable[[list[int]], VecEnv], rows: int) -> PlayGame:
    """Return a function that plays one whole game of two players.

    Args:
        make_envs: `make_envs(seeds)` makes games with one row for each seed, the players of a game side by side.
        rows: A number of rows that are whole games.

    Raises:
        UsageError: The game does not have two players.
    """
    whole = make_envs([1] * rows)
    whole.close()
    if len(whole.players) != 2:
        raise UsageError(f"this game has {len(whole.players) or 1} players. Only games of two players can be rated.")

    def play(first: Act, second: Act, seed: int) -> tuple[float, float]:
        envs = make_envs([seed, seed])
        try:
            return _play_game(envs, first, second)
        finally:
            envs.close()

    return play


def _play_game(envs: VecEnv, first: Act, second: Act) -> tuple[float, float]:
    returns: dict[int, float] = {}  # by row: a player may be out before the game ends
    step, played = envs.reset(), 0
    while len(returns) < 2:
        obs, mask = to_numpy(step.obs), None if step.mask is None else to_numpy(step.mask)
        chosen = [act(obs[k:k + 1], None if mask is None else mask[k:k + 1]) for k, act in enumerate((first, second))]
        step = envs.step(like(np.concatenate(list(map(np.asarray, chosen))), step.reward))
        for row in np.flatnonzero(to_numpy(step.episode.finished)):
            returns[int(row)] = float(step.episode.ret[row])
        played += 1
        if played == PATIENCE:
            warn_once(f"A game has not ended within {played:,} steps. Rating waits for its end: a game that may never "
                      "end needs a time limit.")
        if step.first.any() and len(returns) < 2:
            raise EnvError("a player of the game began an episode before both had ended one. Only games can be rated "
                           "in which both players begin together and do not come back after their end")
    return returns[0], returns[1]


def write_ratings(ratings: Sequence[Rating], games: Sequence[Game], folder: Path) -> None:
    """Write rating.json (ratings and games) and rating.png (rating over training).

    Raises:
        FilesError: A file cannot be written; earlier ones stay as they were.
    """
    content = {"ratings": [rating._asdict() for rating in ratings], "games": [game._asdict() for game in games]}
    with whole_file(folder / "rating.png", "") as picture:  # both, or none
        draw_ratings(ratings, picture)
        write_json(folder / "rating.json", content, "")


@plain_style()
def draw_ratings(ratings: Sequence[Rating], path: Path) -> None:
    """Draw ratings over training with two standard deviations, a line for each run; others are horizontal lines."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    for run in dict.fromkeys(rating.run for rating in ratings if rating.steps is not None):
        steps, mu, sigma = zip(*sorted((rating.steps, rating.mu, rating.sigma) for rating in ratings
                                       if rating.steps is not None and rating.run == run))
        axes.errorbar(steps, mu, 2 * np.array(sigma), marker="o", capsize=3, label=run or "checkpoints")
    for rating in ratings:
        if rating.steps is None:
            axes.axhline(rating.mu, linestyle="--", color="tab:gray", label=rating.name)
            axes.axhspan(rating.mu - 2 * rating.sigma, rating.mu + 2 * rating.sigma, color="tab:gray", alpha=0.15)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel("environment steps of training")
    axes.set_ylabel("rating (bars and band: two standard deviations)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
