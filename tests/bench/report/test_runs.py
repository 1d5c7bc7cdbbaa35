"""What a report shows of single runs, from run folders that no training wrote."""

import json

import pytest

from proximo.bench.live.runs import LiveRuns
from proximo.bench.report.main import report
from proximo.bench.report.page import Charts, Folded, Video
from proximo.bench.report.runs import single_runs
from proximo.bench.results import group_runs, read_runs
from proximo.bench.text import settings_lines
from proximo.errors import names_text
from proximo.models.plot import find_runs
from tests.support.run_folders import RunFolder


def sections_of(folder):
    runs = read_runs(folder)
    return {section.title: section.parts for section in single_runs(runs, group_runs(runs), folder)}


def test_every_run_is_shown(tmp_path):
    """Unfinished ones too; the curves hold what the CSV files say."""
    RunFolder(tmp_path / "a", seed=1).grow(30).finish()
    RunFolder(tmp_path / "b", seed=2).grow(20, clipfrac=0.8)
    found = sections_of(tmp_path)
    (charts,) = found["Curves of every run"]
    assert isinstance(charts, Charts) and [run["name"] for run in charts.runs] == ["a", "b"]
    assert [row[0] for row in charts.runs[1]["metrics"]["rows"]] == list(range(100, 2100, 100))
    assert charts.runs[0]["episodes"]["rows"][2] == [300, 6, 4, 12, 6, 13]
    (table,) = found["Outside the usual range"]
    assert [row[:3] for row in table.rows] == [["clipfrac", "above the usual one", "b (0.8)"]]


def test_the_video_of_the_best_run(tmp_path, monkeypatch):
    """Of each group the newest video of the run with the highest score, unless it is too large."""
    for seed, score in ((1, -5.0), (2, -3.0), (3, -9.0)):
        run = RunFolder(tmp_path / str(seed), seed=seed).grow(2).finish()
        (run.folder / "summary.json").write_text(json.dumps({"episodic_return_mean": score}))
        (run.folder / "videos").mkdir()
        (run.folder / "videos" / "step-1.mp4").write_bytes(b"video of " + str(seed).encode())
    assert sections_of(tmp_path)["Videos"] == [Video(b"video of 2", "video/mp4", "CartPole-v1, 2: step-1.mp4")]
    monkeypatch.setattr("proximo.bench.report.runs.LARGEST_VIDEO", 3)
    assert "too large" in sections_of(tmp_path)["Videos"][0]


def test_every_hyper_parameter(tmp_path):
    RunFolder(tmp_path / "a", gamma=0.9).grow(1).finish()
    RunFolder(tmp_path / "b", gamma=0.99, seed=2).grow(1).finish()
    (folded,) = sections_of(tmp_path)["Hyper-parameters"]
    assert isinstance(folded, Folded) and folded.table.head == ["field", "ppo", "ppo-gamma=0.9"]
    assert ["gamma", "0.99", "0.9"] in folded.table.rows and ["total_timesteps", "10000", "10000"] in folded.table.rows


def test_every_member_of_a_sweep_is_named_by_all_swept_values(tmp_path):
    """Also by those that are the default (gamma 0.99), which are left out of other labels: comparisons pair by them."""
    names = [f"gamma={gamma},seed={seed}" for gamma in (0.9, 0.99) for seed in (1, 2)]
    (tmp_path / "sweep.json").write_text(json.dumps({"members": names}))
    for name in names:
        gamma, seed = (part.partition("=")[2] for part in name.split(","))
        RunFolder(tmp_path / name, gamma=float(gamma), seed=int(seed)).grow(1).finish()
    assert [*group_runs(read_runs(tmp_path))] == [("CartPole-v1", "ppo-gamma=0.9"), ("CartPole-v1", "ppo-gamma=0.99")]
    assert [*group_runs(read_runs(tmp_path, swept=False))] == [("CartPole-v1", "ppo"), ("CartPole-v1", "ppo-gamma=0.9")]


def test_many_settings_have_no_column_each(tmp_path):
    """Of 14 settings, the table of all fields has the first values, and that of differing fields a line for each setting."""
    for k in range(14):
        RunFolder(tmp_path / f"run{k:02}", gamma=0.5 + k / 100).grow(1).finish()
    (folded,) = sections_of(tmp_path)["Hyper-parameters"]
    assert folded.table.head == ["field", "values"] and ["total_timesteps", "10000"] in folded.table.rows
    assert ["gamma", "0.5 or 0.51 or 0.52 or 0.53 or 0.54 or 9 more"] in folded.table.rows
    head, *lines = settings_lines(["field", *(f"s{k}" for k in range(14))], [["gamma", *map(str, range(14))]])
    assert head == ["run", "gamma"] and lines == [[f"s{k}", str(k)] for k in range(14)]
    assert names_text(["a", "b", "c"], 2) == "a, b and 1 more" and names_text(["a", "b"], 2) == "a, b"


def test_jobs_that_have_not_started_are_counted(tmp_path):
    """Of four jobs of a benchmark one has finished, one has failed before it wrote anything, and two have not begun."""
    RunFolder(tmp_path / "CartPole-v1" / "ppo" / "1").grow(30).finish()
    (tmp_path / "CartPole-v1" / "ppo" / "2.job.json").write_text(json.dumps({"status": "failed", "lines": "no"}))
    (tmp_path / "bench.json").write_text(json.dumps({"jobs": [f"CartPole-v1/ppo/{seed}" for seed in (1, 2, 3, 4)]}))
    assert "1 finished run in 1 group; 1 failed, 0 unfinished, 2 not started." in report(tmp_path).with_suffix(".md").read_text()


def test_a_run_that_was_not_finite_is_said_to_be_so(tmp_path):
    """It is not to be continued, while another one is."""
    RunFolder(tmp_path / "a").grow(3).finish()
    (RunFolder(tmp_path / "nan", seed=2).grow(3).folder / "repro").mkdir()
    RunFolder(tmp_path / "stopped", seed=3).grow(3)
    text = report(tmp_path).with_suffix(".md").read_text()
    assert f"Its numbers were not finite. This says where: proximo doctor {tmp_path / 'nan' / 'repro'}." in text
    assert f"Continue it with: proximo resume {tmp_path / 'stopped'}, or the command that trains all of them." in text


def test_the_members_of_a_sweep_are_continued_together(tmp_path):
    """Each alone continues equal up to rounding only."""
    names = ["gamma=0.9,seed=1", "gamma=0.99,seed=1"]
    (tmp_path / "sweep.json").write_text(json.dumps({"members": names}))
    for name in names:
        RunFolder(tmp_path / name, gamma=float(name[6:].partition(",")[0])).grow(1)
    text = report(tmp_path).with_suffix(".md").read_text()
    assert f"Not finished: {', '.join(names)}. Such a run" in text
    assert text.count(f"Continue the whole sweep with: proximo resume {tmp_path}, or") == 1


@pytest.mark.parametrize("content", ['{"model_type": "bert"}', "{}"])
def test_a_config_of_another_program_is_no_run_and_hides_none(content, tmp_path):
    """It was an unfinished run in environment "?", and runs below its folder were not found. Damaged ones stay."""
    run, begun, damaged = (tmp_path / "project" / name for name in ("run", "begun", "damaged"))
    RunFolder(run).grow(3).finish()
    RunFolder(begun, seed=2)
    for folder in (tmp_path / "project", tmp_path / "project" / "weights", damaged):
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(content if folder != damaged else '{"variant": ')
    assert {one.path for one in read_runs(tmp_path)} == {run, begun, damaged}
    assert {one.run.path for one in LiveRuns([tmp_path]).refresh()} == {run, begun, damaged}
    assert find_runs([tmp_path / "project"]) == find_runs([tmp_path]) == [begun, damaged, run]
