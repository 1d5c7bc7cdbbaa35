"""The commands on what is there already: what they say, write and refuse."""

import pytest

from proximo.cli import main
from proximo.errors import FilesError
from tests.runs import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small run of CartPole."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert train(folder) == 0
    return folder


def test_drawing_that_fails_ends_watch_but_not_training(tmp_path, capsys):
    words = ("--env-id", "tests.test_evaluate:Unlucky-v0")
    assert train(tmp_path, *words, "--capture-video", "--total-timesteps", 64) == 0
    said = capsys.readouterr().err
    assert "no video: tests.test_evaluate:Unlucky-v0: render raised" in said and "done" in said
    assert main(["watch", str(tmp_path)]) == 3
    assert "render raised RuntimeError: the screen is on fire" in capsys.readouterr().err


def test_a_video_that_cannot_be_written_does_not_end_training(tmp_path, monkeypatch, capsys):
    """As where the disk is full, or ffmpeg dies."""
    def fail(frames, path):
        raise FilesError("the disk is full")

    monkeypatch.setattr("proximo.video.write_video", fail)
    assert train(tmp_path, "--capture-video", "--total-timesteps", 64) == 0
    assert "no video: the disk is full" in capsys.readouterr().err


def test_where_a_video_cannot_be_written_is_said(run, capsys):
    assert main(["watch", str(run), "--out", "/proc/x/y.mp4"]) == 5
    assert "the video /proc/x/y.mp4 cannot be written" in capsys.readouterr().err
