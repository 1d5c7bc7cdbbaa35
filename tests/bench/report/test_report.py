"""Numbers of a report against the runs that it shows, and the page in a real browser."""

import csv
import errno
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

from proximo.bench.report.ablations import find_ablations
from proximo.bench.report.curves import common_curves, rolling_curve
from proximo.bench.report.main import report
from proximo.bench.report.page import Section, markdown
from proximo.bench.report.pictures import curves_picture, profiles_picture
from proximo.bench.report.published import Published
from proximo.bench.report.tables import compare_to_published, evaluations_table
from proximo.bench.results import group_runs, read_runs
from proximo.bench.runner import bench
from proximo.bench.task import Where
from proximo.bench.text import number_text, steps_text
from proximo.errors import FilesError, UsageError
from tests.support.fake_trainer import FAKE, FakePlace
from tests.support.full_disk import bytes_below
from tests.support.run_folders import RunFolder

pytest.importorskip("rliable")
pytest.importorskip("matplotlib")

SET = """
title = "Two & a half <tasks>"
seeds = 3
evaluate = true
[[run]]
variant = "ppo"
env_ids = ["CartPole-v1", "Endless-v0"]
steps = 500_000
[[run]]
variant = "ppo_atari"
env_ids = ["PongNoFrameskip-v4"]
steps = 10_000_000
[[run]]
variant = "ppo_atari"
env_ids = ["PongNoFrameskip-v4"]
steps = 10_000_000
overrides = {gae_lambda = 0.9}
"""


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Run a benchmark of the fake trainer, with an ablation and a failed seed, and write its report."""
    place = tmp_path_factory.mktemp("report")
    (place / "set.toml").write_text(SET)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_FAIL", "3")
        patch.setattr("proximo.bench.runner.open_place", lambda where, folder: FakePlace())
        where = Where(workers=24)  # all of them
        assert bench(place / "set.toml", where=where, out=place / "out", ablate=["anneal_lr"], command=FAKE) == 1
    report(place / "out")
    return place / "out"


@pytest.fixture(scope="module")
def html(out):
    return (out / "report.html").read_text()


def test_numbers_of_the_table_are_those_of_the_runs(out):
    """report.csv against numpy on the summaries: mean, population deviation, evaluation, speed."""
    rows = {(row["env_id"], row["run"]): row for row in csv.DictReader((out / "report.csv").read_text().splitlines())}
    means = [json.loads((out / "CartPole-v1" / "ppo" / seed / "summary.json").read_text())["episodic_return_mean"]
             for seed in "12"]
    row = rows["CartPole-v1", "ppo"]
    assert float(row["mean"]) == pytest.approx(np.mean(means))
    assert float(row["std"]) == pytest.approx(np.std(means))
    assert float(row["evaluation_mean"]) == pytest.approx(np.mean(means))
    assert row["seeds"] == "2" and float(row["sps"]) == 1000
    assert "cleanrl ppo: below" in row["verdicts"]
    assert rows["Endless-v0", "ppo"]["mean"] == ""
    assert ("PongNoFrameskip-v4", "ppo_atari-gae_lambda=0.9") in rows


def test_the_page_has_every_section(html):
    """Failed runs with their last lines, silent environments, published values, ablation, settings, versions."""
    for part in ("Two &amp; a half &lt;tasks&gt;", "No episode ended in Endless-v0", "490.04 ± 6.12", 'below">below<',
                 "the loss is not finite at iteration 1", "Effect of each implementation detail",
                 "anneal_lr linear to none",
                 "Hyper-parameters that differ", "gae_lambda", "Human-normalised scores", "Badia et al.",
                 "Probability of improvement", "Welch", "numpy", "Machine: cpu"):
        assert part in html
    assert html.count("<figure>") == 5  # ablation, two environments' curves, human-normalised, profiles


def test_the_page_needs_no_other_file(html):
    """The page has no address that a browser would fetch."""
    class Addresses(HTMLParser):
        found: list = []

        def handle_starttag(self, tag, attrs):
            self.found += [value for name, value in attrs if name in ("src", "href") and tag != "a"]
    parser = Addresses()
    parser.feed(html)
    assert parser.found and all(address.startswith("data:") for address in parser.found)
    assert "@import" not in html and "url(" not in html


def test_the_same_runs_give_the_same_page(out, html, tmp_path):
    """Intervals and figures included."""
    again = report(out, tmp_path / "again.html")
    assert again == tmp_path / "again.html" and again.read_text() == html
    assert {path.name for path in tmp_path.iterdir()} == {"again.html", "again.md", "again.csv"}


def test_markdown_has_the_same_tables(out):
    """Each row has as many cells as the head."""
    lines = (out / "report.md").read_text().splitlines()
    assert "## Results" in lines and any("490.04 ± 6.12" in line for line in lines)
    widths = [line.count("|") for line in lines[lines.index("## Results"):] if line.startswith("| CartPole")]
    assert widths[0] == 11


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_the_page_opens_in_a_browser_and_its_pictures_are_drawn(out, tmp_path):
    """In headless Chromium without network, every figure has a size and the screenshot is not empty."""
    page = (out / "report.html").read_text().replace("</body>", "<script>addEventListener('load',()=>{document.title="
                                                     "[...document.images].map(i=>i.naturalWidth).join()})</script></body>")
    (tmp_path / "page.html").write_text(page)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update", f"--user-data-dir={tmp_path / 'user'}",
             "--window-size=1280,2400", f"--screenshot={tmp_path / 'page.png'}"]
    subprocess.run(["chromium", *flags, f"file://{tmp_path}/page.html"], check=True, timeout=60, capture_output=True)
    dom = subprocess.run(["chromium", *flags[:-1], "--dump-dom", f"file://{tmp_path}/page.html"], check=True,
                         timeout=60, capture_output=True, text=True).stdout
    widths = dom.split("<title>")[1].split("</title>")[0].split(",")
    assert len(widths) == 5 and all(int(width) > 500 for width in widths)
    import matplotlib.image
    pixels = matplotlib.image.imread(tmp_path / "page.png")
    assert pixels.shape[:2] == (2400, 1280) and (pixels[..., :3].min(2) < 0.5).mean() > 0.01


def test_ablations_are_paired_by_seed(out):
    """The fake trainer loses 50 points at its end without annealing; the score averages over its last 100 episodes."""
    found = find_ablations(group_runs(read_runs(out)))
    assert [(one.env_id, one.base, one.detail, one.pairs) for one in found] == [
        ("CartPole-v1", "ppo", "anneal_lr", 2),
        ("PongNoFrameskip-v4", "ppo_atari", "anneal_lr", 2),
        ("PongNoFrameskip-v4", "ppo_atari-gae_lambda=0.9", "anneal_lr", 2)]
    assert all(one.difference.value == pytest.approx(-50 * np.mean(np.arange(11, 21) / 20)) for one in found)


def test_rolling_curves_are_means_of_the_last_100_episodes(out):
    """Against a plain loop over episodes.csv."""
    run = read_runs(out)[0]
    assert run.env_id == "CartPole-v1"
    returns = [float(row["return"]) for row in csv.DictReader((run.path / "episodes.csv").read_text().splitlines())]
    steps, curve = rolling_curve(run, "step")
    assert len(steps) == 200
    assert np.allclose(curve, [np.mean(returns[max(0, k - 99):k + 1]) for k in range(200)])
    x, curves = common_curves(group_runs(read_runs(out))["CartPole-v1", "ppo"], "seconds")
    assert curves.shape == (2, 100) and x[0] < x[-1] == pytest.approx(475)  # 500 s less the first iteration


def test_set_up_does_not_count_as_wall_time(out, tmp_path):
    """The first iterations of two runs end after 25 and 900 seconds: without set-up their curves overlap."""
    runs = group_runs(read_runs(out))["CartPole-v1", "ppo"]
    late = tmp_path / "late"
    late.mkdir()
    for name, column in (("metrics.csv", 2), ("episodes.csv", 4)):
        lines = [line.split(",") for line in (runs[1].path / name).read_text().splitlines()]
        for line in lines[1:]:
            line[column] = str(float(line[column]) + 875)
        (late / name).write_text("".join(",".join(line) + "\n" for line in lines))
    runs = [runs[0], runs[1]._replace(path=late)]
    x, curves = common_curves(runs, "seconds")
    assert (x[0], x[-1]) == (0, 475)
    assert curves.shape == (2, 100)
    assert "wall time" in curves_picture("CartPole-v1", {"ppo": runs})


def test_a_panel_without_a_common_range_is_left_out(out, tmp_path):
    """All episodes of the run ended in its first iteration, so there is no wall time to draw."""
    runs = group_runs(read_runs(out))["CartPole-v1", "ppo"]
    (tmp_path / "metrics.csv").write_text("iteration,global_step,seconds\n1,500000,600\n")
    (tmp_path / "episodes.csv").write_text((runs[0].path / "episodes.csv").read_text())
    svg = curves_picture("my.module:CartPole-v1", {"ppo": [runs[0]._replace(path=tmp_path)]})
    assert "environment steps" in svg
    assert "wall time" not in svg
    assert "my.module" not in svg


def test_a_group_without_a_common_range_is_named(out, tmp_path):
    """All of its episodes ended at the same step, so it has no curve beside that of the other group."""
    runs = group_runs(read_runs(out))["CartPole-v1", "ppo"]
    (tmp_path / "episodes.csv").write_text("step,row,return,length,seconds\n10,0,1,10,1\n10,1,2,10,1\n")
    svg = curves_picture("CartPole-v1", {"ppo": runs, "short": [runs[0]._replace(path=tmp_path)]})
    assert "short: its runs have no range in common</text>" in svg


def test_an_environment_without_a_picture_is_named(tmp_path):
    """All episodes of its run ended at the same step. An environment in which no episode ended is named elsewhere."""
    RunFolder(tmp_path / "a").grow(1).finish()
    (tmp_path / "a" / "summary.json").write_text('{"steps": 100, "episodic_return_mean": 2.0}')
    RunFolder(tmp_path / "b", env_id="Endless-v0").finish()
    text = report(tmp_path).with_suffix(".md").read_text()
    assert "CartPole-v1 has no picture: in no group do all runs have a range of steps in common." in text
    assert "Endless-v0 has no picture" not in text


def test_a_group_has_the_same_colour_in_every_picture(out, tmp_path, monkeypatch):
    """Also where an environment lacks the group before it."""
    figures = []
    monkeypatch.setattr("proximo.bench.report.pictures._svg", lambda figure: figures.append(figure) or "<svg/>")
    for env_id, labels in (("A-v0", ("a", "b")), ("B-v0", ("b", "c"))):
        for label in labels:
            shutil.copytree(next(run.path for run in read_runs(out) if run.env_id == "CartPole-v1" and run.label == "ppo"),
                            folder := tmp_path / "runs" / env_id / label / "1")
            record = json.loads((folder / "config.json").read_text())
            record["config"] |= {"env_id": env_id, "run_dir": str(folder), "gamma": 0.5 + ord(label) / 1000}
            (folder / "config.json").write_text(json.dumps(record))
    report(tmp_path / "runs", tmp_path)
    colors = [{line.get_label().split()[0]: line.get_color() for line in figure.axes[0].lines if line.get_label()[0] != "_"}
              for figure in figures if len(figure.axes[0].lines) and figure.axes[0].get_xlabel() == "environment steps"]
    (shared,) = {*colors[0]} & {*colors[1]}
    assert colors[0][shared] == colors[1][shared] and [len({*one.values()}) for one in colors] == [2, 2]


@pytest.mark.parametrize("label", ["_base", "$x_^$"])
def test_a_label_is_drawn_as_it_is(label, out):
    """Matplotlib takes two `$` for a formula, and hides labels that begin with `_`."""
    runs = [run for run in read_runs(out) if run.env_id == "CartPole-v1" and run.label == "ppo"]
    profile = dict.fromkeys(("value", "low", "high"), np.array([1.0, 0.0]))
    for svg in (curves_picture("CartPole-v1", {label: runs}),
                profiles_picture({label: profile}, np.array([0.0, 1.0]), "as they are")):
        assert re.search(rf"{re.escape(label)}( \(\d seeds\))?</text>", svg)


def test_many_names_leave_the_panel_its_size():
    """The pictures of 2 and of 30 settings differ in height, by the names below the panel."""
    def sizes(count):
        profile = dict.fromkeys(("value", "low", "high"), np.array([1.0, 0.0]))
        svg = profiles_picture({f"setting {k}": profile for k in range(count)}, np.array([0.0, 1.0]), "as they are")
        height = float(re.search(r'height="([0-9.]+)pt"', svg)[1])
        panel = [float(y) for _, y in re.findall(r"([0-9.]+) ([0-9.]+)", svg.partition('id="patch_2"')[2][:300])]
        return height, max(panel) - min(panel)

    (low, few), (high, many) = sizes(2), sizes(30)
    assert high > low + 50 and many > 0.9 * few > 100


def test_headings_of_the_markdown_have_no_html():
    assert "<b>" not in markdown("<b>", [Section("Comparison of <b>", ["text"])])


@pytest.mark.parametrize("name,shown", [
    ("a_b", "a_b"), ("_a_ b", r"\_a\_ b"), ("__a__", r"\_\_a\_\_"), ("a*b*", r"a\*b\*"), ("~~a~~ `b`", r"\~\~a\~\~ \`b\`"),
    ("cost=$1$", "cost=<span>$</span>1<span>$</span>"), (r"\_a_", r"\\\_a\_"), (r"C:\a", r"C:\a"), ("[a](b)", r"[a]\(b)")])
def test_names_have_no_style_in_the_markdown(name, shown):
    """Neither formulas nor emphasis, code or links, as GitHub finds them; `_` inside a word is none."""
    assert markdown("t", [Section("s", [name])]) == f"# t\n\n## s\n\n{shown}\n"


def test_results_are_filed_under_the_id_that_was_played(tmp_path):
    """A benchmark file names a retired id; config.json has the id that was played."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "config.json").write_text(json.dumps({"variant": "ppo", "config": {"env_id": "Taxi-v4"}}))
    (tmp_path / "1.job.json").write_text(json.dumps({"env_id": "Taxi-v3", "variant": "ppo", "label": "ppo", "seed": 1}))
    assert [run.env_id for run in read_runs(tmp_path)] == ["Taxi-v4"]


def test_a_file_cut_short_by_a_kill_is_read_as_far_as_it_goes(out, tmp_path):
    """The last line of episodes.csv is incomplete; then the file is empty, then missing."""
    run = read_runs(out)[0]
    text = (run.path / "episodes.csv").read_text()
    (tmp_path / "episodes.csv").write_text(text[:len(text) // 2].rstrip() + "\n12")
    cut = run._replace(path=tmp_path)
    assert 80 < len(rolling_curve(cut, "step")[0]) < 120
    (tmp_path / "episodes.csv").write_text("")
    assert len(rolling_curve(cut, "step")[0]) == 0
    (tmp_path / "episodes.csv").unlink()
    assert common_curves([cut], "step")[0].size == 0


def test_verdicts_only_where_the_same_thing_was_measured(out):
    """One published number, changed in one respect at a time: each change is given as the reason for no verdict."""
    runs = group_runs(read_runs(out))["CartPole-v1", "ppo"]
    row = Published("ppo", "CartPole-v1", "CartPole-v1", "somebody", "episodic_return", 490.04, 6.12, 500_000, 3, "",
                    "training", "", "somewhere")
    assert compare_to_published(runs, row).word == "below"
    for change, reason in (({"steps": 8_000_000}, "8M steps"), ({"published_env_id": "CartPole-v0"}, "CartPole-v0"),
                           ({"differs": "MuJoCo 2 against 3"}, "MuJoCo 2 against 3"), ({"std": None}, "deviation"),
                           ({"protocol": "evaluation"}, "evaluation"), ({"seeds": 1}, "one seed was"),
                           ({"setting": "easy"}, "published for easy")):
        found = compare_to_published(runs, row._replace(**change))
        assert found.word == "" and reason in found.reason
    easy = [run._replace(config=run.config | {"distribution_mode": "easy"}) for run in runs]
    assert compare_to_published(easy, row._replace(setting="easy")).word == "below"
    silent = group_runs(read_runs(out))["Endless-v0", "ppo"]
    assert compare_to_published(silent, row).reason == "no episode ended in our runs"
    atari = group_runs(read_runs(out))["PongNoFrameskip-v4", "ppo_atari"]
    pong = row._replace(variant="ppo_atari", steps=10_000_000)
    assert compare_to_published(atari, pong).word
    changed = [run._replace(config=run.config | {"frame_skip": 1}) for run in atari]
    assert compare_to_published(changed, pong).reason == "another environment: frame_skip=1"


def test_published_evaluations_are_compared_with_the_interval_of_ours(out):
    """The zoo's 500 of CartPole-v1 against evaluations that are moved to lie above, around and below it."""
    runs = group_runs(read_runs(out))["CartPole-v1", "ppo"]
    for shift, steps, word in ((10, 100_000, "above"), (0, 100_000, "within"), (-10, 100_000, "below"), (-10, 4_000, "no verdict")):
        moved = [run._replace(evaluation={"episodic_return_mean": 500 + shift + k}, summary={},
                              config=run.config | {"total_timesteps": steps}) for run, k in zip(runs, (-1, 0, 1))]
        rows = [dict(zip(table.head, row)) for table in [evaluations_table({("CartPole-v1", "ppo"): moved})]
                for row in table.rows]
        assert [row["verdict"] for row in rows if row["published by"] == "rl-zoo ppo"] == [word]
    assert evaluations_table({("CartPole-v1", "ppo"): runs[:1]}).rows == []  # one seed has no interval


def test_folders_without_runs_are_refused(tmp_path):
    """A folder that does not exist, and an empty one."""
    with pytest.raises(UsageError, match="is not a folder"):
        report(tmp_path / "none")
    with pytest.raises(UsageError, match="contains no runs"):
        report(tmp_path)


def test_a_single_unfinished_run_makes_a_page(tmp_path):
    """A run without a benchmark and without a summary."""
    run_dir = tmp_path / "CartPole-v1__ppo__1"
    run_dir.mkdir()
    (run_dir / "config.json").write_text(json.dumps({"variant": "ppo", "config": {"env_id": "CartPole-v1", "seed": 1}}))
    assert "Not finished: CartPole-v1__ppo__1." in report(tmp_path).read_text()


def test_a_folder_whose_name_is_no_text(tmp_path):
    """Such as one in Latin-1, which another system has written."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    RunFolder(folder / os.fsdecode(b"\xe9")).grow(3).finish()
    page = report(folder)
    assert "Runs in caf\\udce9" in page.read_text() and page.with_suffix(".csv").exists()


def test_formats_of_numbers():
    """Thousands, millions, and missing numbers."""
    assert [steps_text(n) for n in (500, 128_000, 500_000, 8_000_000)] == ["500", "128k", "500k", "8M"]
    assert [number_text(x) for x in (1234.5, None, float("nan"))] == ["1,234.50", "-", "-"]
    assert [number_text(x) for x in (0.00312345, -0.00125, 0.1, 0.0, 1e-17)] == ["0.00312", "-0.00125", "0.10", "0.00", "0.00"]


@pytest.mark.parametrize("at", ["page", "_write_csv"])
def test_a_full_disk_leaves_the_older_report(at, out, tmp_path, monkeypatch):
    """All three files, also where the disk becomes full at the last one."""
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    report(out, tmp_path)
    before = bytes_below(tmp_path)
    assert {*before} == {"report.html", "report.md", "report.csv"}
    monkeypatch.setattr(f"proximo.bench.report.main.{at}", full)
    with pytest.raises(FilesError, match=r"could not be written \(No space left on device\). Free disk space, or choose another"):
        report(out, tmp_path)
    assert bytes_below(tmp_path) == before


def test_failed_seeds_are_said_where_the_numbers_of_the_others_are(out, html):
    """The third seed of each environment failed."""
    row = next(csv.DictReader((out / "report.csv").read_text().splitlines()))
    assert (row["seeds"], row["runs"], row["failed"], row["unfinished"]) == ("2", "2", "1", "0")
    assert "2 of 3 (1 failed)" in html and f"Failed: 1 run in {row['env_id']} ({row['run']})" in html


def test_runs_without_settings_are_no_repeats_of_each_other(tmp_path):
    """Seed and variant are those of summary.json where config.json is damaged."""
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / "config.json").write_text("{")
        (folder / "summary.json").write_text(json.dumps({"variant": "ppo", "env_id": "CartPole-v1", "seed": seed, "steps": 10}))
    assert [(run.variant, run.seed) for run in read_runs(tmp_path)] == [("ppo", 1), ("ppo", 2)]


def test_the_lines_of_a_picture_with_many_settings_have_different_colours(tmp_path, monkeypatch):
    """Twenty of sixty are drawn. Numbered among all sixty, several had one colour."""
    from proximo.bench.report import pictures as report_pictures

    for k in range(60):
        run = RunFolder(tmp_path / f"member-{k:02}" / "1").grow(3)
        (run.folder.parent / "1.job.json").write_text(json.dumps({"label": f"member-{k:02}", "env_id": "CartPole-v1", "seed": 1}))
        (run.folder / "summary.json").write_text(json.dumps({"steps": 300, "episodic_return_mean": float(k % 7), "sps": 1.0}))
    drawn, draw = [], report_pictures._draw_curves
    monkeypatch.setattr(report_pictures, "_draw_curves", lambda *given: drawn.append(given[-1]) or draw(*given))
    report(tmp_path)
    assert len(drawn[0]) == len({*drawn[0].values()}) == 20
