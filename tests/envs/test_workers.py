"""Worker processes equal one process, and report workers that raise, die, stop or hang."""

import os
import signal
import time

import numpy as np
import psutil
import pytest

from proximo.config import Config
from proximo.envs.env_state_check import same_steps
from proximo.envs.gym import make_gym
from proximo.envs.workers import running_workers
from proximo.errors import EnvError

SEEDS = [1, 2, 3, 4]


def make_envs(env_id="CartPole-v1", workers=2, timeout=60.0, **fields):
    return make_gym(Config(env_id=env_id, env_workers=workers, env_timeout=timeout, **fields), SEEDS)


def have_ended(pids):
    """Whether all processes have ended."""
    return all(not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE for pid in pids)


def test_bit_identical_to_one_process():
    """Steps equal those of GymEnvs with the same seeds and actions, also of other workers that load the state."""
    envs, single = make_envs(), make_envs(workers=0)
    assert same_steps(envs.reset(), single.reset())
    rng = np.random.default_rng(0)
    for _ in range(100):
        action = rng.integers(0, 2, 4)
        assert same_steps(envs.step(action), single.step(action))
    state, copy = envs.state(), make_envs()
    copy.reset()
    copy.load(state)
    for _ in range(100):
        action = rng.integers(0, 2, 4)
        assert same_steps(envs.step(action), copy.step(action))
    assert envs.render().shape == (400, 600, 3)
    pids = running_workers(envs) + running_workers(copy)
    assert len(pids) == 4
    envs.close()
    copy.close()
    assert have_ended(pids)


def test_masks_and_filler_rows_travel():
    """Steps with a mask and next-step resets equal those of one process."""
    fields = {"env_id": "tests.support.probes:Masked-v0", "autoreset": "next-step"}
    envs, single = make_envs(**fields), make_envs(workers=0, **fields)
    step, same = envs.reset(), single.reset()
    for _ in range(12):
        assert same_steps(step, same) and step.mask.dtype == bool
        action = np.argmax(step.mask, axis=1)
        step, same = envs.step(action), single.step(action)
    envs.close()


def play_until_fault(envs, steps=50):
    """Return the message of the error, and after how many seconds it was raised."""
    begin = time.monotonic()
    with pytest.raises(EnvError) as caught:
        for _ in range(steps):
            begin = time.monotonic()
            envs.step(np.zeros(4, int))
    return str(caught.value), time.monotonic() - begin


@pytest.mark.parametrize(("name", "words", "limit"), [
    ("raises", ["environment 0", "step 7", "RuntimeError: the motor is on fire"], 2),
    ("nan_obs", ["environment 0", "step 7", "observation is not finite"], 2),
    ("dies", ["environments", "step 7", "SIGKILL"], 3),
    ("hangs", ["environments 0-1", "step 7", "did not answer within 4 s"], 8),
])
def test_faults_are_reported_and_end_all_workers(name, words, limit):
    """The message names environment, step and cause; it comes within seconds, and no process is left."""
    envs = make_envs(f"tests.support.probes:Faulty_{name}-v0", timeout=4.0)
    envs.reset()
    pids = running_workers(envs)
    message, seconds = play_until_fault(envs)
    assert all(word in message for word in words), message
    assert seconds < limit and have_ended(pids)
    with pytest.raises(EnvError, match="have ended"):
        envs.step(np.zeros(4, int))
    envs.close()


@pytest.mark.parametrize(("number", "words"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGSTOP, "was stopped")])
def test_signals_from_outside(number, words):
    """The second worker receives the signal; the message names its environments, long before the timeout."""
    envs = make_envs(timeout=60.0)
    envs.reset()
    pids = running_workers(envs)
    os.kill(pids[1], number)
    message, seconds = play_until_fault(envs)
    assert "environments 2-3" in message and words in message and seconds < 6 and have_ended(pids)


def test_ctrl_c_is_left_to_the_parent():
    envs = make_envs()
    envs.reset()
    for pid in running_workers(envs):
        os.kill(pid, signal.SIGINT)
    assert envs.step(np.zeros(4, int)).valid.all()
    envs.close()
