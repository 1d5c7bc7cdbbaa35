"""Evaluations and videos: which steps count, and which frames are shown."""

import gymnasium
import numpy as np
import pytest

from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.errors import EnvError
from proximo.models.evaluate import Evaluation, episode_returns, evaluate, evaluation_record, frames
from tests.support.probes import Probe


class Player:
    """A model that always takes action 0."""

    def __init__(self, env_id):
        self.cfg = Config(env_id=env_id)

    def reset(self, seed=0):
        pass

    def choose(self, obs, first, mask, deterministic):
        return np.zeros(len(obs), int)


class Drawn(Probe):
    """Each frame encodes the episode and the number of actions in it."""

    metadata = {"render_modes": ["rgb_array"]}
    render_mode, episode = None, 0

    def reset(self, *, seed=None, options=None):
        self.episode += 1
        return super().reset(seed=seed)

    def render(self):
        return np.full((2, 2, 3), 10 * self.episode + self.played, np.uint8)


class Unlucky(Drawn):
    """Its render fails."""

    def render(self):
        raise RuntimeError("the screen is on fire")


class Uneven(Probe):
    """Episodes end after 3 steps for an even seed, and never for an odd one."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.length = 10**9 if seed % 2 else 3
        return super().reset(seed=seed)


class Late(Uneven):
    """Its long episodes have 10 steps."""

    def reset(self, *, seed=None, options=None):
        answer = super().reset(seed=seed)
        self.length = min(self.length, 10)
        return answer


gymnasium.register("Uneven-v0", entry_point=Uneven)
gymnasium.register("Late-v0", entry_point=Late)
gymnasium.register("Drawn-v0", entry_point=Drawn)
gymnasium.register("Unlucky-v0", entry_point=Unlucky)


@pytest.mark.parametrize("autoreset,most,shown", [
    ("same-step", 99, [10, 11, 12, 13]), ("next-step", 99, [10, 11, 12, 13, 14]), ("same-step", 3, [10, 11, 12]),
    ("same-step", 1, [10])])
def test_a_video_shows_one_episode_from_its_first_frame(autoreset, most, shown):
    """No frame of the next episode; the final frame only where the suite has not yet reset."""
    envs = make_gym(Config(env_id="Drawn-v0", autoreset=autoreset), [1, 2])
    assert [frame[0, 0, 0] for frame in frames(Player("Drawn-v0"), envs, True, 0, most)] == shown


@pytest.mark.parametrize("autoreset,episodes,shown", [
    ("same-step", range(2), [10, 11, 12, 13, 20, 21, 22, 23]), ("same-step", range(2, 3), [30, 31, 32, 33]),
    ("next-step", range(2), [10, 11, 12, 13, 14, 20, 21, 22, 23, 24]), ("next-step", range(1, 2), [20, 21, 22, 23, 24])])
def test_a_video_shows_the_chosen_episodes(autoreset, episodes, shown):
    """Several, or a later one alone, with the returns that were played before without drawing."""
    cfg = Config(env_id="Drawn-v0", autoreset=autoreset)
    assert [frame[0, 0, 0] for frame in frames(Player("Drawn-v0"), make_gym(cfg, [1, 2]), True, 0, 99, episodes)] == shown
    returns = episode_returns(Player("Drawn-v0"), make_gym(cfg, [1, 2]), True, 0, 3)
    assert len(returns) == 3 and returns == evaluate(Player("Drawn-v0"), make_gym(cfg, [1]), 3, True).returns


def test_an_environment_that_cannot_draw_is_named():
    envs = make_gym(Config(env_id="Unlucky-v0"), [1])
    with pytest.raises(EnvError, match="Unlucky-v0: render raised RuntimeError: the screen is on fire.*add --env-kwargs render_mode=rgb_array.*proximo doctor"):
        next(frames(Player("Unlucky-v0"), envs, True))


def test_episodes_that_last_too_long_are_given_up(monkeypatch, capsys):
    """The other rows play their share; where no episode ends at all, the user is told early and the result is empty."""
    monkeypatch.setattr("proximo.models.evaluate.PATIENCE", 5)
    player = Player("Uneven-v0")
    found = evaluate(player, make_gym(Config(env_id="Uneven-v0"), [0, 1, 2]), 12, True, max_steps=6)
    assert found.lengths == [3] * 8 and found.rows == [0] * 4 + [2] * 4 and capsys.readouterr().err == ""
    found = evaluate(player, make_gym(Config(env_id="Uneven-v0"), [1, 3]), 2, True, max_steps=9)
    assert found.returns == []
    assert "no episode has ended within 5 steps. Evaluation waits for up to 9 steps" in capsys.readouterr().err


@pytest.mark.parametrize("episodes", [6, 30])
def test_an_episode_that_is_too_long_never_counts(episodes):
    """However long the other environments play, and however often: theirs have 3 steps, its own 10."""
    envs = make_gym(Config(env_id="Late-v0"), [0, 1])
    found = evaluate(Player("Late-v0"), envs, episodes, True, max_steps=9)
    assert found.lengths == [3] * (episodes // 2)
    found = evaluate(Player("Late-v0"), envs, 6, True, max_steps=10)
    assert found.lengths == [3, 3, 3, 10, 10, 10]


def test_the_steps_of_an_episode_count_from_its_first_one():
    """All episodes have 3 or 10 steps; the filler row between two of them is no step of the second."""
    envs = make_gym(Config(env_id="Late-v0", autoreset="next-step"), [0, 1])
    assert evaluate(Player("Late-v0"), envs, 6, True, max_steps=10).lengths == [3, 3, 3, 10, 10, 10]
    assert evaluate(Player("Late-v0"), envs, 6, True, max_steps=9).lengths == [3, 3, 3]


def test_every_player_has_as_many_episodes():
    """Five episodes of two players in four rows: two in each row."""
    envs = make_gym(Config(env_id="Drawn-v0"), [1, 2, 3, 4])
    assert evaluate(Player("Drawn-v0"), envs, 5, True).rows == [0, 0, 1, 1, 2]
    envs.players = ("player0", "player1")
    assert evaluate(Player("Drawn-v0"), envs, 5, True).rows == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_record_has_the_metrics_of_every_episode():
    """Which of them it is of, such as the instance of a problem, is one of them. Null where an episode has none."""
    found = Evaluation([1.0, 2.0], [3, 4], [0, 1], metrics={"makespan": [7.0, np.nan], "instance": [0.0, 1.0]})
    record = evaluation_record(found, "Shop", True, 0)
    assert record["metrics"] == {"makespan": 7.0, "instance": 0.5}
    assert record["episode_metrics"] == {"makespan": [7.0, None], "instance": [0.0, 1.0]}
