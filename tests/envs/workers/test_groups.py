"""Worker processes in groups: against environments in this process, and with a worker that dies."""

import os
import signal

import numpy as np
import pytest

from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.envs.state.check import same_steps
from proximo.errors import EnvError
from tests.envs.workers.test_workers import have_ended
from tests.support.workers import running_workers

SEEDS = [1, 2, 3, 4]


def test_groups_equal_environments_in_this_process():
    """Each group against environments with its seeds, in turns; then the whole, continued from the saved state."""
    envs = make_gym(Config(env_workers=2, env_groups=2), SEEDS)
    single = [make_gym(Config(), SEEDS[:2]), make_gym(Config(), SEEDS[2:])]
    whole = make_gym(Config(), SEEDS)
    assert same_steps(envs.reset(), whole.reset())
    for part in single:
        part.reset()
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, (60, 2, 2))
    envs.send(0, actions[0, 0])
    for t in range(60):
        envs.send(1, actions[t, 1])
        assert same_steps(envs.receive(0), single[0].step(actions[t, 0]))
        if t + 1 < 60:
            envs.send(0, actions[t + 1, 0])
        assert same_steps(envs.receive(1), single[1].step(actions[t, 1]))
        whole.step(actions[t].ravel())
    state = envs.state()
    assert state["time"] == 60
    for action in rng.integers(0, 2, (30, 4)):
        assert same_steps(envs.step(action), whole.step(action))
    envs.load(state)
    envs.send(1, np.zeros(2, int))
    os.kill(running_workers(envs)[1], signal.SIGKILL)
    pids = running_workers(envs)
    with pytest.raises(EnvError, match=r"environments 2-3 \(CartPole-v1\), step 6.: worker process 1 was killed by SIGKILL"):
        for _ in range(3):  # its answer may have been sent before
            envs.receive(1)
            envs.send(1, np.zeros(2, int))
    assert have_ended(pids)


def test_a_fault_names_its_environment():
    envs = make_gym(Config(env_id="tests.support.probes:Faulty_raises-v0", env_workers=2, env_groups=2), SEEDS)
    envs.reset()
    with pytest.raises(EnvError, match="environment 2 .*step 7: raised RuntimeError: the motor is on fire"):
        for _ in range(8):
            envs.send(1, np.zeros(2, int))
            envs.receive(1)
    envs.close()
