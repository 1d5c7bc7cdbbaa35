"""Searches whose runs are evaluated while they train: what the pruner sees."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from proximo.bench.tune.journal import journal
from proximo.bench.tune.main import tune
from proximo.bench.tune.search import load_search
from proximo.errors import UsageError

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
sys.path.insert(0, ROOT)
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
""".replace("ROOT", repr(str(Path(__file__).parents[3])))  # the working directory is not searched for modules


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


def test_the_score_may_be_the_last_evaluation(tmp_path, monkeypatch):
    """The mean over seeds of 1000 * seed + 20, on the scale of the target scores."""
    monkeypatch.setenv("FAKE_SECONDS", "1")
    text = SEARCH.replace("trials = 1", 'trials = 1\nmetric = "evaluation"')
    (tmp_path / "search.toml").write_text(text + '[target_scores]\n"CartPole-v1" = [20, 1020]\n')
    command = (sys.executable, "-c", TRAINER.replace("SEEDS", "'12'"))
    assert tune(tmp_path / "search.toml", out=tmp_path / "out", command=command) == 0
    assert json.loads((tmp_path / "out" / "best.json").read_text())["value"] == pytest.approx(1.5)


def test_a_search_by_evaluations_belongs_to_their_settings(tmp_path, monkeypatch):
    """Scores of evaluations in another environment are not comparable; for training scores they do not count."""
    monkeypatch.setenv("FAKE_SECONDS", "0")
    file, command = tmp_path / "search.toml", (sys.executable, "-c", TRAINER.replace("SEEDS", "'12'"))
    for metric, refused in (("episodic_return", False), ("evaluation", True)):
        text = SEARCH.replace("trials = 1", f'trials = 1\nmetric = "{metric}"')
        file.write_text(text)
        assert tune(file, out=tmp_path / metric, command=command) == 0
        file.write_text(text.replace("eval_every = 2000", 'eval_every = 2000\neval_env_kwargs = ["sutton=True"]'))
        with pytest.raises(UsageError, match="another search: overrides.eval_env_kwargs") if refused else nullcontext():
            tune(file, out=tmp_path / metric, command=command)


@pytest.mark.parametrize("line", ["", "eval_every = 0", "eval_every = 10000"])  # 9728 of 10000 steps are trained
def test_a_search_by_evaluations_needs_them(tmp_path, line):
    """Without one in every run there is no score."""
    (tmp_path / "search.toml").write_text(SEARCH.replace("eval_every = 2000", line).replace(
        "trials = 1", 'trials = 1\nmetric = "evaluation"'))
    with pytest.raises(UsageError, match='metric = "evaluation" needs an evaluation in every run. Write eval_every = 1000'):
        load_search(tmp_path / "search.toml")


def test_a_trial_with_a_seed_that_has_no_evaluation_is_not_compared(tmp_path, monkeypatch):
    """Its first seed was trained without evaluations, before `eval_every` was written into the file."""
    monkeypatch.setenv("FAKE_SECONDS", "1")
    assert reports(tmp_path, "2") == {}
