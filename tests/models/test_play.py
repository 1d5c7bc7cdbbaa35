"""Playing with a trained model: the environments that it plays in, and what is said where episodes do not end."""

from dataclasses import replace

import imageio
import numpy as np
import pytest

from proximo.catalog import parts_of
from proximo.cli.main import main
from proximo.config import Config
from proximo.errors import UsageError
from proximo.models.play import (
    HowPlayed,
    evaluate_model,
    make_drawn_envs,
    make_playing_envs,
    pick_episode,
    record_video,
)
from proximo.streams import env_seeds
from tests.support.runs import train


def test_environments_give_raw_observations_in_this_process():
    """Whatever trained the model: normalisation, worker processes and JAX's own environments are left out."""
    cfg = Config(norm_obs=True, norm_reward=True, env_workers=2, engine="jax", framework="jax")
    envs = make_playing_envs(cfg, parts_of("ppo", "torch"), 3, 0)
    assert envs.num_envs == 3 and envs.arrays == "numpy"
    assert np.abs(envs.reset().obs).max() < 0.05
    envs.close()


def test_no_environment_has_the_seed_of_one_of_training():
    """An evaluation with the seed of the run would begin with the episodes that the agent was trained in."""
    seeds = []
    make_playing_envs(Config(), parts_of("ppo", "torch")._replace(make_envs=lambda cfg, given: seeds.extend(given)), 8, 1)
    assert len(seeds) == 8 and not {*seeds} & {*env_seeds(1, 8)}


def test_playing_leaves_the_model_as_it_is(tmp_path):
    """Its recurrent state and the noise of its next action are those of the caller's own episode."""
    import proximo

    train(tmp_path, "--recurrent", "lstm")
    model, obs = proximo.load(tmp_path), np.full(4, 0.1, np.float32)
    for _ in range(3):
        model.act(obs)
    before = model.value(obs), model._calls
    proximo.evaluate(model, 2)
    proximo.watch(model, tmp_path / "video.gif", max_frames=3)
    assert (model.value(obs), model._calls) == before


@pytest.mark.parametrize("pick", [None, "worst"])
def test_a_video_ends_with_what_the_last_action_led_to(pick, tmp_path):
    """One frame for each step and one for the reset."""
    import proximo

    train(tmp_path)
    lengths = proximo.evaluate(tmp_path, 4, num_envs=1).lengths
    chosen = ["--episodes", "4", "--pick", pick] if pick else []
    assert main(["watch", str(tmp_path), "--out", str(tmp_path / "video.mp4"), *chosen]) == 0
    with imageio.get_reader(tmp_path / "video.mp4") as video:
        assert video.count_frames() == (min(lengths) if pick else lengths[0]) + 1


def test_environments_that_reset_in_the_same_step_are_drawn_too():
    """Those that refuse to reset one step late, such as Atari games."""
    asked = []

    def make_envs(cfg, seeds):
        asked.append(cfg.autoreset)
        if cfg.autoreset != "same-step":
            raise UsageError("autoreset has no effect")
        return parts_of("ppo", "torch").make_envs(cfg, seeds)

    make_drawn_envs(Config(), parts_of("ppo", "torch")._replace(make_envs=make_envs), 1, 0).close()
    assert asked == ["next-step", "same-step"]


def test_no_more_environments_are_open_than_episodes_are_played(tmp_path, monkeypatch):
    """Nor more than num_envs, such as one robot; None is the default, as for max_steps."""
    import proximo

    train(tmp_path)
    opened = []
    monkeypatch.setattr("proximo.models.play.make_playing_envs", lambda *given: opened.append(given[2]) or (
        make_playing_envs(*given)))
    for episodes in (1, 3, 9):
        proximo.evaluate(tmp_path, episodes)
    assert opened == [1, 3, 8]
    one = proximo.evaluate(tmp_path, 4, num_envs=1)
    assert main(["eval", str(tmp_path), "--episodes", "4", "--num-envs", "2"]) == 0
    assert proximo.evaluate(tmp_path, 4, num_envs=None, max_steps=None).rows == [0, 1, 2, 3]
    assert opened == [1, 3, 8, 1, 2, 4] and one.rows == [0, 0, 0, 0]


def test_another_task_is_refused_by_everything_that_plays(tmp_path):
    """CartPole has 4 numbers and 2 actions, Acrobot 6 and 3."""
    import proximo

    train(tmp_path)
    model, parts = proximo.load(tmp_path), parts_of("ppo", "torch")
    model.cfg = replace(model.cfg, env_id="Acrobot-v1")
    for play in (lambda: evaluate_model(model, parts, HowPlayed(1)), lambda: pick_episode(model, parts, True, 1, True, 0),
                 lambda: record_video(model, parts, tmp_path / "video.gif")):
        with pytest.raises(UsageError, match=r"has observations float32 of shape \(6,\).* trained with observations"):
            play()


def test_the_best_and_the_worst_episode_are_picked(tmp_path, monkeypatch, capsys):
    import proximo

    train(tmp_path)
    monkeypatch.setattr("proximo.models.play.episode_returns", lambda *given: [3.0, 9.0, 1.0, 3.0])
    model, parts = proximo.load(tmp_path), parts_of("ppo", "torch")
    assert [pick_episode(model, parts, best, 4, True, 0) for best in (True, False)] == [range(1, 2), range(2, 3)]
    assert "Episode 2 of 4 is the best: return 9.00, mean 4.00." in capsys.readouterr().err


def test_unfinished_episodes_are_told(tmp_path, capsys):
    import proximo

    train(tmp_path, "--env-id", "tests.models.test_evaluate:Uneven-v0")
    model = proximo.load(tmp_path)
    found = evaluate_model(model, parts_of("ppo", "torch"), HowPlayed(episodes=16, max_steps=20))
    assert len(found.returns) == 8 and "Only 8 of 16 episodes ended within 20 steps" in capsys.readouterr().err
    with pytest.raises(UsageError, match="no episode ended within 1 steps"):
        evaluate_model(model, parts_of("ppo", "torch"), HowPlayed(max_steps=1))
