"""Searches whose runs are evaluated while they train: what the pruner sees."""

import sys
from pathlib import Path

import pytest

from proximo.bench.tune import tune
from proximo.bench.tune_journal import journal

optuna = pytest.importorskip("optuna")

SEARCH = """
title = "evaluated"
variant = "ppo"
env_ids = ["CartPole-v1"]
steps = 10000
seeds = 2
trials = 1
pruner = "none"
[overrides]
eval_every = 2000
[space]
gamma = {choices = [0.9]}
"""

# The fake trainer, which in addition writes the evaluation 1000 * seed + part after every fourth of its 20 parts. The rewritten
# table takes the place of the old one at once, so that the search never reads half of it.
TRAINER = """
import os, sys, time
from pathlib import Path
from tests.support import fake_trainer
run_dir = Path(sys.argv[sys.argv.index("--run-dir") + 1])
seed, wait = int(sys.argv[sys.argv.index("--seed") + 1]), time.sleep
def evaluate(seconds):
    table = run_dir / "metrics.csv"
    head, *lines = table.read_text().splitlines()
    if len(lines) % 4 == 0 and str(seed) in SEEDS:
        lines[-1] += f",{1000 * seed + len(lines)}"
    new = run_dir / "new.csv"
    new.write_text("\\n".join([head.removesuffix(",eval/return_mean") + ",eval/return_mean", *lines, ""]))
    os.replace(new, table)
    wait(seconds)
time.sleep = evaluate
fake_trainer.main(*sys.argv[1:])
"""


def reports(tmp_path: Path, seeds: str) -> dict[int, float]:
    """Run one trial of two seeds, of which `seeds` are evaluated, and return what the pruner was told at each step."""
    (tmp_path / "search.toml").write_text(SEARCH)
    command = (sys.executable, "-c", TRAINER.replace("SEEDS", repr(seeds)))
    assert tune(tmp_path / "search.toml", out=tmp_path / "out", command=command) == 0
    (trial,) = optuna.load_study(study_name="evaluated", storage=journal(tmp_path / "out")).trials
    assert trial.value < 200  # the score of a trial is that of training
    return trial.intermediate_values


def test_the_pruner_compares_means_of_evaluations_only(tmp_path, monkeypatch):
    """Before the first evaluation nothing is reported, and a finished seed counts with its last evaluation."""
    monkeypatch.setenv("FAKE_SECONDS", "2")
    found = reports(tmp_path, "12")
    parts = range(4, 21, 4)
    first, second = ([value for step, value in found.items() if (step > 10) == later] for later in (False, True))
    assert first and set(first) <= {1000 + part for part in parts}
    assert second and set(second) <= {(1020 + 2000 + part) / 2 for part in parts}


def test_a_trial_with_a_seed_that_has_no_evaluation_is_not_compared(tmp_path, monkeypatch):
    """Its first seed was trained without evaluations, before `eval_every` was written into the file."""
    monkeypatch.setenv("FAKE_SECONDS", "1")
    assert reports(tmp_path, "2") == {}
