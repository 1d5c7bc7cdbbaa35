"""What happens around training: when videos are due, and what is written before the first iteration."""

import threading

import gymnasium as gym
import pytest

import proximo
from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.errors import FilesError
from proximo.on_torch.assemble import assemble
from proximo.on_torch.train import train
from proximo.runs.folder.checkpoint import checkpoints
from proximo.runs.folder.run import Run, write_config
from proximo.runs.interrupts.signals import Signals
from proximo.runs.watcher import Watcher, calls_together
from proximo.variants import BatchedSim


def test_videos_follow_checkpoints_or_the_variants_own_steps(tmp_path):
    """Every 40 steps of an environment at 16 an iteration: after 40, 80, 120 and 160."""
    every = Watcher(Run(tmp_path, BatchedSim(num_steps=16, record_video_step_frequency=40), "any"))
    assert [i for i in range(1, 11) if every._video_due(i, checkpoint=False)] == [3, 5, 8, 10]
    plain = Watcher(Run(tmp_path, Config(), "any"))
    assert plain._video_due(1, checkpoint=True) and not plain._video_due(1, checkpoint=False)


def test_nothing_is_written_before_the_first_iteration(tmp_path):
    began = []
    watcher = Watcher(Run(tmp_path, Config(), "ppo"), before_first=lambda: began.append(1))
    watcher.close()
    assert began == [] and list(tmp_path.iterdir()) == []


def test_calls_of_several_runs_wait_for_each_other_and_raise_what_failed():
    """Two calls that end only if both run at the same time; then one that fails, after which the others have ended."""
    meeting, done = threading.Barrier(2, timeout=60), []
    with calls_together(2) as call:
        call(lambda: done.append(meeting.wait()))
        call(lambda: done.append(meeting.wait()))
    assert sorted(done) == [0, 1]
    with pytest.raises(FilesError, match="full"), calls_together(3) as call:
        call(fail, "full")
        call(done.append, 2)
    assert done[2:] == [2]


def test_the_call_of_one_run_is_made_at_once():
    done = []
    with calls_together(1) as call:
        call(done.append, threading.current_thread())
        assert done == [threading.current_thread()]


def fail(message):
    raise FilesError(message)


class Opaque(gym.Wrapper):
    """Pendulum with a state that cannot be saved."""

    def __init__(self, length=500):
        super().__init__(gym.make("Pendulum-v1", max_episode_steps=length))
        self.handle = {1, 2}


def said_of_ends(caplog):
    """Return which messages name episodes that have not ended: their iteration, and whether they name the remedy."""
    found = [record.message for record in caplog.records if "No episode has ended in" in record.message]
    return [(int(one.split()[5]), "--checkpoint-every" in one) for one in found]


PENDULUM = {"num_envs": 1, "num_steps": 16, "num_minibatches": 2, "checkpoint_every": 2, "logger": "none"}


@pytest.mark.parametrize(("length", "told"), [(8, []), (500, [(2, True), (6, True)])])
def test_episodes_that_never_end_are_told(length, told, tmp_path, caplog):
    """Environments whose state cannot be saved are made again every 32 steps here, in the middle of longer episodes."""
    proximo.train(env=lambda: Opaque(length), total_timesteps=96, run_dir=tmp_path / "run", **PENDULUM)
    assert said_of_ends(caplog) == told


def test_a_resume_tells_of_episodes_that_never_end_again(tmp_path, caplog):
    """Each process of a run that is cut often has a log of its own."""
    run = proximo.train(env=Opaque, total_timesteps=64, run_dir=tmp_path / "run", **PENDULUM)
    caplog.clear()
    proximo.resume(run, env=Opaque, total_timesteps=160)
    assert said_of_ends(caplog) == [(6, True), (10, True)]


def test_a_run_that_is_shorter_than_an_episode_says_so_at_its_end(tmp_path, caplog):
    proximo.train(env=lambda: gym.make("Pendulum-v1"), total_timesteps=64, run_dir=tmp_path / "run", **PENDULUM)
    assert said_of_ends(caplog) == [(4, False)]


def test_a_video_is_recorded_when_the_checkpoint_is_written(tmp_path, monkeypatch):
    """Also where several runs train together, which save in other threads: it shows what was saved."""
    shown, later = [], []
    monkeypatch.setattr("proximo.runs.custom_parts.record_run_video",
                        lambda cfg, parts, folder, steps: shown.append([path.name for path in checkpoints(folder)]))
    cfg = Config(num_envs=1, num_steps=8, num_minibatches=1, hidden_sizes=(8,), total_timesteps=16, checkpoint_every=1,
                 logger="none", capture_video=True)
    run = Run(tmp_path, cfg, "ppo")
    write_config(run)
    watcher = Watcher(run)
    for it in train(cfg, make_gym, assemble):
        watcher.watch(it, Signals(), lambda *call: later.append(call), False)
    watcher.close()
    assert shown == [["00000001"], ["00000001", "00000002"]]
