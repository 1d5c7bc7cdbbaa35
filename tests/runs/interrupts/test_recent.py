"""Copies of iterations in memory: which are made, and which are forgotten."""

from types import SimpleNamespace

import gymnasium
import pytest

import proximo
from proximo.models.read_folder import read_model
from proximo.runs.folder.checkpoint import checkpoints
from proximo.runs.interrupts.recent import Recent
from proximo.runs.session import Session
from proximo.types import Iteration
from tests.support.runs import terminate


def ended(number, keeps_state=True):
    return Iteration(iteration=number, steps=number, stats={}, finished=None, snapshot=lambda: {"number": number},
                     weights=dict, call_envs=list, spec=None, players=(), statistics=None, keeps_state=keeps_state)


LOG = SimpleNamespace(state=dict)


@pytest.mark.parametrize("keeps", [(True, True), (True, False), (False, True)])
def test_only_iterations_that_continue_exactly_are_copied(keeps):
    """Of several runs all or none, so that they continue together."""
    recent = Recent()
    recent.offer({number: (ended(7, each), LOG, ()) for number, each in enumerate(keeps)})
    assert [one.it.snapshot() for one in recent.contents.values()] == ([{"number": 7}] * 2 if all(keeps) else [])


def test_an_iteration_that_was_saved_is_not_copied_and_older_copies_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr("proximo.runs.interrupts.recent.LEAST_SECONDS", 0.0)
    monkeypatch.setattr("proximo.runs.interrupts.recent.SHARE", 1e9)
    watcher = SimpleNamespace(log=LOG, callbacks=(), saved_iteration=0, save_seconds=0.0)
    session = Session(tmp_path, [watcher], iter(()))
    copies = []
    for number, saved in ((2, 0), (3, 3), (4, 3)):
        watcher.saved_iteration = saved
        session._copy([ended(number)])
        copies.append([content.it.iteration for content in session._recent.contents.values()])
    assert copies == [[2], [], [4]]


def saved_of(folder, **fields):
    """Train ten iterations with a checkpoint after each; return which were written."""
    saved = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("proximo.runs.watcher.save_checkpoint", lambda run, iteration, tree, keep: saved.append(iteration))
        proximo.train("ppo", env_id="CartPole-v1", num_envs=1, num_steps=8, num_minibatches=1, total_timesteps=80, checkpoint_every=1,
                      logger="none", run_dir=folder, **fields)
    return saved


def test_checkpoints_of_which_the_newest_are_kept_are_seconds_apart(tmp_path, monkeypatch):
    """The first one that is due and the last one are written. If all are kept, each is."""
    assert saved_of(tmp_path / "all_due") == list(range(1, 11))
    monkeypatch.setattr("proximo.runs.interrupts.recent.CHECKPOINT_SECONDS", 1e9)
    assert saved_of(tmp_path / "few") == [1, 10]
    assert saved_of(tmp_path / "all", keep_checkpoints=0) == list(range(1, 11))


class Opaque(gymnasium.Wrapper):
    """Its state cannot be saved, so that a run can continue from scheduled checkpoints only."""

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.handle = {1, 2}


def test_a_signal_saves_a_checkpoint_that_is_due(tmp_path, monkeypatch):
    """Also right after another one: the process ends, and nothing newer follows."""
    monkeypatch.setattr("proximo.runs.interrupts.recent.CHECKPOINT_SECONDS", 1e9)
    with pytest.raises(KeyboardInterrupt):
        proximo.train("ppo", env=Opaque, num_envs=1, num_steps=8, num_minibatches=1, total_timesteps=80, checkpoint_every=2,
                      logger="none", run_dir=tmp_path / "run", callbacks=[lambda it: terminate() if it.iteration == 4 else None])
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["00000002", "00000004"]


def test_a_video_shows_the_newest_agent_also_where_the_checkpoint_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("proximo.runs.interrupts.recent.CHECKPOINT_SECONDS", 1e9)
    shown, trained = [], []

    def total(weights):
        return sum(float(x.sum()) for x in weights.values())

    def record(cfg, parts, folder, steps):
        shown.append(total(read_model(folder)["weights"]))

    monkeypatch.setattr("proximo.runs.custom_parts.record_run_video", record)
    proximo.train("ppo", env_id="CartPole-v1", num_envs=1, num_steps=8, num_minibatches=1, total_timesteps=40, checkpoint_every=1,
                  logger="none", run_dir=tmp_path / "run", capture_video=True,
                  callbacks=[lambda it: trained.append(total(it.weights()))])
    assert shown == trained and len(set(shown)) == 5


def test_a_copy_is_not_needed_right_after_a_checkpoint(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("proximo.runs.interrupts.recent.time.perf_counter", lambda: now[0])
    recent = Recent()
    recent.forget(0.0)
    for now[0], copied in ((0.9, False), (1.1, True)):
        recent.offer({0: (ended(7), LOG, ())})
        assert bool(recent.contents) == copied


@pytest.mark.parametrize(("seconds", "apart"), [(0.0, 1.0), (0.02, 1.0), (0.1, 5.0), (2.0, 100.0)])
def test_checkpoints_take_two_hundredths_of_the_time_at_most(seconds, apart, monkeypatch):
    """Where the disk is slow, they are further apart than a second."""
    now = [0.0]
    monkeypatch.setattr("proximo.runs.interrupts.recent.time.perf_counter", lambda: now[0])
    monkeypatch.setattr("proximo.runs.interrupts.recent.CHECKPOINT_SECONDS", 1.0)
    monkeypatch.setattr("proximo.runs.interrupts.recent.CHECKPOINT_SHARE", 0.02)
    recent = Recent()
    assert not recent.saved_just_now()
    recent.forget(seconds)
    for now[0], early in ((0.99 * apart, True), (1.01 * apart, False)):
        assert recent.saved_just_now() == early


def test_the_time_of_saving_decides_when_the_next_checkpoint_is_due(tmp_path, monkeypatch):
    """Any time is too long here, so only the first one that is due and the last one are written."""
    monkeypatch.setattr("proximo.runs.interrupts.recent.CHECKPOINT_SHARE", 1e-6)
    monkeypatch.setattr("proximo.runs.interrupts.recent.CHECKPOINT_SECONDS", 0.0)
    assert saved_of(tmp_path / "few") == [1, 10]
    assert saved_of(tmp_path / "all", keep_checkpoints=0) == list(range(1, 11))


def test_a_checkpoint_does_not_bring_an_expensive_copy_forward(monkeypatch):
    """A copy of 0.05 seconds is due every 5 seconds, also where iterations are saved in between."""
    now, taken = [0.0], []
    monkeypatch.setattr("proximo.runs.interrupts.recent.time.perf_counter", lambda: now[0])

    def snapshot():
        taken.append(round(now[0], 2))
        now[0] += 0.05
        return {}

    recent = Recent()
    for second in (0, 1, 3, 6):
        now[0] = float(second)
        recent.offer({0: (ended(7)._replace(snapshot=snapshot), LOG, ())})
        recent.forget(0.0)
    assert taken == [0, 6]
