"""Small runs for tests: command lines in this process, what a run left behind, and ways to interrupt it."""

import csv
import os
import signal
from pathlib import Path

import numpy as np

from proximo.cli.main import main
from proximo.models.read_folder import read_model
from proximo.runs.logs.log import Log

SMALL = ["--num-envs", "2", "--num-steps", "16", "--num-minibatches", "2", "--update-epochs", "2", "--hidden-sizes", "8", "8",
         "--memory-size", "8", "--logger", "none", "--checkpoint-every", "3", "--total-timesteps", "320"]


def train(folder, *words, variant="ppo"):
    """Ten iterations of 2 x 16 steps, a checkpoint every three; returns the exit code."""
    return main(["train", variant, *SMALL, "--run-dir", str(folder), *map(str, words)])


def weights(folder):
    """The final model's, by name."""
    return read_model(Path(folder))["weights"]


def same_weights(one, other):
    one, other = weights(one), weights(other)
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def rows(folder, name):
    """The lines of a CSV without what depends on the clock."""
    with open(Path(folder) / name) as file:
        return [{key: value for key, value in row.items()
                 if key not in ("seconds", "charts/SPS") and not key.startswith("time/")} for row in csv.DictReader(file)]


def same_logs(one, other):
    return all(rows(one, name) == rows(other, name) and rows(one, name) for name in ("metrics.csv", "episodes.csv"))


def at_iteration(monkeypatch, number, act):
    """Calls `act()` once, right after iteration `number` was logged."""
    log, pending = Log.iteration, [act]

    def iteration(self, count, *rest):
        log(self, count, *rest)
        if count == number and pending:
            pending.pop()()

    monkeypatch.setattr(Log, "iteration", iteration)


class CrashError(BaseException):
    """Stands in for a kill: nothing in Proximo catches it."""


def crash():
    raise CrashError


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)
