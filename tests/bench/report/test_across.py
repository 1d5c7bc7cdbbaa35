"""What a report says about several environments at once, against hand calculations on runs with known scores."""

import csv
import warnings
from pathlib import Path

import numpy as np
import pytest

from proximo.bench.report.across import across_environments
from proximo.bench.report.main import _summary, _write_csv
from proximo.bench.report.page import Picture
from proximo.bench.report.pictures import human_picture
from proximo.bench.report.published import atari_scores
from proximo.bench.report.tables import atari_table, results_table
from proximo.bench.results import RunResult
from proximo.bench.text import Table

pytest.importorskip("rliable")
pytest.importorskip("matplotlib")


def runs_of(env_id, label, scores, path=Path()):
    return [RunResult(path=path / f"{env_id}-{label}-{seed}", env_id=env_id, variant="ppo", label=label, seed=seed, config={},
                      versions={}, command="", machine="", summary={"episodic_return_mean": score}, evaluation={}, failure="",
                      ablates="") for seed, score in enumerate(scores, 1)]


def tables(scores):
    """The rows of the tables of one comparison, from {(environment, label): scores}."""
    groups = {key: runs_of(*key, values) for key, values in scores.items()}
    (section,) = across_environments(groups)
    return [part.rows for part in section.parts if isinstance(part, Table)]


def numbers(cell):
    return float(cell.partition(" ")[0])


def test_scores_count_from_the_lowest_to_the_highest_run_of_each_environment():
    """0 to 20 in one, -500 to -100 in the other: the means over runs and environments."""
    aggregates, pairs = tables({("A-v0", "one"): [10, 20], ("A-v0", "two"): [0, 5],
                                ("B-v0", "one"): [-100, -300], ("B-v0", "two"): [-500, -400]})
    assert [(row[0], numbers(row[4])) for row in aggregates] == [
        ("one", pytest.approx(np.mean([0.5, 1, 1, 0.5]), abs=0.006)), ("two", pytest.approx(np.mean([0, 0.25, 0, 0.25]), abs=0.006))]
    assert [(row[0], row[1], numbers(row[2])) for row in pairs] == [("one", "two", 1.0)]


def test_the_probability_is_that_of_the_first_against_the_second():
    """One pair of runs of four is a win of the first."""
    _, ((first, second, probability),) = tables({("A-v0", "one"): [0, 2], ("A-v0", "two"): [1, 9]})
    assert (first, second, numbers(probability)) == ("one", "two", 0.25)


def test_one_game_does_not_stretch_the_profiles(monkeypatch):
    """Human-normalised scores of 50 end the picture at 8, with a note; those of other environments reach 1."""
    drawn = []
    monkeypatch.setattr("proximo.bench.report.across.profiles_picture", lambda profiles, at, name: drawn.append(at) or "<svg/>")
    random, human = atari_scores()["Boxing"]
    for env_id, most in (("BoxingNoFrameskip-v4", 50), ("A-v0", 1)):
        scores = {(env_id, label): [random, random + size * (human - random)] for label, size in (("one", 1), ("two", 50))}
        sections = across_environments({key: runs_of(*key, values) for key, values in scores.items()})
        captions = [part.caption for part in sections[-1].parts if isinstance(part, Picture)]
        assert drawn[-1].max() == pytest.approx(min(most, 8))
        assert captions[-1].endswith("Scores above 8 are not drawn.") == (most > 8)


def test_runs_that_a_comparison_leaves_out_are_named():
    """Every environment needs the same number of runs. One run of four counts in A-v0, because B-v0 has one."""
    groups = {key: runs_of(*key, scores) for key, scores in {
        ("A-v0", "one"): [10, 20, 30, 40], ("A-v0", "two"): [0, 5, None, 7], ("B-v0", "one"): [1], ("B-v0", "two"): [2]}.items()}
    (section,) = across_environments(groups)
    assert section.parts[0] == ("In this section, all environments of a row have the same number of runs: the first ones of each. "
                                "Left out are 3 of one in A-v0, 2 of two in A-v0.")
    (other,) = across_environments({key: runs[:1] for key, runs in groups.items()})
    assert isinstance(other.parts[0], Table)


def test_seeds_without_a_score_are_not_counted(tmp_path):
    """Two of five runs ended no episode, and one of the other three was evaluated: the columns say so, and the number of seeds
    that a warning is about is three."""
    runs = runs_of("A-v0", "one", [10, 20, None, 30, None])
    runs[0] = runs[0]._replace(evaluation={"episodic_return_mean": 70.0})
    groups = {("A-v0", "one"): runs}
    (row,) = results_table(groups).rows
    assert row[2] == "3 of 5" and row[4] == "20.00 ± 8.16" and row[6] == "70.00 (1 of 5 seeds)"
    said = " ".join(map(str, _summary(runs, groups, {}).parts))
    assert "No episode ended in 2 of 5 runs in A-v0 (one). The returns are those of the others." in said
    assert "only 3 seeds" in said
    _write_csv(tmp_path / "report.csv", groups, {})
    (found,) = csv.DictReader((tmp_path / "report.csv").read_text().splitlines())
    assert (found["seeds"], found["runs"], found["evaluated"], float(found["mean"])) == ("3", "5", "1", 20)
    _write_csv(tmp_path / "report.csv", {("A-v0", "one"): runs[:1]}, {})
    (found,) = csv.DictReader((tmp_path / "report.csv").read_text().splitlines())
    assert (float(found["iqm"]), found["iqm_low"], found["iqm_high"]) == (10, "", "")  # one seed has no interval
    assert results_table({("A-v0", "one"): runs_of("A-v0", "one", [None, None])}).rows[0][2] == "2"


@pytest.mark.parametrize("score", [0.0, 2e7, -1e17])
def test_equal_scores_are_0(score):
    """They have no range to be divided by."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        aggregates, pairs = tables({("A-v0", "one"): [score] * 2, ("A-v0", "two"): [score] * 2})
    assert [(numbers(row[3]), numbers(row[4])) for row in aggregates] == [(0, 0), (0, 0)] and numbers(pairs[0][2]) == 0.5


def test_the_human_normalised_curve_is_the_median_over_games_of_means_over_seeds(tmp_path, monkeypatch):
    """Three games with two constant runs each. In a fourth one no episode ended, so it has no part in it."""
    figures, groups, means = [], {}, []
    monkeypatch.setattr("proximo.bench.report.pictures._svg", lambda figure: figures.append(figure) or "")
    for game, shares in (("Pong", (0.0, 1.0)), ("Breakout", (2.0, 4.0)), ("Qbert", (0.1, 0.7))):
        random, human = atari_scores()[game]
        env_id = f"{game}NoFrameskip-v4"
        groups[env_id, "ppo"] = runs_of(env_id, "ppo", shares, tmp_path)
        for run, share in zip(groups[env_id, "ppo"], shares):
            run.path.mkdir()
            lines = [f"{step},0,{random + share * (human - random)},9,{step}\n" for step in (10, 20, 30)]
            (run.path / "episodes.csv").write_text("step,row,return,length,seconds\n" + "".join(lines))
        means.append(np.mean(shares))
    groups["FreewayNoFrameskip-v4", "ppo"] = runs_of("FreewayNoFrameskip-v4", "ppo", (None,), tmp_path)
    human_picture(groups, ["ppo"])
    (line,) = figures[0].axes[0].lines
    np.testing.assert_allclose(line.get_ydata(), 100 * np.median(means))
    assert line.get_label() == "ppo (3 games)"


def test_one_run_of_a_game_has_no_interval():
    random, human = atari_scores()["Pong"]
    groups = {("PongNoFrameskip-v4", "ppo"): runs_of("PongNoFrameskip-v4", "ppo", [human])}
    assert [row[4] for row in atari_table(groups).rows] == ["100.0 (one seed)"]


def test_of_many_settings_the_best_are_compared():
    """Each pair needs a bootstrap. Of twelve settings, the two with the lowest scores are left out."""
    groups = {("A-v0", f"s{k:02}"): runs_of("A-v0", f"s{k:02}", [k, k + 0.5]) for k in range(12)}
    (section,) = across_environments(groups)
    aggregates, pairs = (part.rows for part in section.parts if isinstance(part, Table))
    assert section.title == "Comparison of 12 settings in A-v0"
    assert [row[0] for row in aggregates] == [f"s{k:02}" for k in range(2, 12)] and len(pairs) == 45
    assert section.parts[0] == "This section has the 10 of 12 settings with the highest interquartile mean."
