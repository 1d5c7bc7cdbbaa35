"""The shares of an iteration, against parts whose time is known."""

import csv
import errno
import math
import time

import pytest

from proximo.catalog import config_class, parts_of
from proximo.errors import FilesError
from proximo.on_torch.loss import ppo_loss
from proximo.runs.folder.csv_file import files_of
from proximo.runs.logs.trackers import STARTERS
from proximo.runs.settings.resolve import resolve
from proximo.runs.shares import Shares, measure_shares, temporary_folder
from proximo.runs.timing import Recorder, TimedEnvs
from tests.support.runs import main, train

SMALL = {"num_envs": 2, "num_steps": 8, "num_minibatches": 2, "update_epochs": 1, "hidden_sizes": (8, 8), "checkpoint_every": 4}


def test_the_parts_of_an_iteration_add_up():
    """From times that are given; a loss that is compiled is not called, and a compiled iteration calls nothing."""
    recorder = Recorder()
    recorder.environment, recorder.played, recorder.learning = 2.0, 15.0, 16.0
    assert recorder.parts(10.0, 20.0) == {"environment": 2, "acting": 3, "evaluation and advantages": 1, "learning": 4}
    recorder.environment, recorder.played = 2.0, 25.0
    assert recorder.parts(20.0, 30.0) == {"environment": 2, "acting": 3, "learning": 5}
    assert recorder.parts(30.0, 40.0) == {"compiled iteration": 10}


def test_shares_of_the_time_since_the_last_call(monkeypatch):
    """From times that are given: 1 s of logging, steps of 3 s each with 2 s of acting between them, 1 s of learning."""
    times = iter([100.0, 110.0])
    monkeypatch.setattr("proximo.runs.timing.perf_counter", lambda: next(times))
    recorder = Recorder()
    assert recorder.shares() == {}  # a compiled iteration
    recorder.note_step(101.0, 104.0)
    recorder.note_step(106.0, 109.0)
    assert recorder.shares() == pytest.approx({"time/environment": 0.6, "time/acting": 0.2, "time/learning": 0.1})
    assert recorder.environment == recorder.played == recorder.began == 0


def test_the_first_shares_are_not_a_number():
    """They include set-up, but give the log its columns."""
    recorder = Recorder()
    recorder.note_step(1.0, 2.0)
    assert list(recorder.shares()) == ["time/environment", "time/acting", "time/learning"]
    recorder = Recorder()
    recorder.note_step(1.0, 2.0)
    assert all(math.isnan(value) for value in recorder.shares().values())


def test_a_run_logs_its_shares(tmp_path):
    """In metrics.csv: empty in the first line, then numbers that add up to at most 1; a resume continues them."""
    assert train(tmp_path / "run", "--total-timesteps", 96) == 0
    assert main(["resume", str(tmp_path / "run"), "--total-timesteps", "160"]) == 0
    with open(tmp_path / "run" / "metrics.csv") as file:
        lines = [{key: value for key, value in line.items() if key.startswith("time/")} for line in csv.DictReader(file)]
    assert len(lines) == 5 and [*lines[0]] == ["time/acting", "time/environment", "time/learning"]
    assert {*lines[0].values(), *lines[3].values()} == {""}
    for line in (lines[1], lines[2], lines[4]):
        assert all(0 < float(value) < 1 for value in line.values()) and sum(map(float, line.values())) <= 1


def test_overlapping_parts_have_no_shares(tmp_path):
    """docs/rollouts.md: rollouts and updates happen at the same time. A resume has none either."""
    assert train(tmp_path / "run", "--total-timesteps", 96, "--overlap") == 0
    assert main(["resume", str(tmp_path / "run"), "--total-timesteps", "160"]) == 0
    text = (tmp_path / "run" / "metrics.csv").read_text()
    assert text.count("\n") == 6 and "losses/lag_kl" in text and "time/" not in text


class Slow:
    """Environments whose step takes 5 ms longer."""

    def __init__(self, envs):
        self._envs = envs

    def __getattr__(self, name):
        return getattr(self._envs, name)

    def step(self, action):
        time.sleep(0.005)
        return self._envs.step(action)


def slow_loss(batch, cfg):
    time.sleep(0.05)
    return ppo_loss(batch, cfg)


def test_environments_and_learning_get_their_time(tmp_path, monkeypatch):
    """8 steps of 5 ms, 2 minibatches of 50 ms: at least so much, of which the first, before its end, is learning too."""
    monkeypatch.chdir(tmp_path)
    cfg, parts = resolve(config_class("ppo")(**SMALL), "ppo", 1, 1), parts_of("ppo", "torch")
    slow = parts._replace(make_envs=lambda cfg, seeds: Slow(parts.make_envs(cfg, seeds)))
    found = measure_shares(cfg, "ppo", slow, slow_loss, iterations=2)
    assert list(found.seconds) == ["environment", "acting", "evaluation and advantages", "learning", "logging", "checkpoints"]
    assert found.seconds["environment"] >= 0.04 and found.seconds["learning"] >= 0.1
    assert found.steps == 16 and found.sps == pytest.approx(16 / sum(found.seconds.values()))
    assert sum(map(found.share, found.seconds)) == pytest.approx(1) and found.share("flying") == 0
    assert list(tmp_path.iterdir()) == []


def measured(loss_fn=ppo_loss, **fields):
    return measure_shares(resolve(config_class("ppo")(**SMALL | fields), "ppo", 1, 1), "ppo", parts_of("ppo", "torch"), loss_fn,
                          iterations=2)


def test_the_first_iteration_does_not_count():
    """Its first minibatch takes two seconds here, after the call that asks for the names of the statistics."""
    calls = []

    def loss(batch, cfg):
        calls.append(1)
        time.sleep(2 if len(calls) == 2 else 0)
        return ppo_loss(batch, cfg)

    assert measured(loss).seconds["learning"] < 0.9


def test_a_checkpoint_counts_as_often_as_a_run_writes_one(monkeypatch):
    """One takes 0.4 seconds and is due every 4 iterations: 0.1 seconds of each where all are kept, otherwise 0.02 of the time."""
    monkeypatch.setattr("proximo.runs.shares.save", lambda *_: time.sleep(0.4))
    monkeypatch.setattr("proximo.runs.interrupts.recent.CHECKPOINT_SHARE", 0.02)
    assert 0.1 <= measured(keep_checkpoints=0).seconds["checkpoints"] < 0.3
    assert 0 < measured().share("checkpoints") <= 0.02


def test_calls_of_several_iterations_train_those_that_are_measured(monkeypatch):
    """JAX: the time of a call is divided by the iterations that it trains, and the checkpoint repeats none of them."""
    pytest.importorskip("flax")
    from proximo.on_jax.advance import Several
    from proximo.on_jax.loss import ppo_loss as jax_loss

    trained, repeated, start, ask = [], [], Several._start, Several._asked_for

    def noted_start(self, state, done):
        started = start(self, state, done)
        trained.append(started.number)
        return started

    def noted_ask(self, reached, number, pace):
        repeated.append(number not in reached)
        return ask(self, reached, number, pace)

    monkeypatch.setattr(Several, "_start", noted_start)
    monkeypatch.setattr(Several, "_asked_for", noted_ask)
    monkeypatch.setattr("proximo.on_jax.advance.LONGEST", math.inf)  # 1, 2, 4, ... iterations
    cfg = resolve(config_class("ppo")(framework="jax", env_id="CartPole-v1", **SMALL | {"checkpoint_every": 50}), "ppo", 1, 1)
    measure_shares(cfg, "ppo", parts_of("ppo", "jax"), jax_loss, iterations=4)
    assert trained == [1, 2, 2] and repeated and not any(repeated)


def test_no_tracker_hears_of_what_is_measured(monkeypatch):
    monkeypatch.setitem(STARTERS, "wandb", None)  # cannot be called
    cfg = resolve(config_class("ppo")(**SMALL, track=True), "ppo", 1, 1)
    assert cfg.logger == "wandb" and measure_shares(cfg, "ppo", parts_of("ppo", "torch"), ppo_loss, iterations=1).sps > 0


def test_timed_environments_are_those_that_they_hold():
    recorder = Recorder()
    envs = parts_of("ppo", "torch").make_envs(config_class("ppo")(**SMALL), [0, 1])
    timed = TimedEnvs(envs, recorder)
    assert timed.num_envs == 2 and timed.reset().obs.shape == (2, 4) and recorder.played == 0
    assert timed.step(envs.reset().first.astype(int)).reward.shape == (2,)
    assert 0 < recorder.environment < 1 and recorder.played > 0
    timed.close()


def test_shares_are_plain_numbers():
    assert Shares({"learning": 3.0, "acting": 1.0}, 8, 2.0, 0.0).share("learning") == 0.75


def test_a_full_folder_of_temporary_files(tmp_path):
    """There is no run that could be resumed."""
    with pytest.raises(FilesError, match=r"^Temporary files could not be written \(No space\). Free disk space, or set TMPDIR"), \
            temporary_folder() as place, files_of(place):
        raise OSError(errno.ENOSPC, "No space")
    with pytest.raises(FilesError, match="^The cache"), temporary_folder():
        raise FilesError("The cache is full")
