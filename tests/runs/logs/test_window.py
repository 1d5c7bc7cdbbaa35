"""Tests of --log-every: the lines of several iterations, against the lines of a run that writes each of them."""

import json
import math

import numpy as np
import pytest

from proximo.cli.main import main
from proximo.config import Config
from proximo.runs.folder.run import Run
from proximo.runs.logs.log import Log
from proximo.runs.logs.window import Window
from proximo.types import FinishedEpisodes
from tests.support.runs import at_iteration, rows, same_logs, same_weights, terminate, train


def numbers(folder, name="metrics.csv"):
    """The lines of a CSV as numbers, NaN where there is none."""
    return [{key: float(text) if text else math.nan for key, text in row.items()} for row in rows(folder, name)]


def test_lines_are_means_over_the_iterations_since_the_last(tmp_path):
    """Against the single lines of the same run, and the means of the episodes between two lines."""
    whole, sparse = tmp_path / "whole", tmp_path / "sparse"
    assert train(whole) == train(sparse, "--log-every", 4) == 0
    assert same_weights(whole, sparse) and rows(whole, "episodes.csv") == rows(sparse, "episodes.csv")
    single, lines, before = numbers(whole), numbers(sparse), 0
    assert [line["iteration"] for line in lines] == [1, 4, 8, 10]
    for line in lines:
        part = single[before:int(line["iteration"])]
        for name in ("losses/entropy", "losses/value_loss", "losses/grad_norm"):
            assert line[name] == pytest.approx(np.mean([row[name] for row in part]), rel=1e-6)
        for name in ("global_step", "charts/learning_rate"):
            assert line[name] == part[-1][name]
        returns = [row["return"] for row in numbers(whole, "episodes.csv") if before * 32 < row["step"] <= line["global_step"]]
        assert line["charts/episodic_return"] == pytest.approx(np.mean(returns) if returns else math.nan, nan_ok=True)
        before = int(line["iteration"])


def test_a_resume_between_two_lines_changes_no_line(tmp_path, monkeypatch):
    """Against a run that was not stopped; iteration 6 is between the lines of 4 and 8."""
    assert train(tmp_path / "whole", "--log-every", 4) == 0
    at_iteration(monkeypatch, 6, terminate)
    assert train(tmp_path / "cut", "--log-every", 4) == 143
    assert [row["iteration"] for row in rows(tmp_path / "cut", "metrics.csv")] == ["1", "4"]
    assert main(["resume", str(tmp_path / "cut")]) == 0
    assert same_weights(tmp_path / "whole", tmp_path / "cut") and same_logs(tmp_path / "whole", tmp_path / "cut")


def test_sums_survive_a_checkpoint():
    """Against the mean of three values, of the two that are numbers, and NaN where there was none."""
    window = Window(5)
    assert window.add(2, {"a": 1.0, "b": math.nan, "c": 3.0}, {}, last=False) is None
    window = Window(5, json.loads(json.dumps(window.state())))
    assert window.add(3, {"a": 2.0, "b": math.nan, "c": math.nan}, {}, last=False) is None
    line = window.add(5, {"a": 6.0, "b": math.nan, "c": 5.0}, {}, last=False)
    assert line is not None and line["a"] == 3.0 and math.isnan(line["b"]) and line["c"] == 4.0 and window.state() == {}


def test_what_waits_for_its_line_is_in_the_next_one_if_a_resume_writes_every_iteration():
    """Of iterations 5 and 6, which a checkpoint of a run with --log-every 4 contains, and of 7."""
    window = Window(4)
    for k, evaluated in ((5, 30.0), (6, math.nan)):
        window.add(k, {"a": float(k), "eval/return_mean": evaluated}, {}, last=False)
    window = Window(1, window.state())
    assert window.add(7, {"a": 7.0, "eval/return_mean": math.nan}, {}, last=False) == {"a": 6.0, "eval/return_mean": 30.0}
    assert window.add(8, {"a": 8.0}, {}, last=False) == {"a": 8.0}


def test_the_first_and_the_last_iteration_have_a_line():
    """So that metrics.csv has its columns from the beginning, and ends where the run does."""
    for every, due in ((100, [1, 7]), (2, [1, 2, 4, 6, 7])):
        window = Window(every)
        assert [k for k in range(1, 8) if window.add(k, {"a": 1.0}, {}, last=k == 7) is not None] == due


def test_a_line_has_the_last_evaluation():
    """Against the last of two evaluations, each of one agent; the iteration after it has none."""
    window = Window(4)
    for k, value in ((5, 10.0), (6, math.nan), (7, 30.0)):
        assert window.add(k, {"eval/return_mean": value}, {}, last=False) is None
    assert window.add(8, {"eval/return_mean": math.nan}, {}, last=False) == {"eval/return_mean": 30.0}
    line = window.add(12, {"eval/return_mean": math.nan}, {}, last=False)
    assert line is not None and math.isnan(line["eval/return_mean"])


def test_metrics_of_episodes_are_means_over_episodes(tmp_path):
    """Against the means over all episodes: of a metric of info, and of each player, whose episodes differ in number."""
    cfg = Config(log_every=2, info_metrics=("is_success",), total_timesteps=10_000)
    run = Run(folder=tmp_path, variant="ppo", cfg=cfg)
    log = Log(run, ("a", "b"), meter=False)
    for k, rows_of, returns, share in ((1, [0], [9], 0.0), (3, [0, 1, 1, 1], [0, 1, 1, 1], 1.0), (4, [0, 0, 0, 1], [4, 4, 4, 5], 0.5)):
        ended = np.array(rows_of)
        finished = FinishedEpisodes(step=100 * k + ended, row=ended, ret=np.array(returns, np.float32), length=ended + 1)
        log.iteration(k, 100 * k + 9, {"charts/is_success": share, "losses/entropy": float(k)}, finished)
    log.close()
    line = numbers(tmp_path)[-1]
    assert line["charts/episodic_return"] == 20 / 8 and line["charts/is_success"] == 0.75 and line["losses/entropy"] == 3.5
    assert line["charts/episodic_return-a"] == (0 + 3 * 4) / 4 and line["charts/episodic_return-b"] == (3 * 1 + 5) / 4
