"""Files that grow while they are read, and thinned curves, against what a plain reader of the whole file says."""

import os

import numpy as np
import pytest

from proximo.bench.live import tail
from proximo.bench.live.downsample import Thinned
from proximo.bench.live.follow import Curves, points_of_each
from proximo.bench.live.tail import Tail
from proximo.models.curves import read_episodes, rolling_mean
from tests.support.run_folders import RunFolder


def test_only_new_whole_lines_are_read(tmp_path):
    """A line that a process is writing is read when it is whole."""
    path = tmp_path / "a.csv"
    rows = Tail(path)
    assert rows.read() == ([], False)
    path.write_text("a,b\n1,2\n3,")
    assert rows.read() == ([["1", "2"]], True)
    with path.open("a") as file:
        file.write("4\n5,6,7\n8,9\n")
    assert rows.read() == ([["3", "4"], ["8", "9"]], False)
    assert rows.read() == ([], False)


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "a,b\n7,8\n3,4\n5,6\n", "b,c,d\n1,2,3\n"])
def test_a_file_that_was_written_again_is_read_from_its_beginning(content, tmp_path):
    """Shorter, as long or longer than before: a resume cuts lines off, and then writes others."""
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    rows = Tail(path)
    rows.read()
    path.write_text(content)
    found, again = rows.read()
    assert again and found == [line.split(",") for line in content.splitlines()[1:]]


def test_limits_of_huge_files(tmp_path, monkeypatch):
    """A call reads a few bytes, a very long file is read near its end, and a line without end is passed over."""
    monkeypatch.setattr(tail, "MOST_AT_ONCE", 1000)
    monkeypatch.setattr(tail, "MOST_BYTES", 5000)
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "".join(f"{k},0\n" for k in range(10_000)))
    rows, found, calls = Tail(path), [], 0
    while not calls or rows.more:
        found += [int(row[0]) for row in rows.read()[0]]
        calls += 1
    assert found == list(range(found[0], 10_000)) and 700 < len(found) < 725 and 5 <= calls <= 7
    assert rows.skipped + 5000 >= path.stat().st_size - 20
    path.write_text("a,b\n" + "x" * 3000 + "\n1,2\n")
    rows = Tail(path)
    assert [row for _ in range(5) for row in rows.read()[0]] == [["1", "2"]]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "metrics.csv")
    assert Tail(tmp_path / "metrics.csv").read() == ([], False)


@pytest.mark.parametrize("pieces", [[1] * 37, [37], [5, 1, 30, 1]])
def test_points_are_means_of_equally_many_rows(pieces):
    """Against numpy over all rows, however they arrive; empty cells do not count."""
    rows = np.column_stack([np.arange(37.0), np.random.default_rng(0).normal(size=37)])
    rows[10, 1] = np.nan
    curve, begin = Thinned(8, last=1), 0
    curve.clear(2)
    for piece in pieces:
        curve.add(rows[begin:begin + piece])
        begin += piece
    assert curve.every == 8 and len(curve.points) == 4
    np.testing.assert_array_equal(curve.points[:, 0], [7, 15, 23, 31])
    np.testing.assert_allclose(curve.points[:, 1], np.nanmean(rows[:32, 1].reshape(4, 8), axis=1), rtol=1e-12)


def test_points_that_a_page_has_stay_as_they_are_until_the_stamp_changes():
    curve = Thinned(10, last=1)
    curve.clear(1)
    before, stamp = curve.points, curve.stamp
    for k in range(200):
        curve.add(np.array([[float(k)]]))
        if curve.stamp == stamp:
            np.testing.assert_array_equal(curve.points[:len(before)], before)
        else:
            assert len(before) == 10
        before, stamp = curve.points, curve.stamp
    assert len(before) <= 10


def test_curves_of_a_run_that_grows(tmp_path):
    """Read in three parts, against the reader of `proximo plot` on the whole file."""
    run, curves = RunFolder(tmp_path / "run"), Curves(tmp_path / "run")
    for iterations in (90, 1, 59):
        run.grow(iterations)
        curves.refresh()
    episodes = read_episodes(run.folder)
    np.testing.assert_array_equal(curves.episodes.points[:, 0], episodes.step)
    np.testing.assert_array_equal(curves.episodes.points[:, 4], episodes.ret)
    np.testing.assert_allclose(curves.episodes.points[:, 2], rolling_mean(episodes.ret), rtol=1e-12)
    assert curves.mean_return == pytest.approx(episodes.ret[-100:].mean())
    assert curves.names == ["charts/SPS", "losses/approx_kl", "losses/clipfrac", "losses/entropy", "losses/explained_variance"]
    assert curves.step == 15_000 and curves.metrics.points.shape == (150, 7) and curves.last("charts/SPS") == 500
    assert curves.newest[-1] == (15_000, 300, 160) and [row["global_step"] for row in curves.first] == list(range(100, 2100, 100))


def test_damaged_lines_are_passed_over(tmp_path):
    run = RunFolder(tmp_path).grow(3)
    with (run.folder / "episodes.csv").open("ab") as file:
        file.write(b"x,0,inf,nan,1\n\xff\xfe,1\n400,0,1e999,3,8\n500,0,8,9,10\n")
    curves = Curves(run.folder)
    curves.read_all()
    assert [newest[0] for newest in curves.newest] == [100, 200, 300, 500]


def test_many_runs_have_fewer_points():
    assert [points_of_each(runs) for runs in (0, 1, 20, 100, 10_000)] == [1000, 1000, 1000, 200, 20]


def test_many_metrics_of_a_program_leave_room_for_those_of_training(tmp_path):
    """A run with more info_metrics than a page shows: losses, speed and shares of the time are still read for warnings."""
    own, others = ["charts/SPS", *(f"charts/energy_{k}" for k in range(60))], ["losses/approx_kl", "time/acting"]
    names = ["iteration", "global_step", "seconds", *own, *others, "user/level"]
    (tmp_path / "metrics.csv").write_text(",".join(names) + "\n" + ",".join(map(str, range(len(names)))) + "\n")
    curves = Curves(tmp_path)
    curves.read_all()
    assert len(curves.names) == 40 and curves.names == [name for name in names if name in curves.names]
    assert {name: curves.last(name) for name in ("charts/SPS", *others)} == {
        "charts/SPS": 3, "losses/approx_kl": 64, "time/acting": 65}
