"""Learning curves from episodes.csv: numbers against slow definitions, figures against their contents."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from proximo.bench.results import differing_settings, read_runs
from proximo.errors import FilesError, UsageError
from proximo.models.curves import Curve, average_over_seeds, last_of_equal, read_episodes, rolling_mean
from proximo.models.plot import draw_curves, find_runs, group_curves, plot, read_curve
from tests.support.full_disk import bytes_below, full_disk


def fake_run(folder: Path, seed: int, episodes: int = 300, env_id: str = "CartPole-v1", **config) -> Path:
    folder.mkdir(parents=True)
    fields = {"env_id": env_id, "seed": seed, "run_dir": str(folder), "clip_coef": 0.2} | config
    (folder / "config.json").write_text(json.dumps({"variant": "ppo", "config": fields}))
    lines = [f"{100 * k},0,{k + seed},{k},0.5\n" for k in range(1, episodes + 1)]
    (folder / "episodes.csv").write_text("step,row,return,length,seconds\n" + "".join(lines))
    return folder


def test_smoothing_is_the_mean_of_the_last_window():
    """Against a loop."""
    values = np.random.default_rng(0).normal(size=250)
    slow = [values[max(0, k - 99) : k + 1].mean() for k in range(250)]
    np.testing.assert_allclose(rolling_mean(values), slow)


def test_curve_is_sorted_and_leaves_out_a_line_being_written(tmp_path):
    """Episodes of one iteration need not be in order, and a live run can be read at any time."""
    run = fake_run(tmp_path / "run", 1, 0)
    with open(run / "episodes.csv", "a") as file:
        file.write("30,player0,3.5,9,1\n10,player1,-1,9,1\n40,pla")
    episodes = read_episodes(run)
    assert episodes.step.tolist() == [10, 30]
    assert episodes.ret.tolist() == [-1.0, 3.5]
    (run / "episodes.csv").write_text("")
    assert len(read_episodes(run).step) == 0


def test_episodes_that_end_at_the_same_step_stay_in_order(tmp_path):
    """That of the file, which is the one of their rows: the last of them is what a curve shows."""
    run = fake_run(tmp_path / "run", 1, 0)
    steps = np.random.default_rng(0).integers(0, 9, 500).tolist()
    with open(run / "episodes.csv", "a") as file:
        file.write("".join(f"{step},0,{k},9,1\n" for k, step in enumerate(steps)))
    assert read_episodes(run).ret.tolist() == sorted(range(500), key=lambda k: steps[k])


@pytest.mark.parametrize("text,damaged", [
    ("step,row,return,length,seconds\n10,0,1,5,1\ngarbage\n20,0,x,5,1\n30,0,nan,5,1\n40,0,2,5,1\n50,0", "3 of 5"),
    ("\x00\x01\nmore garbage\n", "1 of 1"), ("step,row,return,length,seconds\n10,0,1,5,1\n20,0", ""), ("", "")])
def test_damaged_lines_are_said(text, damaged, tmp_path, caplog):
    """All but the last one, which may be incomplete while a run trains."""
    run = fake_run(tmp_path / "run", 1, 0)
    (run / "episodes.csv").write_text(text)
    assert read_episodes(run).step.tolist() == [int(line.split(",")[0]) for line in text.split("\n") if line.endswith(",5,1")
                                                and line.split(",")[2] in "12"]
    said = f"{run / 'episodes.csv'}: {damaged} lines are damaged. They are left out."
    assert [record.getMessage() for record in caplog.records] == [said] * bool(damaged)


def test_mean_and_deviation_over_seeds():
    """Against the definition at two points; each run counts as far as it got."""
    steps = np.arange(1, 101) * 10
    curves = [Curve("ppo", {}, steps, np.full(100, 2.0)), Curve("ppo", {}, steps, np.full(100, 6.0)),
              Curve("ppo", {}, steps[:20], np.full(20, 10.0)), Curve("ppo", {}, steps[:0], np.zeros(0))]
    at, mean, deviation = average_over_seeds(curves)
    early, late = np.searchsorted(at, 150), -1
    assert (mean[early], deviation[early]) == (6.0, pytest.approx(np.std([2, 6, 10])))
    assert (mean[late], deviation[late]) == (4.0, 2.0)
    assert np.isfinite(mean).all()


def test_a_run_counts_to_the_end_of_the_picture_if_it_nearly_reached_it():
    """The last episode of one run ends at 960 of 1000 steps, that of another one at 940, which stopped early."""
    steps = np.arange(1, 101) * 10
    curves = [Curve("ppo", {}, steps, np.full(100, 2.0)), Curve("ppo", {}, steps[:96], np.full(96, 6.0)),
              Curve("ppo", {}, steps[:94], np.full(94, 10.0))]
    _, mean, _ = average_over_seeds(curves)
    assert mean[-1] == 4.0


def test_a_run_that_was_trained_to_the_end_counts_to_it(tmp_path):
    """Its last episode may have ended long before: without its value, the mean would jump to that of the other run."""
    steps = np.arange(1, 101) * 10
    curves = [Curve("ppo", {}, steps, np.full(100, 2.0), trained=1000), Curve("ppo", {}, steps[:90], np.full(90, 6.0), trained=1000)]
    assert (average_over_seeds(curves)[1] == 4.0).all()
    assert read_curve(metrics_run(tmp_path / "1", 1, "1,100,,0.5\n2,200,,0.4\n")).trained == 200


def test_the_mean_begins_where_all_runs_have_an_episode():
    """Before that it would be the curve of one of them, and jump when the next one begins."""
    steps = np.arange(1, 101) * 10
    curves = [Curve("ppo", {}, steps, np.full(100, 2.0)), Curve("ppo", {}, steps[30:], np.full(70, 6.0))]
    at, mean, deviation = average_over_seeds(curves)
    assert at[0] == 310 and (mean == 4.0).all() and (deviation == 2.0).all()


def test_numbers_in_labels_have_as_few_digits_as_distinguish_them(tmp_path):
    """Three digits where they suffice, and more where two settings would share a name; whole numbers stay."""
    for k, (rate, gamma, envs) in enumerate([(0.0016340733664249774, 0.99, 4), (0.0028773528450070842, 0.990001, 8)]):
        fake_run(tmp_path / str(k), 1, learning_rate=rate, gamma=gamma, num_envs=envs)
    (groups,) = group_curves([read_curve(run) for run in find_runs([tmp_path])]).values()
    assert list(groups) == ["ppo, learning_rate=0.00163, gamma=0.99, num_envs=4",
                            "ppo, learning_rate=0.00288, gamma=0.990001, num_envs=8"]


@pytest.mark.parametrize("pair", [(0.9995, 0.99), (0.9999, 0.9), (0.99912345, 0.5)])
def test_a_discount_near_1_is_not_written_as_1(pair, tmp_path):
    """Three digits would distinguish the two, and say something else."""
    for k, gamma in enumerate(pair):
        fake_run(tmp_path / str(k), 1, gamma=gamma)
    (groups,) = group_curves([read_curve(run) for run in find_runs([tmp_path])]).values()
    shown = [float(label.split("gamma=")[1]) for label in groups]
    assert [1 - one for one in shown] == pytest.approx([1 - one for one in pair], rel=0.01)


def test_a_line_of_one_point_is_seen(tmp_path):
    """Two seeds with one evaluation each, at the same step."""
    for seed in (1, 2):
        metrics_run(tmp_path / str(seed), seed, f"1,100,{seed},0.5\n")
    (axes,) = draw_curves([tmp_path], metric="eval/return_mean").axes
    assert axes.lines[0].get_marker() == "o" and set(axes.lines[0].get_ydata()) == {1.5}


def test_of_very_many_lines_the_best_are_named(tmp_path):
    """35 settings: the last entry counts those without a name, which end lower."""
    for k in range(35):
        run = fake_run(tmp_path / str(k), 1, gamma=k / 100)
        (run / "episodes.csv").write_text(f"step,row,return,length,seconds\n10,0,{k},5,1\n20,0,{k},5,1\n")
    (axes,) = draw_curves([tmp_path]).axes
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names[-1] == "and 5 lines with lower values at the end" and len(names) == 31
    assert {name.split("gamma=")[1].split(" ")[0] for name in names[:-1]} == {f"{k / 100:.3g}" for k in range(5, 35)}


def test_seeds_share_a_line_and_settings_that_differ_split_it(tmp_path):
    """Labels name the settings that differ; folder and seed are none."""
    runs = [fake_run(tmp_path / f"{seed}_{clip}", seed, clip_coef=clip) for seed in (1, 2) for clip in (0.1, 0.2)]
    runs.append(fake_run(tmp_path / "other", 1, env_id="Acrobot-v1"))
    curves = [Curve("ppo", json.loads((run / "config.json").read_text())["config"], read_episodes(run).step,
                    read_episodes(run).ret) for run in runs]
    panels = group_curves(curves)
    assert {env: {label: len(group) for label, group in groups.items()} for env, groups in panels.items()} == {
        "Acrobot-v1": {"ppo": 1}, "CartPole-v1": {"ppo, clip_coef=0.1": 2, "ppo, clip_coef=0.2": 2}}


def test_a_loss_or_an_environment_of_ones_own_is_a_line_of_its_own(tmp_path):
    """Also where an earlier version recorded only that there was one."""
    for name, own in (("a", {}), ("b", {"own_parts": {"loss_fn": "zero"}}), ("d", {"own_parts": {"env": "scaled"}}),
                      ("c", {"resume_with": "proximo.resume('RUN', env=..., loss_fn=...)"})):
        path = fake_run(tmp_path / name, 1, 3, clip_coef=0.2) / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | own))
    panels = group_curves([read_curve(run) for run in find_runs([tmp_path])])
    assert [*panels["CartPole-v1"]] == ["ppo", "ppo, loss_fn=zero", "ppo, env=own, loss_fn=own", "ppo, env=scaled"]
    runs = read_runs(tmp_path)
    assert sorted(run.label for run in runs) == ["ppo", "ppo-env=own,loss_fn=own", "ppo-env=scaled", "ppo-loss_fn=zero"]
    assert differing_settings({(run.env_id, run.label): [run] for run in runs})["loss_fn"] == {
        "ppo": "-", "ppo-env=own,loss_fn=own": "own", "ppo-env=scaled": "-", "ppo-loss_fn=zero": "zero"}


def test_picture_has_a_line_and_a_band(tmp_path):
    """The figure has pixels in the colour of the line, and for several seeds in that of the band."""
    runs = [fake_run(tmp_path / "runs" / str(seed), 40 * seed) for seed in (1, 2, 3)]

    def pixels(path: Path, colour: tuple[int, int, int]) -> int:
        picture = np.asarray(Image.open(path).convert("RGB")).astype(int)
        return (abs(picture - colour).max(axis=-1) <= 1).sum()

    line, band = (0, 114, 178), (204, 227, 240)
    several, one = plot([tmp_path / "runs"], tmp_path / "new" / "three.png"), plot(runs[:1], tmp_path / "one.png")
    assert pixels(several, line) > 500 and pixels(several, band) > 5000
    assert pixels(one, line) > 500 and pixels(one, band) < 500


def test_runs_that_count_in_no_report_are_in_no_picture(tmp_path, caplog):
    """Results that a benchmark moved aside, and a second run of the same settings and seed, of which the finished one stays."""
    for name, seed in (("1", 1), ("2", 2), ("1.unknown.old", 1), ("again", 2)):
        fake_run(tmp_path / "bench" / name, seed)
    (tmp_path / "bench" / "2" / "summary.json").write_text('{"steps": 30000}')
    assert [run.name for run in find_runs([tmp_path / "bench"])] == ["1", "2", "again"]
    with caplog.at_level("INFO", logger="proximo"):
        assert "<!-- ppo (2 seeds) -->" in plot([tmp_path / "bench"], tmp_path / "seeds.svg").read_text()
    assert f"{tmp_path}/bench/again is left out: {tmp_path}/bench/2 has the same settings and seed." in caplog.text
    assert {run.path.name for run in read_runs(tmp_path / "bench")} == {"1", "2"}
    assert find_runs([tmp_path / "bench" / "1.unknown.old"])


def test_a_copy_that_a_user_has_named_is_a_run(tmp_path):
    """Only .old ends the names of what a benchmark has moved aside, or not copied completely."""
    for name in ("ppo", "ppo.copy", ".1.copy.old"):
        fake_run(tmp_path / name, 1)
    assert [run.name for run in find_runs([tmp_path])] == ["ppo", "ppo.copy"]


def test_seeds_of_machines_with_other_numbers_of_cores_are_one_line(tmp_path):
    """As in a report. An engine may be what is compared."""
    runs = [fake_run(tmp_path / str(seed), seed, env_workers=seed, threads=seed, device=f"cuda:{seed}", iteration_shift=-seed,
                     engine=engine) for seed, engine in ((1, "ale"), (2, "ale"), (3, "envpool"))]
    (groups,) = group_curves([read_curve(run) for run in runs]).values()
    assert {label: len(curves) for label, curves in groups.items()} == {"ppo, engine=ale": 2, "ppo, engine=envpool": 1}


def test_runs_without_an_episode_are_named(tmp_path, caplog):
    """An SVG draws letters as paths and keeps the words as comments. An empty picture is told on the terminal too."""
    alone = plot([fake_run(tmp_path / "a", 5, 0)], tmp_path / "alone.svg").read_text()
    assert "No episode has finished in these runs" in caplog.text
    caplog.clear()
    both = plot([tmp_path / "a", fake_run(tmp_path / "b", 6)], tmp_path / "both.svg").read_text()
    assert "<!-- ppo, seed 5: no episode finished -->" in alone
    assert "<!-- ppo, seed 5: no episode finished -->" in both and "<!-- ppo (1 seed) -->" in both
    assert not caplog.text


def test_a_run_that_has_just_started_is_named_too(tmp_path):
    """It has a config.json, and no episodes.csv yet."""
    (fake_run(tmp_path / "runs" / "a", 5) / "episodes.csv").unlink()
    fake_run(tmp_path / "runs" / "b", 6)
    words = plot([tmp_path / "runs"], tmp_path / "both.svg").read_text()
    assert "<!-- ppo, seed 5: no episode finished -->" in words and "<!-- ppo (1 seed) -->" in words


def test_episodes_that_end_together_make_no_cliff():
    """Episodes of parallel environments end at one step: the line goes to their mean without a vertical drop."""
    steps, values = last_of_equal(np.array([10, 20, 20, 20, 30]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert steps.tolist() == [10, 20, 30]
    assert values.tolist() == [1.0, 4.0, 5.0]
    curve = Curve("ppo", {}, np.array([100, 200, 200]), np.array([0.0, 0.0, 3.0]))
    _, mean, _ = average_over_seeds([curve])
    assert abs(np.diff(mean)).max() < 0.01  # the last mean, 1.0, is reached over 1000 points


def test_the_title_has_no_module_and_the_footnote_explains_what_is_there(tmp_path):
    """The words of the SVG."""
    runs = [fake_run(tmp_path / str(seed), seed, env_id="my.module:Env-v0") for seed in (1, 2)]
    one, two = plot(runs[:1], tmp_path / "one.svg").read_text(), plot(runs, tmp_path / "two.svg").read_text()
    assert "<!-- Env-v0 -->" in one
    assert "my.module" not in one
    assert "dots: episodes" in one
    assert "band:" not in one
    assert "band: one standard deviation" in two
    assert "dots:" not in two


def test_names_are_drawn_as_they_are(tmp_path):
    """Two `$` in a name are no formula, which may be a wrong one."""
    for seed, name in enumerate(("$a_^$", "b$")):
        fake_run(tmp_path / "runs" / str(seed), seed, exp_name=name)
    words = plot([tmp_path / "runs"], tmp_path / "two.svg").read_text()
    assert "<!-- ppo, exp_name=$a_^$ (1 seed) -->" in words and "<!-- ppo, exp_name=b$ (1 seed) -->" in words


def test_the_names_of_many_lines_are_beside_the_panel(tmp_path):
    """As matplotlib has laid them out: 30 names neither cover the curves nor leave the panel without room."""
    for k in range(30):
        fake_run(tmp_path / str(k), 1, gamma=k / 100)
    figure = draw_curves([tmp_path])
    figure.draw_without_rendering()
    (axes,), whole = figure.axes, figure.bbox
    legend = axes.get_legend().get_window_extent()
    assert legend.x0 >= axes.bbox.x1 and legend.x1 <= whole.x1 and whole.y0 <= legend.y0
    assert axes.bbox.width > whole.width / 2 and axes.bbox.height > whole.height / 2


def test_a_line_has_the_same_colour_in_every_panel(tmp_path):
    """Also where an environment lacks one of the settings."""
    for env_id, gammas in (("A-v0", (0.5, 0.8, 0.9)), ("B-v0", (0.8, 0.9)), ("C-v0", (0.9, 0.95))):
        for gamma in gammas:
            fake_run(tmp_path / env_id / str(gamma), 1, env_id=env_id, gamma=gamma)
    colors = {}
    for axes in draw_curves([tmp_path]).axes[:3]:
        lines = [(line.get_label(), line.get_color()) for line in axes.lines]
        assert len({color for _, color in lines}) == len(lines)
        for label, color in lines:
            assert colors.setdefault(label, color) == color
    assert len(colors) == 4


def test_the_names_of_runs_without_an_episode_leave_room_for_the_curves(tmp_path):
    """However long they are: they are broken into lines, as those of curves."""
    for k, name in enumerate(("a" * 150, "b" * 150)):
        fake_run(tmp_path / str(k), 1, episodes=300 * k, exp_name=name)
    figure = draw_curves([tmp_path])
    figure.draw_without_rendering()
    assert figure.axes[0].bbox.width > figure.bbox.width / 3
    (silent,) = (text.get_text() for text in figure.axes[0].get_legend().get_texts() if "no episode" in text.get_text())
    assert max(map(len, silent.split("\n"))) < 80


def test_files_beside_runs_are_left_out(tmp_path, caplog):
    """A shell writes the records of a benchmark, which are beside its runs, for DIR/*."""
    run, record = fake_run(tmp_path / "1", 1), tmp_path / "1.job.json"
    record.write_text("{}")
    assert find_runs([run, record]) == [run]
    assert f"left out: {record}." in caplog.text
    with pytest.raises(UsageError, match=r"1\.job\.json neither is nor contains a run"):
        find_runs([record])


def test_what_cannot_be_drawn_is_refused_in_one_sentence(tmp_path):
    """Each message has the path and what to do."""
    run = fake_run(tmp_path / "run", 1)
    with pytest.raises(UsageError, match="no run was given"):
        find_runs([])
    with pytest.raises(UsageError, match="neither is nor contains a run"):
        find_runs([tmp_path / "nothing"])
    with pytest.raises(UsageError, match=f"checkpoints neither is nor contains a run. Give the run that it belongs to: {run}.$"):
        find_runs([run / "checkpoints"])
    with pytest.raises(UsageError, match=r"Name it curve\.png"):
        plot([run], tmp_path / "curve.xyz")
    (run / "config.json").write_text("{}")
    with pytest.raises(FilesError, match="variant is missing"):
        plot([run], tmp_path / "curve.png")


def test_a_full_disk_leaves_the_older_picture(tmp_path):
    run = fake_run(tmp_path / "run", 1)
    plot([run], tmp_path / "curve.png")
    before = bytes_below(tmp_path)
    with full_disk(), pytest.raises(FilesError, match="curve.png could not be written .*, or choose another place"):
        plot([run], tmp_path / "curve.png")
    assert bytes_below(tmp_path) == before


def test_a_name_without_an_ending_is_a_png(tmp_path):
    with Image.open(plot([fake_run(tmp_path / "run", 1)], tmp_path / "curve")) as picture:
        assert picture.format == "PNG"


@pytest.mark.parametrize("ending", ["pdf", "eps"])
def test_a_picture_for_print_has_no_fonts_of_type_3(ending, tmp_path):
    """Publishers refuse them."""
    content = plot([fake_run(tmp_path / "run", 1)], tmp_path / f"curve.{ending}").read_bytes()
    assert not re.search(rb"/FontType 3\b|/Type3\b", content) and re.search(rb"/FontType 42\b|/CIDFontType2\b", content)


def test_smoothing_forgets_a_huge_return():
    """A difference of two sums would not."""
    values = np.array([1e18, *[100.0] * 300])
    assert (rolling_mean(values)[100:] == 100).all()


def test_a_damaged_run_below_a_folder_is_left_out(tmp_path, caplog):
    """The others are drawn."""
    for seed in (1, 2):
        fake_run(tmp_path / "runs" / str(seed), seed)
    (tmp_path / "runs" / "2" / "config.json").write_text("{")
    assert plot([tmp_path / "runs"], tmp_path / "curve.png").exists() and "It is left out." in caplog.text
    (tmp_path / "runs" / "1" / "config.json").write_text("{")
    with pytest.raises(FilesError):
        plot([tmp_path / "runs"], tmp_path / "curve.png")


def metrics_run(folder: Path, seed: int, table: str) -> Path:
    """A run with a metrics.csv."""
    run = fake_run(folder, seed)
    (run / "metrics.csv").write_text(f"iteration,global_step,eval/return_mean,losses/entropy\n{table}")
    return run


def test_a_metric_is_drawn_in_place_of_returns(tmp_path):
    """Lines without a finite value are left out: at 200 steps 15 and 25, at 400 steps 30 and 50. The line that is being
    written counts only when it ends."""
    metrics_run(tmp_path / "1", 1, "1,100,,0.5\n2,200,15,0.4\n3,300,nan,0.3\n4,400,30,0.2\n5,500,9")
    metrics_run(tmp_path / "2", 2, "1,100,,0.5\n2,200,25,0.4\n3,300,inf,0.3\n4,400,50,0.2\n")
    (axes,) = draw_curves([tmp_path], metric="eval/return_mean").axes
    (line,) = axes.lines
    assert (line.get_xdata()[[0, -1]].tolist(), line.get_ydata()[[0, -1]].tolist()) == ([200, 400], [20, 40])
    assert axes.get_ylabel() == "eval/return_mean"
    mean = draw_curves([tmp_path], window=2, metric="losses/entropy").axes[0].lines[0]
    assert mean.get_ydata()[[0, -1]].tolist() == pytest.approx([0.5, 0.25])


def test_what_a_picture_of_a_metric_says_of_itself(tmp_path):
    """The footnote, and runs without a value."""
    metrics_run(tmp_path / "1", 1, "1,100,,0.5\n2,200,,0.4\n")
    metrics_run(tmp_path / "2", 2, "1,100,7,0.5\n2,200,8,0.4\n")
    figure = draw_curves([tmp_path], metric="eval/return_mean")
    assert "ppo, seed 1: no value of eval/return_mean" in [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert figure.get_supxlabel() == "line: values of a single run; dots: values of a single run"
    several = draw_curves([tmp_path], metric="losses/entropy").get_supxlabel()
    assert several == "line: mean over seeds; band: one standard deviation over seeds"


@pytest.mark.parametrize("seeds", [1, 2])
def test_the_line_of_few_values_has_a_marker_at_each(seeds, tmp_path):
    """Where all seeds have a value: it is straight between two evaluations. A line of many values has none."""
    for seed in range(1, seeds + 1):
        rows = "".join(f"{k},{100 * k},{k**2 if k % 8 == 0 else ''},0.5\n" for k in range(1, 81))
        metrics_run(tmp_path / str(seed), seed, rows)
    line = draw_curves([tmp_path], metric="eval/return_mean").axes[0].lines[0]
    marked = line.get_xdata()[line.get_markevery()]
    assert line.get_marker() == "o" and marked == pytest.approx(np.arange(800, 8001, 800), abs=8)
    assert draw_curves([tmp_path], metric="losses/entropy").axes[0].lines[0].get_marker() == ""


def test_the_footnote_says_that_a_line_begins_late(tmp_path):
    """It begins where all seeds have a value: here the first 10,000 of 30,000 steps of one seed are not drawn."""
    fake_run(tmp_path / "1", 1)
    late = fake_run(tmp_path / "2", 2)
    assert "from where" not in draw_curves([tmp_path]).get_supxlabel()
    head, *lines = (late / "episodes.csv").read_text().splitlines(keepends=True)
    (late / "episodes.csv").write_text(head + "".join(lines[99:]))
    figure = draw_curves([tmp_path])
    assert figure.axes[0].lines[0].get_xdata()[0] == 10_000
    assert "averaged over seeds from where all seeds have a value; band" in figure.get_supxlabel().replace("\n", " ")
    figure.draw_without_rendering()
    note, whole = figure._supxlabel.get_window_extent(), figure.bbox
    assert whole.x0 <= note.x0 and note.x1 <= whole.x1 and whole.y0 <= note.y0


def test_a_metric_that_no_run_has_is_refused(tmp_path):
    """With the names that there are, and the nearest one."""
    metrics_run(tmp_path / "1", 1, "1,100,,0.5\n")
    with pytest.raises(UsageError, match="Did you mean losses/entropy? They have eval/return_mean, losses/entropy".replace("?", "[?]")):
        draw_curves([tmp_path], metric="losses/entrpy")
    with pytest.raises(UsageError, match=r"runs\. Evaluations are made while a run trains: --eval-every N\. They have"):
        draw_curves([fake_run(tmp_path / "never", 1)], metric="eval/return_mean")
    with pytest.raises(UsageError, match="no metrics yet"):
        draw_curves([fake_run(tmp_path / "other", 1)], metric="losses/entropy")


def test_a_population_is_drawn_as_its_newest_round(tmp_path):
    """A run of a round begins with the lines of the one that it continues, and its settings have changed since."""
    for number, rates in ((9, (0.1, 0.2)), (10, (0.1, 0.1))):
        for member, rate in enumerate(rates):
            fake_run(tmp_path / f"round-{number:03}/CartPole-v1/member-{member:02}/{member + 1}", member + 1, learning_rate=rate)
    fake_run(tmp_path / "round-010/CartPole-v1/.2.copy.old", 2)
    assert len(find_runs([tmp_path])) == 4
    (tmp_path / "pbt.json").touch()
    runs = find_runs([tmp_path])
    assert runs == [tmp_path / f"round-010/CartPole-v1/member-{member:02}/{member + 1}" for member in (0, 1)]
    assert [run.path for run in read_runs(tmp_path)] == runs
    assert [*group_curves([read_curve(run) for run in runs])["CartPole-v1"]] == ["ppo, member=00", "ppo, member=01"]
    assert find_runs([tmp_path / "round-009"]) == [tmp_path / f"round-009/CartPole-v1/member-{one:02}/{one + 1}" for one in (0, 1)]
