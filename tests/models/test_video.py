"""Videos, read back by ffmpeg: format, size, frames and failures."""

import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import numpy as np
import pytest
import torch
from imageio_ffmpeg import read_frames
from imageio_ffmpeg._utils import _get_ffmpeg_exe
from PIL import Image

from proximo.cli.main import main
from proximo.errors import FilesError, UsageError
from proximo.models.video import enlarge, write_video
from tests.support.full_disk import full_disk
from tests.support.runs import train


def ramp(count: int, height: int = 64, width: int = 64) -> Iterator[np.ndarray]:
    """Yield frames of rising brightness: frame k is grey 20 * k."""
    return (np.full((height, width, 3), 20 * k, np.uint8) for k in range(count))


def read_back(path: Path) -> tuple[dict, np.ndarray]:
    frames = read_frames(str(path))
    about = next(frames)
    width, height = about["size"]
    return about, np.array([np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in frames])


def test_browsers_can_play_the_video(tmp_path, capsys):
    """H.264, yuv420p, every frame with its brightness, and the index at the front of the file."""
    path = write_video(ramp(10), tmp_path / "new" / "a.mp4", fps=20)
    about, frames = read_back(path)
    assert about["codec"] == "h264" and about["pix_fmt"].startswith("yuv420p") and about["fps"] == 20
    assert frames.shape == (10, 256, 256, 3)
    np.testing.assert_allclose(frames.mean(axis=(1, 2, 3)), 20 * np.arange(10), atol=4)
    data = path.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")
    assert capsys.readouterr().err == "" and list(path.parent.iterdir()) == [path]


def test_a_gif_is_a_gif(tmp_path):
    """Every frame with its brightness, at the requested speed and at most 50 frames per second."""
    for fps, milliseconds in ((4, 250), (100, 20)):
        with Image.open(write_video(ramp(5), tmp_path / f"{fps}.gif", fps)) as picture:
            assert (picture.format, picture.n_frames, picture.size) == ("GIF", 5, (256, 256))
            for k in range(5):
                picture.seek(k)
                assert abs(np.asarray(picture.convert("RGB")).mean() - 20 * k) < 4
                assert picture.info["duration"] == milliseconds


@pytest.mark.parametrize("name", ["-a.mp4", "12:30/a.mp4", "100%d.gif"])
def test_the_name_is_no_option_protocol_or_pattern_of_ffmpeg(tmp_path, monkeypatch, name):
    """Relative to the current folder, as names in commands are."""
    monkeypatch.chdir(tmp_path)
    write_video(ramp(3), Path(name))
    assert [path.name for path in tmp_path.rglob("*.*") if path.is_file()] == [Path(name).name]


def test_watch_plays_at_the_speed_of_the_environment(tmp_path, capsys):
    """The metadata of FrozenLake says 4 frames per second."""
    assert train(tmp_path / "run", "--env-id", "FrozenLake-v1") == 0
    assert main(["watch", str(tmp_path / "run"), "--out", str(tmp_path / "a.mp4")]) == 0
    assert read_back(tmp_path / "a.mp4")[0]["fps"] == 4
    assert main(["watch", str(tmp_path / "run"), "--out", str(tmp_path / "a.gif")]) == 0
    with Image.open(tmp_path / "a.gif") as picture:
        assert picture.info["duration"] == 250
    assert main(["watch", str(tmp_path / "run"), "--out", str(tmp_path / "a.webm")]) == 2
    assert "a.webm is neither an .mp4 nor a .gif. Name the video a.mp4 or a.gif." in capsys.readouterr().err


@pytest.mark.parametrize(("name", "better"), [("a.avi", "a"), ("a", "a"), ("mp4", "mp4"), ("/", "video")])
def test_other_formats_are_refused(tmp_path, name, better):
    """Also a path without a name, for which pathlib raises ValueError."""
    with pytest.raises(UsageError, match=rf"neither an \.mp4 nor a \.gif. Name the video {better}\.mp4 or {better}\.gif"):
        write_video(ramp(1), tmp_path / name)


def test_tiny_and_odd_frames(tmp_path):
    """Whole factors keep pixels sharp; odd sides become even by repeating the last row or column."""
    frame = np.random.default_rng(0).integers(0, 256, (84, 84, 3), dtype=np.uint8)
    assert enlarge(frame).shape == (252, 252, 3)
    np.testing.assert_array_equal(enlarge(frame)[::3, ::3], frame)
    np.testing.assert_array_equal(enlarge(frame)[2::3, 2::3], frame)
    large = np.zeros((401, 603, 3), np.uint8)
    assert enlarge(large).shape == (402, 604, 3)
    _, frames = read_back(write_video(ramp(2, 401, 603), tmp_path / "odd.mp4"))
    assert frames.shape == (2, 402, 604, 3)


def test_a_black_video_is_reported(tmp_path, capsys):
    """A machine without a renderer gives black frames."""
    write_video(ramp(1), tmp_path / "black.mp4")
    assert "is black" in capsys.readouterr().err


def test_failures_leave_the_older_video_unchanged(tmp_path):
    """A frame of another shape or dtype, or no frame, is refused; no partial file stays."""
    path = tmp_path / "a.mp4"
    path.write_bytes(b"older")
    wrong = ([], [np.zeros((64, 64), np.uint8)], [np.zeros((64, 64, 3))], [*ramp(1), *ramp(1, 32, 32)])
    for frames in wrong:
        with pytest.raises(UsageError):
            write_video(frames, path)
    with full_disk(), pytest.raises(FilesError, match="a.mp4 could not be written"):
        write_video(ramp(3), path)
    assert path.read_bytes() == b"older" and list(tmp_path.iterdir()) == [path]


def test_sigterm_leaves_no_partial_file(tmp_path):
    """A process is terminated in the middle of a video."""
    program = ("import sys, time, numpy; from pathlib import Path; from proximo.models.video import write_video\n"
               "def frames():\n"
               "    while True:\n"
               "        yield numpy.zeros((64, 64, 3), numpy.uint8)\n"
               "        print('frame', flush=True)\n"
               "        time.sleep(0.05)\n"
               "write_video(frames(), Path(sys.argv[1]))\n")
    with Popen([sys.executable, "-c", program, str(tmp_path / "a.mp4")], stdout=PIPE, stderr=DEVNULL) as process:
        for _ in range(3):
            process.stdout.readline()
        unfinished, = tmp_path.iterdir()
        assert unfinished.match(".a.*.tmp.mp4")
        process.terminate()
    assert process.returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_without_the_package_the_command_is_named(tmp_path, monkeypatch):
    """None in sys.modules makes an import fail."""
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UsageError, match="pip install imageio-ffmpeg"):
        write_video(ramp(2), tmp_path / "a.mp4")


def with_ffmpeg(monkeypatch, at_third) -> Iterator[np.ndarray]:
    """Yield frames that leave bytes in the pipe's buffer, and call `at_third` with ffmpeg's process at the third."""
    started = []

    def start(*words, **options):
        started.append(Popen(*words, **options))
        return started[-1]

    monkeypatch.setattr("proximo.models.video.Popen", start)
    for k, frame in enumerate(ramp(6, 400, 602)):
        if k == 3:
            at_third(started[-1])
        yield frame


def test_ctrl_c_does_not_reach_ffmpeg(tmp_path, monkeypatch):
    """A terminal sends Ctrl-C to every process of the foreground group: ffmpeg must be in another group."""
    groups = []
    write_video(with_ffmpeg(monkeypatch, lambda ffmpeg: groups.append(os.getpgid(ffmpeg.pid))), tmp_path / "a.mp4")
    assert groups != [os.getpgid(0)] and read_back(tmp_path / "a.mp4")[1].shape[0] == 6


def test_a_killed_ffmpeg_is_reported(tmp_path, monkeypatch):
    """The message is neither an IndexError nor a broken pipe."""
    def kill(ffmpeg):
        ffmpeg.send_signal(signal.SIGKILL)
        ffmpeg.wait()

    with pytest.raises(FilesError, match="ffmpeg ended with status -9 without a message"):
        write_video(with_ffmpeg(monkeypatch, kill), tmp_path / "a.mp4")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    """Also if a file is in its place."""
    (tmp_path / "file").write_text("")
    for path in (Path("/proc/x/y.mp4"), tmp_path / "file" / "y.mp4"):
        with pytest.raises(FilesError, match="could not be written"):
            write_video(ramp(1), path)


@contextmanager
def few_files(left):
    """Only as many files can be opened."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before, 512), hard))
    held = []
    try:
        with suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        while len(held) and left:
            os.close(held.pop())
            left -= 1
        yield
    finally:
        for one in held:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


@pytest.mark.parametrize("left", range(6))
def test_too_few_open_files_are_named(tmp_path, left):
    """It was said that there is no ffmpeg, also by later calls: imageio-ffmpeg remembers it."""
    frames = ramp(2)
    _get_ffmpeg_exe.cache_clear()
    with few_files(left), pytest.raises(FilesError, match=r"Too many open files.*Raise the limit of open files \(ulimit -n\)"):
        write_video(frames, tmp_path / "a.mp4")
    assert write_video(ramp(2), tmp_path / "a.mp4").exists()


class OnGpu:
    def __array__(self, *_, **__):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


def test_frames_may_be_tensors_or_pictures(tmp_path):
    """Simulators of batches return tensors. They ended training with a traceback."""
    grey = np.full((64, 64, 3), 200, np.uint8)
    for frame in (torch.from_numpy(grey), Image.fromarray(grey), grey.tolist()):
        frames = [frame] if not isinstance(frame, list) else [np.array(frame, np.uint8)]
        assert abs(read_back(write_video(frames, tmp_path / "a.mp4"))[1].mean() - 200) < 4
    for frame, match in ((np.zeros((0, 0, 3), np.uint8), "of shape \\(0, 0, 3\\)"), (OnGpu(), "is no array .can't convert cuda")):
        with pytest.raises(UsageError, match=match):
            write_video([frame], tmp_path / "b.mp4")
