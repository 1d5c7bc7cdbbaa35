"""trials.csv of a search, and what a report of a search shows, on runs with known scores."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from proximo.bench.report.main import report
from proximo.bench.tune.search import load_search, suggest
from proximo.bench.tune.study import FOLDER, NOT_FINITE, REASON
from proximo.bench.tune.trial_table import read_trials, trials_table, write_trials
from tests.support.run_folders import RunFolder

optuna = pytest.importorskip("optuna")

SEARCH = """
variant = "ppo"
env_ids = ["CartPole-v1"]
steps = 10000
seeds = 1
[space]
gamma = {choices = [0.98765432, 0.9]}
log_std_init = {low = -1.0, high = -0.5}
activation = {choices = ["tanh", "relu"]}
"""
ENDS = (("a", 5.0, ""), ("b", None, "PRUNED"), ("c", 20.0, ""), ("c", None, "FAIL"), ("", None, "PRUNED"), ("d", None, "PRUNED"),
        ("e", None, "FAIL"))
WHY = {"": (REASON, "sizes do not fit"), "d": (NOT_FINITE, "the loss is not finite"), "e": (REASON, "a run failed")}


@pytest.fixture
def folder(tmp_path):
    """A search whose trials have ended in every way, and the runs of three of them."""
    (tmp_path / "search.toml").write_text(SEARCH)
    search, study = load_search(tmp_path / "search.toml"), optuna.create_study(direction="maximize")
    for name, value, state in ENDS:
        trial = study.ask({})
        suggest(trial, search.space)
        for key, text in [(FOLDER, name), WHY.get(name, ("", ""))]:
            if key and text:
                trial.set_user_attr(key, text)
        study.tell(trial, value, state=optuna.trial.TrialState[state] if state else None)
    out = tmp_path / "out"
    write_trials(study, out, search)
    for name, score in (("a", 5.0), ("b", None), ("c", 20.0)):
        run = RunFolder(out / "CartPole-v1" / name / "1").grow(3)
        (run.folder.parent / "1.job.json").write_text(json.dumps({"label": name, "env_id": "CartPole-v1", "seed": 1}))
        if score is not None:
            (run.folder / "summary.json").write_text(json.dumps({"steps": 300, "episodic_return_mean": score, "sps": 1.0}))
    return out


def test_every_trial_is_a_line(folder):
    """Negative numbers stay numbers; csv_text() would make texts of them."""
    lines = list(csv.DictReader((folder / "trials.csv").read_text().splitlines()))
    assert [(line["trial"], line["state"], line["score"], line["folder"]) for line in lines] == [
        ("0", "complete", "5.0", "a"), ("1", "pruned", "", "b"), ("2", "complete", "20.0", "c"), ("3", "stopped", "", "c"),
        ("4", "impossible", "", ""), ("5", "not finite", "", "d"), ("6", "fail", "", "e")]
    assert all(-1 <= float(line["log_std_init"]) <= -0.5 and line["activation"] in ("tanh", "relu") for line in lines)
    assert {line["gamma"] for line in lines} <= {"0.98765432", "0.9"}


def test_a_report_of_a_search_shows_its_trials_best_first(folder):
    """Its runs have the numbers of their trials. Runs of pruned trials are no faults, one by one, with a command that resumes
    them; and a hundred settings are not compared with published scores or in pairs."""
    pytest.importorskip("rliable")
    fields, trials = read_trials(folder)
    assert fields == ["gamma", "log_std_init", "activation"]
    table = trials_table(fields, trials)
    assert [row[:3] for row in table.rows] == [["2", "complete", "20.00"], ["0", "complete", "5.00"], ["1", "pruned", "-"],
                                               ["4", "impossible", "-"], ["5", "not finite", "-"],
                                               ["3", "stopped", "-"], ["6", "fail", "-"]]
    assert {row[3] for row in table.rows} <= {"0.9877", "0.9"}
    report(folder)
    text = (folder / "report.md").read_text()
    names = [line.split(" | ")[1] for line in text.splitlines() if line.startswith("| CartPole-v1")]
    assert names == ["trial 2", "trial 0"]
    assert "## Trials" in text and "published" not in text.replace("as in published", "") and "P(X better" not in text
    assert "Not finished, because the trial was pruned, was stopped, or is running: CartPole-v1/b/1." in text
    assert "proximo resume" not in text


def test_a_report_of_several_searches_names_search_and_trial(folder):
    """The runs had the names of their folders, which are hashes, and were compared with published scores."""
    pytest.importorskip("rliable")
    parent = folder.parent / "both"
    for name in ("one", "two"):
        shutil.copytree(folder, parent / name)
    for record in (parent / "two").rglob("*.job.json"):  # other values, and therefore other names
        record.write_text(record.read_text().replace('"label": "', '"label": "z'))
    lines = (parent / "two" / "trials.csv").read_text()
    (parent / "two" / "trials.csv").write_text(re.sub(r",([abcde]),", r",z\1,", lines))
    report(parent)
    text = (parent / "report.md").read_text()
    names = [line.split(" | ")[1] for line in text.splitlines() if line.startswith("| CartPole-v1")]
    assert names == ["one, trial 2", "one, trial 0", "two, trial 2", "two, trial 0"]
    assert "## Trials of one" in text and "## Trials of two" in text and "P(X better" not in text
    RunFolder(parent / "other" / "CartPole-v1" / "ppo" / "1").grow(3)  # which is of no search
    report(parent)
    assert "## Trials of one" in (parent / "report.md").read_text()


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", "trial,state,score,folder,gamma\n1,complete\n", '"', "\0\n"])
def test_another_file_of_the_name_is_no_search(content, tmp_path, capsys):
    (tmp_path / "trials.csv").write_text(content)
    found = read_trials(Path(tmp_path))
    assert found is None or found[1] == []
