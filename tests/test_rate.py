"""Ratings against players whose strength is known, and one real game of Pong."""

import json
from functools import partial

import numpy as np
import pytest

from proximo.envs.pettingzoo import make_pettingzoo
from proximo.errors import UsageError
from proximo.rate import Contestant, play_selfplay, random_player, rate, write_ratings
from proximo.variants import SelfPlay

pytest.importorskip("openskill")


def of_strength(strength, name):
    return Contestant(name, 1000 * strength, lambda obs: np.full(len(obs), strength))


def contest(first, second, seed):
    """The stronger one wins more often: strengths are what the players answer."""
    strength = [int(act(np.zeros(1))[0]) for act in (first, second)]
    gain = np.sign(np.random.default_rng(seed).normal(strength[0] - strength[1], 1))
    return float(gain), -float(gain)


def test_ratings_follow_strength():
    """Four players in their true order, whatever order they are given in; uncertainty shrinks with games."""
    models = [of_strength(k, f"k{k}") for k in (2, 0, 3, 1)]
    few, _ = rate(models, contest, rounds=1)
    many, games = rate(models, contest, rounds=12)
    assert [rating.name for rating in sorted(many, key=lambda rating: rating.mu)] == ["k0", "k1", "k2", "k3"]
    assert all(late.sigma < early.sigma < 25 / 3 for early, late in zip(few, many))
    assert len(games) == 12 * 6 * 2
    assert all(rating.won + rating.drawn + rating.lost == 12 * 3 * 2 for rating in many)
    assert sum(rating.won for rating in many) == sum(rating.lost for rating in many)


def test_both_sides_and_draws():
    """Every pair plays from both sides with the same seed; equal returns leave equal ratings."""
    met = []

    def record(first, second, seed):
        met.append((int(first(np.zeros(1))[0]), int(second(np.zeros(1))[0]), seed))
        return 1.0, 1.0

    ratings, _ = rate([of_strength(k, f"k{k}") for k in range(2)], record, rounds=2)
    assert [pair[:2] for pair in met] == [(0, 1), (1, 0)] * 2
    assert met[0][2] == met[1][2] != met[2][2]
    assert ratings[0].mu == pytest.approx(ratings[1].mu)
    assert [rating.drawn for rating in ratings] == [4, 4]


def test_repeats():
    models = [of_strength(k, f"k{k}") for k in range(3)]
    assert rate(models, contest, seed=5) == rate(models, contest, seed=5)


def test_nobody_to_compare():
    with pytest.raises(UsageError, match="two at least"):
        rate([of_strength(1, "a")], contest)
    with pytest.raises(UsageError, match="names of their own"):
        rate([of_strength(1, "a"), of_strength(2, "a")], contest)


def test_files(tmp_path):
    """The JSON holds every rating and game; the picture is one and is not blank."""
    ratings, games = rate([of_strength(1, "a"), of_strength(2, "b"), random_player(3)], contest)
    write_ratings(ratings, games, tmp_path)
    kept = json.loads((tmp_path / "rating.json").read_text())
    assert [rating["name"] for rating in kept["ratings"]] == ["a", "b", "random"]
    assert len(kept["games"]) == len(games)
    image = pytest.importorskip("matplotlib.image").imread(tmp_path / "rating.png")
    assert image.shape[2] >= 3
    assert image.std() > 0.05


@pytest.mark.filterwarnings("ignore")
def test_a_real_game_of_pong():
    """Returns of the two sides are opposite, the seed repeats the game, and players see their own rows."""
    pytest.importorskip("multi_agent_ale_py")
    seen = []

    def watcher(obs):
        seen.append(obs[0, 4:, 0, 0].tolist())
        return np.zeros(1, int)

    play = play_selfplay(partial(make_pettingzoo, SelfPlay(max_cycles=1500)))
    returns = play(random_player(6).act, watcher, 3)
    assert returns[0] == -returns[1] != 0
    assert seen[0] == [0, 255]
    assert play(random_player(6).act, watcher, 3) == returns
    with pytest.raises(UsageError, match="4 players"):
        play_selfplay(partial(make_pettingzoo, SelfPlay(env_id="quadrapong_v4")))(watcher, watcher, 1)
