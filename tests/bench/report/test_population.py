"""The rounds of a population in a report, from a pbt.json with known parents and scores."""

import json

import pytest

from proximo.bench.report.main import report
from proximo.bench.report.population import best_member, line_of, population_sections
from tests.support.run_folders import RunFolder


def member(score, parent, learning_rate, failed=False):
    return {"values": {"learning_rate": learning_rate, "norm_adv": "none"}, "seed": 1, "parent": parent, "score": score,
            "failed": failed}


ROUNDS = [[member(10.0, None, 1e-3), member(30.0, None, 0.00123456), member(None, None, 3e-3, failed=True)],
          [member(20.0, 0, 1e-3), member(25.0, 1, 0.00123456), member(40.0, 1, 2e-3)]]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pbt.json").write_text(json.dumps({"file": {}, "rounds": ROUNDS}))
    return tmp_path


def test_rounds_copies_and_the_line_of_the_best_are_shown(folder):
    """The best of round 2 is member 2, a copy of member 1 of round 1; the member that failed has no score."""
    (section,) = population_sections(folder)
    rounds, line, everyone = section.parts
    assert rounds.rows == [["1", "01", "30.00", "20.00", "10.00", "-", "02"],
                           ["2", "02", "40.00", "28.33", "20.00", "02 from 01", "-"]]
    assert line.head == ["round", "member", "score", "learning_rate", "norm_adv"]
    assert line.rows == [["1", "01", "30.00", "0.001235", "none"], ["2", "02", "40.00", "0.002", "none"]]
    assert [row[:3] + row[5:] for row in everyone.table.rows] == [
        ["1", "00", "10.00", "-", "1"], ["1", "01", "30.00", "-", "1"], ["1", "02", "failed", "-", "1"],
        ["2", "00", "20.00", "00", "1"], ["2", "01", "25.00", "01", "1"], ["2", "02", "40.00", "01", "1"]]


def test_the_page_of_a_population_has_the_section(folder):
    pytest.importorskip("rliable")
    run = RunFolder(folder / "round-002" / "CartPole-v1" / "member-02" / "1").grow(3)
    (run.folder / "summary.json").write_text(json.dumps({"steps": 300, "episodic_return_mean": 5.0}))
    report(folder)
    text = (folder / "report.md").read_text()
    assert text.index("## Summary") < text.index("## Population") < text.index("## Results")
    assert "| 2 | 02 | 40.00 | 28.33 | 20.00 | 02 from 01 | - |" in text


def test_a_parent_that_does_not_exist_ends_the_line():
    """pbt.json is a file that somebody may have changed."""
    assert line_of([[member(1.0, None, 1e-3)], [member(1.0, 7, 1e-3)]], 0) == [(2, 0)]
    assert line_of(ROUNDS, 2) == [(1, 1), (2, 2)]


def test_a_member_that_failed_is_not_the_best():
    """Where no episode has ended, as `proximo pbt` reports it."""
    assert best_member([member(None, 0, 1e-3, failed=True), member(None, 1, 1e-3)]) == 1
    assert best_member([member(None, 0, 1e-3), member(-5.0, 1, 1e-3), member(-5.0, 1, 1e-3)]) == 1


@pytest.mark.parametrize("content", [None, "{", '{"file": {}, "rounds": []}', '{"file": {}, "rounds": [[]]}'])
def test_without_a_finished_round_there_is_no_section(content, tmp_path):
    if content is not None:
        (tmp_path / "pbt.json").write_text(content)
    assert population_sections(tmp_path) == []
