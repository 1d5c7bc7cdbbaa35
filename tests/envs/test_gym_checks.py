"""Environments that deviate a little are converted with one warning; those that end processes or hang are faults."""

import ctypes
import logging
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import psutil
import pytest
import torch
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.arrays.spaces import read_space
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.time_limit import close_env, time_limit
from proximo.errors import EnvError, UsageError, warn_once
from proximo.runs.check.env import check_env
from tests.support.probes import Probe

SCRIPT = '''
import os, sys, time
import gymnasium as gym
import numpy as np


class Odd(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, how=""):
        self.how = how

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observe(), {}

    def observe(self):
        obs = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"list": obs.tolist(), "float64": obs.astype(np.float64)}.get(self.how, obs)

    def step(self, action):
        self.t += 1
        if self.t == 5 and self.how == "exit":
            sys.exit(0)
        if self.t == 5 and self.how == "base":
            raise BaseException("neither Exception nor an exit")
        if self.t == 5 and self.how == "interrupt":
            raise KeyboardInterrupt
        if self.t == 5 and self.how == "os_exit":
            os._exit(0)
        if self.t == 5 and self.how == "hang":
            time.sleep(3600)
        reward = np.array([1.5]) if self.how == "array" else 1.5
        return self.observe(), reward, self.t >= 9, False, {}

    def close(self):
        if self.how == "close":
            raise RuntimeError("cannot close")
'''


@pytest.fixture
def odd(tmp_path):
    """Configurations whose environment deviates as `how` says."""
    path = tmp_path / f"odd_{tmp_path.name.replace('-', '_')}.py"
    path.write_text(SCRIPT)

    def config(how, **values):
        return Config(env_file=f"{path}:Odd", env_kwargs=(f"how={how}",), **values)

    return config


def envs_of(cfg):
    from proximo.envs.gym import make_gym

    return make_gym(cfg, [1, 2])


def track(envs, steps=12):
    found = [envs.reset()]
    found = [(found[0].obs.copy(), found[0].reward.copy())]
    for _ in range(steps):
        step = envs.step(np.zeros(2, int))
        found.append((step.obs.copy(), step.reward.copy()))
    envs.close()
    return found


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(("how", "words"), [
    ("list", "observation has the type list"), ("float64", "observation has dtype float64"), ("array", "rewards are arrays")])
def test_what_loses_no_number_is_converted_with_one_warning(how, words, workers, odd, caplog):
    """The steps equal those of the environment that returns the right types."""
    warn_once.cache_clear()
    with caplog.at_level(logging.WARNING, "proximo"):
        found = track(envs_of(odd(how, env_workers=workers)))
    expected = track(envs_of(odd("")))
    assert all(np.array_equal(a, b) for one, other in zip(found, expected) for a, b in zip(one, other))
    said = [record.getMessage() for record in caplog.records if words in record.getMessage()]
    by_numpy = how == "array" and tuple(map(int, np.__version__.split(".")[:2])) < (2, 4)  # it converts and warns itself
    assert len(said) == (0 if by_numpy else 1), caplog.messages


class Plain(gym.Env):
    """Returns what it is told to."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(2)

    def __init__(self, terminated=True, begins=None):
        self.terminated, self.begins = terminated, begins

    def reset(self, *, seed=None, options=None):
        return (np.zeros(2, np.float32), {}) if self.begins is None else self.begins

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, self.terminated, False, {}


@pytest.mark.parametrize("value", ["False", b"x", [None], [False], (True,), float("nan")])
def test_an_episode_ends_by_a_boolean_or_a_number(value):
    envs = GymEnvs(lambda: Plain(value), [1], "Plain")
    envs.reset()
    with pytest.raises(EnvError, match=r"environment 0 \(Plain\), step 1: terminated is .* it must be True or False"):
        envs.step(np.zeros(1, int))
    for fine in (True, 1, np.True_, np.array(True), torch.tensor(True), torch.tensor([1])):
        envs = GymEnvs(lambda fine=fine: Plain(fine), [1], "Plain")
        envs.reset()
        assert envs.step(np.zeros(1, int)).terminated.all()


@pytest.mark.parametrize("value", [np.zeros(2, np.float32), (np.zeros(2), 1), np.zeros(2).tolist(), (1, 2, 3)])
def test_reset_returns_an_observation_and_a_dict(value):
    with pytest.raises(EnvError, match=r"reset returned .* it must return \(observation, info\)"):
        GymEnvs(lambda: Plain(begins=value), [1], "Plain").reset()
    (found,) = (finding for finding in check_env(lambda: Plain(begins=value)) if finding.ok is False)
    assert "it must return (observation, info)" in found.what and found.ends


def test_an_environment_without_spaces_is_refused():
    for check in (check_env, lambda env: GymEnvs(env, [1], "Env")):
        with pytest.raises(UsageError, match="has no observation_space and no action_space"):
            check(gym.Env)


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]),
                                   spaces.Sequence(spaces.Discrete(2))])
def test_observations_without_a_fixed_count_of_numbers_are_refused(space):
    class Speaking(Plain):
        observation_space = space

    with pytest.raises(UsageError, match="which is not supported. Use Box"):
        GymEnvs(Speaking, [1], "Speaking")


class Pixels(gym.Env):
    observation_space = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self, value, late=False):
        self.value, self.late = value, late

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((8, 8, 3), np.uint8) if self.late else np.full((8, 8, 3), self.value), {}

    def step(self, action):
        return np.full((8, 8, 3), self.value), 0.0, False, False, {}


@pytest.mark.parametrize(("value", "works"), [(7, True), (7.0, True), (0.5, False), (300, False), (-1, False),
                                              (np.nan, False)])
@pytest.mark.parametrize("late", [False, True])
def test_what_would_lose_numbers_is_a_fault(value, works, late):
    """At the reset, and at a step after a reset that returned the right dtype."""
    envs = GymEnvs(lambda: Pixels(value, late), [1], f"Pixels {value}")

    def play():
        step = envs.reset()
        return envs.step(np.zeros(1, int)) if late else step

    if works:
        assert play().obs.max() == 7
    else:
        with pytest.raises(EnvError, match="observation has dtype"), np.errstate(invalid="ignore"):
            play()


UNIT = spaces.Box(-1, 1, (2,), np.float32)
MASKED = spaces.Dict({"x": UNIT, "action_mask": spaces.MultiBinary(2)})


@pytest.mark.parametrize(("space", "given", "said"), [
    (spaces.Dict({"x": UNIT}), None, "observation has the type NoneType; its space requires a dict"),
    (UNIT, None, "observation has the type NoneType; its space requires an array of float32 with shape (2,)"),
    (UNIT, torch.zeros(2, requires_grad=True), "observation has the type Tensor; its space requires an array of float32"),
    (spaces.Dict({"x": UNIT}), "x", "observation has the type str; its space requires a dict"),
    (spaces.Dict({"x": spaces.Dict({"y": UNIT})}), {"x": 3}, "observation['x'] has the type int; its space requires a dict"),
    (spaces.Tuple([UNIT]), 3, "observation has the type int; its space requires a tuple"),
    (spaces.Tuple([UNIT, UNIT]), {"a": 1, "b": 2}, "observation has the type dict; its space requires a tuple"),
    (MASKED, {"x": np.zeros(2, np.float32)}, "observation has no key 'action_mask'"),
    (MASKED, None, "observation has the type NoneType; its space requires a dict"),
    (UNIT, np.zeros((1, 2)), "observation has shape (1, 2); its space requires (2,): return np.reshape(observation, (2,))"),
    (spaces.Dict({"x": spaces.Box(-1, 1, (1,))}), {"x": 1}, "requires an array of float32 with shape (1,): return np.reshape(observation['x'], (1,))")])
def test_observations_of_another_structure_are_named(space, given, said):
    """And not an exception of the code that reads them."""
    class Other(Plain):
        observation_space = space

        def reset(self, *, seed=None, options=None):
            return given, {}

    with pytest.raises(EnvError, match=re.escape(said)):
        GymEnvs(Other, [1], "Other").reset()


def test_a_reset_without_a_seed_leads_to_the_wrappers():
    """Of an environment of gym, and of one for Gymnasium whose reset() has no arguments: the page has a class for each."""
    class Old(Plain):
        def reset(self):
            return np.zeros(2, np.float32)

    page = (Path(__file__).resolve().parents[2] / "docs" / "other-environments.md").read_text()
    with pytest.raises(EnvError, match=r"jss\.py for .* takes? no seed.* \(The interface of gym\)"):
        GymEnvs(Old, [1], "Old").reset()
    assert "### The interface of gym" in page and "# jss.py" in page


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"key": x}, lambda x: (0, x)])
@pytest.mark.parametrize(("space", "good", "bad"), [
    (spaces.MultiDiscrete([3, 4]), [2, 3], ([3, 0], [-1, 0], [0, 4])),
    (spaces.MultiDiscrete([3, 4], start=[-1, 5]), [-1, 8], ([-2, 5], [2, 5], [0, 4])),
    (spaces.MultiDiscrete([[3, 4]], dtype=np.uint8), [[2, 3]], ([[255, 0]],)),
    (spaces.MultiBinary(2), [0, 1], ([7, 0], [0, -3], [2, 1]))])
def test_choices_outside_of_their_space_are_faults(space, good, bad, wrap):
    """As one observation and as a part; they would be learned from as other choices. Lists are converted first."""
    whole = wrap(space)
    if whole is not space:
        whole = spaces.Dict(whole) if isinstance(whole, dict) else spaces.Tuple([spaces.Discrete(2), space])

    class Choosing(Masking):
        observation_space = whole
        action_masks = None
        seen = good
        dtype = space.dtype

        def reset(self, *, seed=None, options=None):
            return wrap(np.array(self.seen, self.dtype)), {}

    GymEnvs(Choosing, [1], "Choosing").reset()
    for Choosing.seen in bad:
        for Choosing.dtype in {space.dtype, np.dtype(np.int16)}:
            with pytest.raises(EnvError, match=re.escape(f"is {Choosing.seen}, which is not in {space}")):
                GymEnvs(Choosing, [1], "Choosing").reset()


@pytest.mark.parametrize(("space", "given", "row"), [
    (spaces.MultiBinary(3), [1, 0, 1], [1, 0, 1]), (spaces.MultiBinary(2), np.array([True, False]), [1, 0]),
    (spaces.MultiDiscrete([3, 2]), (2, 0), [0, 0, 1, 1, 0]), (spaces.Box(-1, 1, ()), 0.5, [0.5]),
    (spaces.Box(-1, 1, (), np.float64), np.float32(0.5), [0.5]),
    (spaces.MultiDiscrete([3], dtype=np.int32), np.array([1]), [0, 1, 0])])
def test_observations_of_every_space_are_converted(space, given, row, caplog):
    """Lists, numbers and other dtypes, with one warning, as for a Box with axes."""
    class Loose(Plain):
        observation_space = space

        def reset(self, *, seed=None, options=None):
            return given, {}

    warn_once.cache_clear()
    step = GymEnvs(Loose, [1, 2], "Loose").reset()
    assert step.obs.dtype == np.float32 and step.obs.tolist() == [row, row]
    assert len([text for text in caplog.messages if "It is converted" in text]) == 1


@pytest.mark.filterwarnings("error")
def test_half_precision_is_checked_without_overflow():
    """The squares of numbers from 256 on are beyond float16."""
    class Half(Plain):
        observation_space = spaces.Box(-1000, 1000, (2,), np.float16)
        seen = 300

        def reset(self, *, seed=None, options=None):
            return np.array([300, self.seen], np.float16), {}

    assert GymEnvs(Half, [1], "Half").reset().obs.tolist() == [[300, 300]]
    Half.seen = np.inf
    with pytest.raises(EnvError, match="observation is not finite in float16: number 1 of it, counted from 0, is inf."):
        GymEnvs(Half, [1], "Half").reset()


@pytest.mark.parametrize("begins", [np.zeros(2, np.float32), (np.zeros(2, np.float32), None)])
def test_later_resets_are_checked_in_both_reset_modes(begins):
    envs = GymEnvs(Plain, [1], "Plain", "next-step")
    envs.reset()
    envs.step(np.zeros(1, int))
    envs._envs[0].begins = begins
    with pytest.raises(EnvError, match=r"reset returned .* it must return \(observation, info\)"):
        envs.step(np.zeros(1, int))


def test_a_missing_info_allows_every_action():
    """A mask came from reset(), and step() returns None in place of a dict."""
    class Silent(Plain):
        terminated = False

        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32), {"action_mask": [True, False]}

        def step(self, action):
            return np.zeros(2, np.float32), 1.0, False, False, None

    envs = GymEnvs(Silent, [1], "Silent")
    assert envs.reset().mask.tolist() == [[True, False]]
    assert envs.step(np.zeros(1, int)).mask.tolist() == [[True, True]]


class Masking(gym.Env):
    """sb3-contrib's convention: the step before decides what is allowed next."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def action_masks(self):
        return [self.t % 2 == 0, True, self.t % 2 == 1]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_masks()[action]
        self.t += 1
        return np.zeros(1, np.float32), 0.0, self.t == 5, False, {}


def test_the_method_action_masks_is_the_mask():
    """Through wrappers, as sb3-contrib reads it."""
    envs = GymEnvs(lambda: gym.wrappers.TimeLimit(Masking(), 9), [1, 2], "Masking")
    step = envs.reset()
    for t in range(12):
        t %= 5
        assert step.mask.tolist() == [[t % 2 == 0, True, t % 2 == 1]] * 2
        step = envs.step(np.argmax(step.mask, 1))


@pytest.mark.parametrize("mode", ["same-step", "next-step"])
def test_the_method_action_masks_is_not_called_at_the_end_of_an_episode(mode):
    """sb3-contrib calls it before an action only, so it may fail where no action can follow."""
    class Emptied(Masking):
        def action_masks(self):
            return [[True, False, True], [False, True, False]][self.t]

        def step(self, action):
            self.t += 1
            return np.zeros(1, np.float32), 0.0, self.t == 2, False, {}

    envs = GymEnvs(Emptied, [1, 2], "Emptied", mode)
    step, masks = envs.reset(), []
    for _ in range(4):
        masks.append(step.mask[0].tolist())
        step = envs.step(np.zeros(2, int))
    at_end = [[True] * 3] * (mode == "next-step")
    assert masks == [[True, False, True], [False, True, False], *at_end, [True, False, True], [False, True, False]][:4]


@pytest.mark.parametrize("what", ["observation", "action"])
def test_environments_with_different_spaces_are_refused(what):
    """As by Gymnasium's own vector environments; bounds of observations may differ."""
    count = iter(range(9))

    def make():
        env, n = Masking(), next(count)
        if what == "action":
            env.action_space = spaces.Discrete(3 + n)
        else:
            env.observation_space = spaces.Box(-1, 1, (1 + n,), np.float32)
        return env

    with pytest.raises(UsageError, match=f"environment 1 has the {what} space"):
        GymEnvs(make, [1, 2], "Mixed")


@pytest.mark.parametrize(("wrap", "field"), [(gym.wrappers.NormalizeObservation, "norm_obs=True (--norm-obs)"),
                                             (gym.wrappers.NormalizeReward, "norm_reward=True (--norm-reward)")])
def test_wrappers_that_normalise_are_told(wrap, field, caplog):
    """The statistics of a wrapper are in no model: an evaluation would begin without them."""
    warn_once.cache_clear()
    GymEnvs(lambda: gym.wrappers.TimeLimit(wrap(gym.make("CartPole-v1")), 9), [1, 2], "Mine")
    (said,) = [record.message for record in caplog.records]
    assert said.startswith(f"Mine is wrapped in {wrap.__name__}. ") and field in said


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: gym.wrappers.TimeLimit(env, 9)])
def test_one_environment_in_several_rows_is_refused(wrap):
    """Each row would step it, and its episodes would be mixtures. A registered function or a file may do so."""
    one = Masking()
    with pytest.raises(UsageError, match="Kept: two of the 3 environments are the same object"):
        GymEnvs(lambda: wrap(one), [1, 2, 3], "Kept")
    GymEnvs(lambda: wrap(one), [1], "Kept").reset()


@pytest.mark.parametrize(("how", "workers", "words"), [
    ("exit", 0, "step 5: raised SystemExit: 0"), ("exit", 1, "step 5: raised SystemExit: 0"),
    ("base", 0, "step 5: raised BaseException: neither"), ("base", 1, "step 5: raised BaseException: neither"),
    ("interrupt", 1, "environment 0, or another one in its process, raised KeyboardInterrupt"),
    ("os_exit", 1, "worker process 0 ended with status 0")])
def test_an_environment_that_ends_the_process_is_a_fault(how, workers, words, odd):
    envs = envs_of(odd(how, env_workers=workers))
    with pytest.raises(EnvError, match=words):
        track(envs)
    envs.close()


def test_close_that_raises_or_hangs_is_a_warning(odd, caplog):
    """Also in the replay that finds out whether the state can be saved."""
    envs = envs_of(odd("close"))
    envs.reset()
    assert envs.keeps_state
    envs.close()
    assert re.search(r"close\(\) raised RuntimeError: cannot close \(.*\.py, line \d+\)\. This is ignored\.", caplog.text)


def test_an_attribute_in_place_of_close_is_told_once(caplog):
    """Closing prices are often kept in `self.close`."""
    class Prices(Probe):
        def __init__(self):
            self.close = np.ones(3)

    warn_once.cache_clear()
    envs = GymEnvs(Prices, [1, 2], "Prices")
    envs.reset()
    envs.close()
    assert [one.getMessage() for one in caplog.records] == [
        "Prices has an attribute close, a ndarray, in place of its method close(), which is not called. Give the attribute "
        "another name."]


@pytest.mark.parametrize(("which", "fault", "kind", "made"), [
    ("third", {}, RuntimeError, 2), ("second", {"action_space": spaces.Discrete(4)}, UsageError, 3),
    ("all", {"action_space": spaces.Text(4)}, UsageError, 3),
    ("all", {"observation_space": spaces.Sequence(spaces.Discrete(2))}, UsageError, 3)])
def test_environments_are_closed_where_one_cannot_be_made(which, fault, kind, made):
    """Whatever fails: a constructor, different spaces, a space without a policy."""
    closed, order = [], iter(("first", "second", "third"))

    class Closed(Masking):
        def __init__(self):
            name = next(order)
            if which == name == "third":
                raise RuntimeError(name)
            for field, space in fault.items():
                setattr(self, field, space if which in (name, "all") else getattr(Masking, field))

        def close(self):
            closed.append(self)

    with pytest.raises(kind):
        GymEnvs(Closed, [1, 2, 3], "Closed")
    assert len(closed) == made


@pytest.mark.parametrize("reward", [1e39, -1e39, -np.inf])
@pytest.mark.filterwarnings("error")
def test_rewards_beyond_float32_are_faults(reward):
    """The rollout holds float32; 3.4e38 is its last number."""
    class Rich(Masking):
        def step(self, action):
            *answer, info = super().step(action)
            return answer[0], reward if self.t == 3 else 3.4e38, *answer[2:], info

    envs = GymEnvs(Rich, [1, 2], "Rich")
    envs.reset()
    for _ in range(2):
        assert np.isfinite(envs.step(np.ones(2, int)).reward).all()
    with pytest.raises(EnvError, match=r"environment 0 \(Rich\), step 3: reward is -?(1e\+39|inf); it must be a finite"):
        envs.step(np.ones(2, int))


class Slow(gym.Env):
    def close(self):
        time.sleep(60)


@pytest.mark.parametrize("follows", [None, RuntimeError("no compiled object yet")])
def test_a_limit_that_native_code_ignores_is_told_all_the_same(follows, monkeypatch):
    """ctypes prints what a callback raises, and continues. numba compiles in one, and then raised an error of its own."""
    ignored = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: ignored.append(found.exc_type))
    callback = ctypes.CFUNCTYPE(None)(lambda: time.sleep(60))
    begin = time.monotonic()
    with pytest.raises(EnvError, match="x did not return within 0.1 s"), time_limit(0.1, "x"):
        callback()
        if follows:
            raise follows
    assert time.monotonic() - begin < 30 and ignored == [EnvError]


def test_time_limits(monkeypatch):
    monkeypatch.setattr("proximo.envs.time_limit.CLOSE_SECONDS", 0.2)
    begin = time.monotonic()
    assert close_env(Slow(), "Slow") == "close() did not return within 0.2 s"
    with pytest.raises(EnvError, match="x did not return within 0.1 s"), time_limit(0.1, "x"):
        time.sleep(60)
    assert time.monotonic() - begin < 30 and signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_time_in_which_the_process_is_stopped_does_not_count(monkeypatch):
    """By a clock on which a day has passed when the limit of 0.1 s ends, as after Ctrl-Z and `fg`: it begins again."""
    clock = iter([0.0, 86_400.0])
    monkeypatch.setattr("proximo.envs.time_limit.time", SimpleNamespace(monotonic=lambda: next(clock, 86_400.1)))
    begin = time.monotonic()
    with pytest.raises(EnvError, match="x did not return within 0.1 s"), time_limit(0.1, "x"):
        time.sleep(60)
    assert 0.2 <= time.monotonic() - begin < 30 and next(clock, None) is None


@pytest.mark.parametrize("closes", [Masking, Slow])
def test_a_timer_of_the_program_continues(closes, monkeypatch):
    """Also one that expires while the environment hangs. It fires once, with the program's own handler."""
    monkeypatch.setattr("proximo.envs.time_limit.CLOSE_SECONDS", 0.2)
    fired = []
    before = signal.signal(signal.SIGALRM, lambda *_: fired.append(time.monotonic()))
    begin = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1 if closes is Slow else 1.0)
        close_env(closes(), "Timed")
        while not fired and time.monotonic() < begin + 30:
            time.sleep(0.05)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(fired) == 1 and fired[0] - begin >= (0.2 if closes is Slow else 0.99)


def test_another_thread_has_no_limit():
    """Python delivers signals to the main thread only, and refuses a handler elsewhere."""
    def late():
        with time_limit(0.01, "x"):
            time.sleep(0.05)
        return True

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(late).result()


def test_limits_within_limits():
    """The outer limit holds for what follows the inner call."""
    with pytest.raises(EnvError, match="outer did not return within 0.5 s"), time_limit(0.5, "outer"):
        with time_limit(60, "inner"):
            pass
        time.sleep(60)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_the_time_within_a_limit_counts_for_the_timer_around_it(monkeypatch):
    """By a clock on which 30 seconds pass within the limit: of the 100 around it, at most 70 are left. The timer repeats."""
    now = iter([0.0, 30.0])
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        signal.setitimer(signal.ITIMER_REAL, 100, 7)
        with monkeypatch.context() as patched:
            patched.setattr("proximo.envs.time_limit.time.monotonic", lambda: next(now, 30.0))
            with time_limit(60, "inner"):
                pass
        left, interval = signal.getitimer(signal.ITIMER_REAL)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert 0 < left <= 70 and interval == 7


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_workers_that_hang_end_with_their_parent(odd, tmp_path):
    """The parent is killed while its worker sleeps in step()."""
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys, numpy as np\nfrom proximo.config import Config\nfrom proximo.envs.gym import make_gym\n"
        "from tests.support.workers import running_workers\n"
        "if __name__ == '__main__':\n"
        f"    envs = make_gym(Config(env_file={odd('hang').env_file!r}, env_kwargs=('how=hang',), env_workers=1), [1])\n"
        "    envs.reset()\n    print(*running_workers(envs), flush=True)\n"
        "    for _ in range(9):\n        envs.step(np.zeros(1, int))\n")
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True,
                              env=os.environ | {"PYTHONPATH": os.getcwd()})
    pid = int(parent.stdout.readline())
    time.sleep(0.5)  # it sleeps in its fifth step
    assert psutil.pid_exists(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end, "the worker lives on"
        time.sleep(0.1)


class Leaves(gym.Env):
    """Observes a number that its space does not have, at reset or after a step; or raises."""

    observation_space, action_space = spaces.Discrete(5), spaces.Discrete(2)

    def __init__(self, begin, after):
        self.begin, self.after = begin, after

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.begin, {}

    def step(self, action):
        if self.after is None:
            raise ValueError("no number")
        return self.after, 1.0, False, False, {}


@pytest.mark.parametrize(("begin", "after", "said"), [
    (0, 5, r"step 1: observation is 5, which is not in Discrete\(5\)"),
    (7, 0, r"step 0: observation is 7, which is not in Discrete\(5\) \(at reset\)"),
    (0, None, r"step 1: raised ValueError: no number \(.*, line")])
def test_what_the_checks_find_is_not_said_to_be_raised(begin, after, said):
    envs = GymEnvs(lambda: Leaves(begin, after), [1], "Leaves-v0")
    with pytest.raises(EnvError, match=f"environment 0 .Leaves-v0., {said}"):
        envs.reset()
        envs.step(np.array([0]))


def test_the_part_that_is_not_supported_is_named():
    """Of a Dict with a text, as those of MiniGrid."""
    space = spaces.Dict({"image": spaces.Box(0, 1, (2,)), "told": spaces.Tuple([spaces.Discrete(2), spaces.Text(9)])})
    with pytest.raises(UsageError, match=r"which is not supported because of told.1. Use Box"):
        read_space(space, "Told-v0")
