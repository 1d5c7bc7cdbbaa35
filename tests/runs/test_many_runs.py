"""What stays in a process after a run and during one: nothing that grows with the number of runs or of iterations."""

import gc
import math
import threading
from collections import Counter

import psutil
import pytest

import proximo
from proximo.runs.interrupts import recent

FIELDS = {"env_id": "CartPole-v1", "num_envs": 2, "num_steps": 8, "num_minibatches": 1, "update_epochs": 1,
          "hidden_sizes": (8, 8), "logger": "none", "checkpoint_every": 5}
LIBRARIES = ("proximo", "torch", "gymnasium", "numpy", "threading", "_io", "socket", "weakref")


def held():
    """How many files and threads are open, and how many objects of Proximo and of libraries there are."""
    gc.collect()
    kinds = Counter(str(type(one).__module__).partition(".")[0] for one in gc.get_objects())
    return {"files": psutil.Process().num_fds(), "threads": threading.active_count(),
            **{name: kinds[name] for name in LIBRARIES}}


def train(folder, callback, iterations=20):
    return proximo.train("ppo", run_dir=folder, total_timesteps=16 * iterations, callbacks=[callback], **FIELDS)


def stop(it):
    if it.iteration == 4:
        raise proximo.StopTraining


def fail(it):
    if it.iteration == 4:
        raise ArithmeticError


@pytest.mark.parametrize("callback", [stop, fail])
def test_a_program_that_trains_again_and_again_holds_no_more_each_time(callback, tmp_path):
    """Also where a callback raises: environments, networks, files and threads of the run are gone."""
    after = []
    for number in range(4):
        try:
            train(tmp_path / str(number), callback)
        except ArithmeticError:
            pass
        after.append(held())
    assert after[3] == after[2] == after[1], after


def test_a_long_run_holds_no_more_after_more_iterations(tmp_path, monkeypatch):
    """With checkpoints in between, of which two are kept, and a copy of the newest iteration, whatever the clock says."""
    monkeypatch.setattr(recent, "LEAST_SECONDS", 0)
    monkeypatch.setattr(recent, "SHARE", math.inf)
    held()  # the first call fills caches of Python
    during = {}

    def look(it):
        if it.iteration in (13, 18, 23):
            during[it.iteration] = held()

    train(tmp_path / "run", look, iterations=25)
    assert during[13] == during[18] == during[23], during
