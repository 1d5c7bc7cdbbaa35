"""Episode counts equal those of a plain Python loop."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proximo.envs.episodes import EpisodeCounter, count_episodes, finished_episodes, start_episodes
from proximo.protocols import Episode

N = 3
STEPS = st.lists(st.lists(st.tuples(st.integers(-9, 9), st.booleans(), st.booleans()), min_size=N, max_size=N),
                 min_size=1, max_size=20)


@given(STEPS)
def test_counter_and_pure_function_equal_a_loop(steps):
    """Counts equal sums in a loop over rows; fillers (not valid) change nothing. EpisodeCounter gets 0 as their reward."""
    counter, running = EpisodeCounter(N), start_episodes(N)
    games = [(0, 0)] * N
    for rows in steps:
        reward, over, valid = map(np.array, zip(*rows))
        running, pure = count_episodes(running, reward.astype(float), over, valid)
        episode = counter.count(np.where(valid, reward, 0.0), over if over.any() else None, valid)
        for i in np.flatnonzero(valid):
            games[i] = games[i][0] + reward[i], games[i][1] + 1
        for found in (episode, pure):
            assert np.array_equal(found.finished, over & valid)
            assert all((found.ret[i], found.length[i]) == games[i] for i in np.flatnonzero(over & valid))
        games = [(0, 0) if ended else game for game, ended in zip(games, over & valid)]


def test_a_reset_begins_all_games_again():
    """What was played of a game before it has no part in the next one."""
    counter, yes = EpisodeCounter(2), np.ones(2, bool)
    counter.count(np.array([1.0, 2.0]), None, yes)
    counter.clear()
    episode = counter.count(np.array([3.0, 4.0]), yes, yes)
    assert episode.ret.tolist() == [3, 4] and episode.length.tolist() == [1, 1]


def test_state_continues():
    """Also where the environments have played on since it was taken."""
    one, other = EpisodeCounter(2), EpisodeCounter(2)
    yes = np.ones(2, bool)
    one.count(np.array([1.0, 2.0]), None, yes)
    state = one.state()
    one.count(np.array([9.0, 9.0]), None, yes)
    other.load(state)
    episode = other.count(np.array([3.0, 4.0]), yes, yes)
    assert episode.ret.tolist() == [4, 6] and episode.length.tolist() == [2, 2]


def test_an_episode_has_the_step_with_which_it_ends():
    """10 steps were played before, then 3, 1 and 2: the first and the last of these end an episode."""
    finished = np.array([[False, True, False], [False, False, False], [True, False, False]])
    numbers = np.arange(9).reshape(3, 3)
    ended, steps = finished_episodes(Episode(finished=finished, ret=numbers, length=numbers), np.array([3, 1, 2]), 10)
    assert ended.step.tolist() == [13, 16] and steps == 16 and type(steps) is int
    assert ended.row.tolist() == [1, 0] and ended.ret.tolist() == ended.length.tolist() == [1, 6]
