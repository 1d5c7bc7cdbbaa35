"""Ratings of players with known strength, and one real game of Pong."""

import json
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete, MultiDiscrete

from proximo.config import Config
from proximo.envs.parallel_env import ParallelGames
from proximo.envs.pettingzoo import make_pettingzoo
from proximo.errors import EnvError, FilesError, UsageError
from proximo.models.model import Model
from proximo.models.rate import (
    Contestant,
    Game,
    model_player,
    play_selfplay,
    random_player,
    rate,
    rate_games,
    write_ratings,
)
from proximo.protocols import Episode, Spec, Step
from proximo.variants import SelfPlay
from tests.support.full_disk import bytes_below, full_disk
from tests.support.games import Corridor
from tests.support.models import random_model

pytest.importorskip("openskill")


def of_strength(strength, name):
    return Contestant(name, 1000 * strength, lambda obs, mask: np.full(len(obs), strength))


def contest(first, second, seed):
    """Play a game that the stronger side wins more often; the actions of the players are their strengths."""
    strength = [int(act(np.zeros(1), None)[0]) for act in (first, second)]
    gain = np.sign(np.random.default_rng(seed).normal(strength[0] - strength[1], 1))
    return float(gain), -float(gain)


def test_ratings_follow_strength():
    """Four players are rated in their true order, and uncertainty shrinks with the number of games."""
    models = [of_strength(k, f"k{k}") for k in (2, 0, 3, 1)]
    few, _ = rate(models, contest, rounds=1)
    many, games = rate(models, contest, rounds=12)
    assert [rating.name for rating in sorted(many, key=lambda rating: rating.mu)] == ["k0", "k1", "k2", "k3"]
    assert all(late.sigma < early.sigma < 25 / 3 for early, late in zip(few, many))
    assert len(games) == 12 * 6 * 2
    assert all(rating.won + rating.drawn + rating.lost == 12 * 3 * 2 for rating in many)
    assert sum(rating.won for rating in many) == sum(rating.lost for rating in many)


def test_both_sides_and_draws():
    """Every pair plays from both sides with the same seed; equal returns give equal ratings."""
    met = []

    def record(first, second, seed):
        met.append((int(first(np.zeros(1), None)[0]), int(second(np.zeros(1), None)[0]), seed))
        return 1.0, 1.0

    ratings, _ = rate([of_strength(k, f"k{k}") for k in range(2)], record, rounds=2)
    assert [pair[:2] for pair in met] == [(0, 1), (1, 0)] * 2
    assert met[0][2] == met[1][2] != met[2][2]
    assert ratings[0].mu == pytest.approx(ratings[1].mu)
    assert [rating.drawn for rating in ratings] == [4, 4]


def test_one_game_against_the_formulas():
    """Algorithm 1 of Weng & Lin 2011 (Bradley-Terry, full pair) for two new players of mean m and deviation s, with beta = s / 2
    and gamma = s / c. No deviation is added between games."""
    m, s = 25, 25 / 3
    c = np.sqrt(2 * s**2 + 2 * (s / 2) ** 2)
    expected = m + s**2 / c / 2, s * np.sqrt(1 - s / c * (s / c) ** 2 / 4)
    winner, loser = rate_games([of_strength(k, f"k{k}") for k in (1, 0)], [Game("k1", "k0", 1.0, -1.0)])
    assert (winner.mu, winner.sigma) == pytest.approx(expected, rel=1e-9)
    assert (loser.mu, loser.sigma) == pytest.approx((2 * m - expected[0], expected[1]), rel=1e-9)


def test_equal_seeds_give_equal_ratings():
    models = [of_strength(k, f"k{k}") for k in range(3)]
    assert rate(models, contest, seed=5) == rate(models, contest, seed=5)


def test_the_order_and_the_starts_of_games_differ_between_rounds_and_seeds():
    """Ten pairs, each of which meets once in a round, from both sides and from a start of its own."""
    def meet(seed):
        starts = []
        _, games = rate([of_strength(k, f"k{k}") for k in range(5)], lambda *given: (starts.append(given[2]) or 1.0, 1.0), 2, seed)
        pairs = [(game.first, game.second) for game in games]
        assert pairs[1::2] == [pair[::-1] for pair in pairs[::2]] and starts[::2] == starts[1::2]
        return [pairs[:20:2], pairs[20::2]], {*starts}

    (one, two), starts = meet(1)
    (three, _), others = meet(2)
    assert sorted(one) == sorted(two) == sorted(three) and one != two and one != three
    assert len(starts) == len(others) == 20 and not starts & others


def test_every_player_starts_every_game_with_its_own_noise():
    """Each game and side has its own noise, which depends on the seed; the start of a game is the same for both sides.
    """
    def noises(seed):
        told = []
        models = [of_strength(k, f"k{k}")._replace(begin=told.append) for k in range(3)]
        rate(models, contest, rounds=2, seed=seed)
        return told

    assert len(noises(1)) == len(set(noises(1))) == 2 * 3 * 2 * 2
    assert noises(1) == noises(1) and not set(noises(1)) & set(noises(2))


def test_begin_restarts_the_random_player():
    player, obs = random_player(Discrete(1000)), np.zeros((9, 1))
    player.begin(5)
    first = player.act(obs, None)
    assert not np.array_equal(player.act(obs, None), first)
    player.begin(5)
    assert np.array_equal(player.act(obs, None), first)
    player.begin(6)
    assert not np.array_equal(player.act(obs, None), first)


@pytest.mark.parametrize("space", [Discrete(5), MultiDiscrete([2, 3])])
def test_the_random_player_takes_each_allowed_action_equally_often(space):
    """Of 5 choices, 0, 3 and 4 are allowed; of 2 x 3, the first of two with the last two of three."""
    player, mask = random_player(space), np.tile(np.array([True, False, False, True, True]), (3000, 1))
    player.begin(5)
    action = player.act(np.zeros((3000, 1)), mask)
    found, count = np.unique(action, axis=0, return_counts=True)
    assert found.tolist() == ([0, 3, 4] if space == Discrete(5) else [[0, 1], [0, 2]])
    assert (abs(count / 3000 - 1 / len(found)) < 0.05).all()


class Remembering:
    """An actor whose action is the number of observations since its memory was cleared, and its noise."""

    def initial_state(self, num_envs):
        return (np.zeros(num_envs, int),)

    def act(self, obs, mask, first, state, noise_seed):
        seen = np.where(first, 0, state[0]) + 1
        return np.stack([seen, np.full(len(obs), noise_seed % 2**31)]), (seen,)


def test_a_model_plays_each_game_with_empty_memory_and_its_own_noise():
    """Two models of one network differ only in what begin() gives them."""
    spec = Spec((1,), np.dtype(np.float32), Discrete(2))
    one, two = (model_player(Model(Remembering(), spec, Config(), "ppo", None), steps) for steps in (10, 20))
    obs, noise = np.zeros((1, 1), np.float32), []
    for game in range(2):
        for side, player in enumerate((one, two)):
            player.begin(10 * game + side)
            acted = [player.act(obs, None) for _ in range(3)]
            assert [int(action[0, 0]) for action in acted] == [1, 2, 3]
            noise += [int(action[1, 0]) for action in acted]
    assert len(set(noise)) == len(noise) == 12 and (one.name, two.steps) == ("10 steps", 20)


def test_too_few_players_are_refused():
    with pytest.raises(UsageError, match="At least two players"):
        rate([of_strength(1, "a")], contest)
    with pytest.raises(UsageError, match="different names"):
        rate([of_strength(1, "a"), of_strength(2, "a")], contest)


def test_rating_files(tmp_path):
    """The JSON file has every rating and game; the figure is not blank."""
    ratings, games = rate([of_strength(1, "a"), of_strength(2, "b"), random_player(Discrete(3))], contest)
    write_ratings(ratings, games, tmp_path)
    kept = json.loads((tmp_path / "rating.json").read_text())
    assert [rating["name"] for rating in kept["ratings"]] == ["a", "b", "random"]
    assert len(kept["games"]) == len(games)
    (tmp_path / "file").write_text("")
    with pytest.raises(FilesError, match="rating.png could not be written"):
        write_ratings(ratings, games, tmp_path / "file" / "rating")
    before = bytes_below(tmp_path)
    with full_disk(), pytest.raises(FilesError, match="rating.png could not be written"):
        write_ratings(ratings[:2], games, tmp_path)
    assert bytes_below(tmp_path) == before
    image = pytest.importorskip("matplotlib.image").imread(tmp_path / "rating.png")
    assert image.shape[2] >= 3
    assert image.std() > 0.05


class Duel:
    """A game of one step with arrays of one library: action 1 wins, which the mask forbids in row 0 and forces in row 1."""

    players, num_envs = ("player_0", "player_1"), 2

    def __init__(self, to):
        self.to = to

    def answer(self, reward, ended):
        over, reward = self.to(np.array([ended, ended])), self.to(np.array(reward, np.float32))
        return Step(obs=self.to(np.float32([[0], [1]])), first=over, mask=self.to(np.array([[True, False], [False, True]])),
                    reward=reward, terminated=over, truncated=over, final_obs=None, valid=over,
                    episode=Episode(over, reward, over), metrics={})

    def reset(self):
        return self.answer([0, 0], False)

    def step(self, action):
        assert isinstance(action, torch.Tensor) == (self.to is torch.from_numpy)
        return self.answer([2 * float(action[0]) - 1, 2 * float(action[1]) - 1], True)

    def close(self):
        """Nothing is open."""


@pytest.mark.parametrize("to", [np.asarray, torch.from_numpy, "jax"])
def test_a_model_plays_with_arrays_of_every_library(to):
    """A network, of which each side gets its own row and mask, whatever the environments return."""
    to = pytest.importorskip("jax.numpy").asarray if to == "jax" else to
    one, two = (model_player(random_model(Discrete(2), obs_shape=(1,)), steps) for steps in (1, 2))
    assert play_selfplay(lambda seeds: Duel(to), 2)(one.act, two.act, 1) == (-1.0, 1.0)


def test_a_game_that_does_not_end_is_said(monkeypatch):
    """Rating waits for its end; with patience of three steps, a game of five."""
    class Long(Duel):
        left = 5

        def step(self, action):
            self.left -= 1
            return super().step(action) if not self.left else self.answer([0, 0], False)

    told = []
    monkeypatch.setattr("proximo.models.rate.PATIENCE", 3)
    monkeypatch.setattr("proximo.models.rate.warn_once", told.append)
    act = random_player(Discrete(2)).act
    assert play_selfplay(lambda seeds: Long(np.asarray), 2)(act, act, 1) == (-1.0, 1.0)
    assert told == ["A game has not ended within 3 steps. Rating waits for its end: a game that may never end needs a time limit."]


def test_a_player_that_joins_later_is_named_as_the_cause():
    """The game goes on when it joins."""
    act = random_player(Discrete(3)).act
    play = play_selfplay(lambda seeds: ParallelGames(partial(Corridor, agents=2, size=99, late=3), seeds), 2)
    with pytest.raises(EnvError, match="both players begin together and do not come back"):
        play(act, act, 1)


@pytest.mark.filterwarnings("ignore")
def test_a_real_game_of_pong():
    """Returns are opposite, the same seed gives the same game, and players see their own rows."""
    pytest.importorskip("multi_agent_ale_py")
    seen = []

    def watcher(obs, mask):
        seen.append(obs[0, 4:, 0, 0].tolist())
        return np.zeros(1, int)

    play = play_selfplay(partial(make_pettingzoo, SelfPlay(max_cycles=1500)), 4)
    returns = play(random_player(Discrete(6)).act, watcher, 3)
    assert returns[0] == -returns[1] != 0
    assert seen[0] == [0, 255]
    assert play(random_player(Discrete(6)).act, watcher, 3) == returns
    with pytest.raises(UsageError, match="this game has 4 players. Only games of two"):
        play_selfplay(partial(make_pettingzoo, SelfPlay(env_id="quadrapong_v4")), 4)
