"""Episode counts equal those of a plain Python loop."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proximo.envs.episodes import EpisodeCounter, count_episodes, finished_episodes, start_episodes
from proximo.protocols import Episode

ROWS = st.lists(st.tuples(st.integers(-9, 9), st.booleans(), st.booleans()), min_size=1, max_size=30)


@given(ROWS)
def test_counter_and_pure_function_equal_a_loop(rows):
    """Counts equal sums in a loop; filler rows (not valid, reward 0) change nothing."""
    counter, running = EpisodeCounter(1), start_episodes(1)
    ret = length = 0
    for reward, over, valid in rows:
        reward, over = reward * valid, over and valid
        ret, length = ret + reward, length + valid
        arrays = np.array([reward], float), np.array([over]), np.array([valid])
        running, pure = count_episodes(running, *arrays)
        episode = counter.count(arrays[0], arrays[1] if over else None, arrays[2])
        for found in (episode, pure):
            assert found.finished[0] == over
            if over:
                assert (found.ret[0], found.length[0]) == (ret, length)
        if over:
            ret = length = 0


def test_state_continues():
    one, other = EpisodeCounter(2), EpisodeCounter(2)
    yes = np.ones(2, bool)
    one.count(np.array([1.0, 2.0]), None, yes)
    other.load(one.state())
    episode = other.count(np.array([3.0, 4.0]), yes, yes)
    assert episode.ret.tolist() == [4, 6] and episode.length.tolist() == [2, 2]


def test_an_episode_has_the_step_with_which_it_ends():
    """10 steps were played before, then 3, 1 and 2: the first and the last of these end an episode."""
    finished = np.array([[False, True, False], [False, False, False], [True, False, False]])
    numbers = np.arange(9).reshape(3, 3)
    ended, steps = finished_episodes(Episode(finished=finished, ret=numbers, length=numbers), np.array([3, 1, 2]), 10)
    assert ended.step.tolist() == [13, 16] and steps == 16
    assert ended.row.tolist() == [1, 0] and ended.ret.tolist() == ended.length.tolist() == [1, 6]
