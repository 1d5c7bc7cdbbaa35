"""Attributes that a callback sets, in environments that are made again because their state cannot be saved."""

import threading

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.envs.state.kept_attributes import KeptAttributes
from proximo.errors import FilesError, warn_once
from tests.support.runs import rows, same_weights

SMALL = {"num_envs": 4, "num_steps": 8, "num_minibatches": 2, "update_epochs": 1, "hidden_sizes": (8,), "logger": "none",
         "checkpoint_every": 2, "total_timesteps": 32 * 7, "env_workers": 0}


class Level(gym.Env):
    """Its reward is its level, and it cannot be saved. An episode ends after 4 steps, two in each rollout."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.level, self.held = 0.0, threading.Lock()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.begun_with = 0, np.sum(self.level)
        return self.observed(), {}

    def observed(self):
        return np.array([self.np_random.normal(), np.sum(self.level)], np.float32)

    def step(self, action):
        self.t += 1
        return self.observed(), float(self.begun_with) + 0.1 * float(action), self.t == 4, False, {}


class SavedLevel(Level):
    """Its state can be saved."""

    def __init__(self):
        super().__init__()
        del self.held


class LateLevel(Level):
    """It has its attribute after the first reset."""

    def reset(self, *, seed=None, options=None):
        self.late = getattr(self, "late", 0)
        return super().reset(seed=seed)


def by_step(it):
    """A curriculum of steps: the level of an iteration is the number of the one before it."""
    it.call_envs("set_wrapper_attr", "level", it.iteration / 3)


def by_success(it):
    """A curriculum of successes, whose level is in the environments."""
    level = it.call_envs("get_wrapper_attr", "level")[0]
    it.call_envs("set_wrapper_attr", "level", level + np.float32(0.3) if it.finished.ret.mean() > 4 * level else level)
    return {"level": level}


def killed(it):
    if it.iteration == 5:
        raise ZeroDivisionError


@pytest.mark.parametrize(("framework", "workers"), [("torch", 0), ("torch", 2), ("jax", 0)])
def test_every_iteration_has_the_level_that_the_callback_has_set(framework, workers):
    """Those that begin with new environments (3, 5, 7) from the first reset on, the others in their second episodes."""
    found = []
    for it in proximo.iterations(env=Level, framework=framework, **SMALL | {"env_workers": workers}):
        found.append(it.finished.ret)
        by_step(it)
    assert len(found) == 7
    for number, returns in enumerate(found):
        returns = returns if number % 2 == 0 else returns[4:]
        assert np.all(returns > 4 * number / 3 - 0.01) and np.all(returns < 4 * number / 3 + 0.41)


@pytest.mark.parametrize(("curriculum", "framework", "workers"), [
    (by_step, "torch", 0), (by_success, "torch", 2), (by_success, "jax", 0), (by_step, "jax", 2)])
def test_a_killed_run_continues_as_if_it_was_not(curriculum, framework, workers, tmp_path, monkeypatch):
    """Weights and metrics, bit for bit. New environments begin with iterations 4 and 7."""
    monkeypatch.setattr("proximo.runs.interrupts.recent.CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr("proximo.runs.interrupts.recent.CHECKPOINT_SHARE", 1e9)
    fields = SMALL | {"env_workers": workers, "framework": framework, "checkpoint_every": 3}
    whole = proximo.train(env=Level, callbacks=[curriculum], run_dir=tmp_path / "whole", **fields)
    with pytest.raises(ZeroDivisionError):
        proximo.train(env=Level, callbacks=[curriculum, killed], run_dir=tmp_path / "run", **fields)
    assert not (tmp_path / "run" / "checkpoints" / "00000005").exists()
    proximo.resume(tmp_path / "run", env=Level, callbacks=[curriculum])
    assert same_weights(tmp_path / "run", whole)
    names = ("charts/episodic_return", "losses/value_loss", *(["user/level"] if curriculum is by_success else ()))
    assert [[row[name] for name in names] for row in rows(tmp_path / "run", "metrics.csv")] == [
        [row[name] for name in names] for row in rows(whole, "metrics.csv")]


@pytest.mark.parametrize("value", [2, True, 2.5, np.float32(0.1), np.arange(3.0), [1.0, 2.0], (1, 2), {"a": 1, 2: [3, np.int64(4)]},
                                   float("inf")], ids=repr)
def test_plain_values_are_kept_as_they_are(value, tmp_path):
    """With their types, also through the files of a checkpoint; a later change of the object has no effect."""
    from proximo.runs.folder.checkpoint import load_tree, save_tree

    kept = KeptAttributes()
    assert not kept.changed("set_wrapper_attr", ("level", value), {}, [True])
    before = repr(value)
    save_tree(tmp_path / "tree", kept.added_to({"steps": 1}))
    if isinstance(value, (list, np.ndarray)):
        value[0] = 99.0
    found = []
    for state in (kept.added_to({}), load_tree(tmp_path / "tree")):
        class Envs:
            def call(self, name, *arguments, **options):
                found.append((name, repr(arguments), options))
                return []

        make = KeptAttributes(state).making(lambda cfg, seeds: Envs())
        make(None, [])
        make(None, [])
    assert found == [("set_wrapper_attr", f"('level', {before})", {})] * 2


def test_the_last_value_counts_and_an_attribute_that_was_forced_is_made_again():
    """The order is that of the last calls."""
    kept, found = KeptAttributes(), []
    kept.changed("set_wrapper_attr", ("a", 1), {"force": True}, [True])
    kept.changed("set_wrapper_attr", (), {"name": "b", "value": 2}, [True])
    kept.changed("set_wrapper_attr", ("a", 3), {}, [True])

    class Envs:
        def call(self, *arguments, **options):
            found.append((arguments[1:], options))
            return []

    make = kept.making(lambda cfg, seeds: Envs())
    make(None, [])
    assert found == []
    make(None, [])
    assert found == [(("b", 2), {}), (("a", 3), {"force": True})]


@pytest.mark.parametrize(("name", "arguments", "found", "told"), [
    ("set_wrapper_attr", ("level", 3), [True], False), ("set_wrapper_attr", ("level", threading.Lock()), [True], True),
    ("set_wrapper_attr", ("level", spaces.Discrete(3)), [True], True), ("set_level", (3,), [None], True),
    ("get_wrapper_attr", ("level",), [3.0], False), ("get_wrapper_attr", ("world",), [object()], True)])
def test_what_new_environments_may_lack_is_told(name, arguments, found, told):
    """A method, a value that cannot be saved, and an object that the program may change."""
    assert KeptAttributes().changed(name, arguments, {}, found) == told


def test_a_value_that_cannot_be_saved_takes_the_place_of_the_one_before(caplog):
    """New environments then have neither."""
    warn_once.cache_clear()
    found = []
    for it in proximo.iterations(env=Level, **SMALL | {"total_timesteps": 32 * 3}):
        found.append(it.finished.ret.max() > 2)
        it.call_envs("set_wrapper_attr", "level", 1.0)
        if it.iteration == 2:
            it.call_envs("set_wrapper_attr", "level", np.array([2.0], object))
    assert found == [False, True, False]
    assert "it.call_envs(\"set_wrapper_attr\", NAME, VALUE) with a number" in caplog.text


def test_no_warning_where_nothing_is_lost(caplog):
    warn_once.cache_clear()
    for it in proximo.iterations(env=Level, **SMALL | {"total_timesteps": 32 * 5}):
        by_success(it)
    assert "call_envs" not in caplog.text


@pytest.mark.parametrize("workers", [0, 2])
def test_an_attribute_that_the_first_reset_makes_is_told(workers, caplog):
    """The run goes on, as it does with methods."""
    warn_once.cache_clear()
    for it in proximo.iterations(env=LateLevel, **SMALL | {"total_timesteps": 32 * 3, "env_workers": workers}):
        it.call_envs("set_wrapper_attr", "late", 1)
    assert it.iteration == 3 and "cannot be set before their first reset (" in caplog.text and "Let __init__ set late." in caplog.text


def test_a_resume_of_environments_with_state_has_what_their_state_says(tmp_path):
    """What the environment itself has changed after the call is not overwritten."""
    snapshots = []
    for it in proximo.iterations(env=SavedLevel, **SMALL):
        it.call_envs("set_wrapper_attr", "level", 1.0)
        it.call_envs("__setattr__", "level", 2.0)
        snapshots.append(it.snapshot())
    it = next(proximo.iterations(env=SavedLevel, state=snapshots[2], **SMALL))
    assert it.finished.ret.min() > 7.9


@pytest.mark.parametrize("broken", [3, [3], [{"name": "a"}], [{"name": "a", "value": {"x": 1}, "force": None}]])
def test_a_damaged_record_is_told(broken):
    with pytest.raises(FilesError, match="The checkpoint does not fit this run"):
        KeptAttributes({"set_attributes": broken})
