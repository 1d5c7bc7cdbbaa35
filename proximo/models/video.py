"""Write frames as a video: MP4 (H.264, yuv420p, as browsers play it) or GIF, by the ffmpeg of imageio-ffmpeg."""

from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from os import devnull
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from proximo.errors import FilesError, UsageError, first_line, warn
from proximo.runs.folder.writing import whole_file
from proximo.runs.interrupts.sigterm import interrupt_on_sigterm

SMALLEST_SIDE = 240
FASTEST_GIF = 50  # frames per second; browsers slow a GIF with shorter frames down to 10
CODECS = {
    ".mp4": ["-c:v", "libx264", "-crf", "20", "-pix_fmt", "yuv420p", "-movflags", "+faststart"],
    # One palette for each frame: a common palette would need all frames in memory.
    ".gif": ["-vf", "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1"],
}


def enlarge(frame: np.ndarray) -> np.ndarray:
    """Enlarge tiny frames by a whole factor, and make both sides even, as H.264 requires.

    Args:
        frame: (H, W, 3) uint8.

    Returns:
        (H', W', 3) uint8, the smaller side about SMALLEST_SIDE pixels or more; the last row or column may be repeated.
    """
    factor = max(1, round(SMALLEST_SIDE / min(frame.shape[:2])))
    if factor > 1:
        frame = frame.repeat(factor, axis=0).repeat(factor, axis=1)
    height, width = frame.shape[:2]
    odd = height % 2 or width % 2
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge") if odd else frame


def check_format(path: Path) -> None:
    """Raise UsageError unless the name ends in .mp4 or .gif."""
    if path.suffix.lower() not in CODECS:
        name = path.stem or "video"
        raise UsageError(f"{path} is neither an .mp4 nor a .gif. Name the video {name}.mp4 or {name}.gif.")


def write_video(frames: Iterable[np.ndarray], path: Path, fps: float = 30.0) -> Path:
    """Write frames as they come, so that a long game needs no memory.

    The video appears under its name only when it is complete. An exception, Ctrl-C or SIGTERM leaves an older video
    unchanged and no partial file.

    Args:
        frames: (H, W, 3) uint8 each, all of the same shape.
        path: A name that ends in .mp4 or .gif.
        fps: Frames per second.

    Returns:
        `path`.

    Raises:
        UsageError: The name has another ending, imageio-ffmpeg is missing, there is no frame, or a frame
            has another shape or dtype.
        FilesError: `path` cannot be written.
    """
    check_format(path)
    with interrupt_on_sigterm():
        frames = iter(frames)
        first = next(frames, None)
        if first is None:
            raise UsageError(f"there is no frame to write to {path}: the environment renders nothing")
        with whole_file(path) as beside:
            brightest = _encode(chain([first], frames), path, beside, fps)
    if brightest == 0:
        warn(f"every frame in {path} is black; `proximo doctor` checks how this machine renders")
    return path


def _encode(frames: Iterable[np.ndarray], path: Path, part: Path, fps: float) -> int:
    """Pass frames to one ffmpeg process and return the brightest value.

    ffmpeg runs in its own session: Ctrl-C in a terminal must reach Proximo only, which then decides.

    Raises:
        FilesError: ffmpeg has failed, with the first line of its message.
    """
    frames = iter(frames)
    first = _checked(next(frames), None, path)
    height, width = enlarge(first).shape[:2]
    fps = min(fps, FASTEST_GIF) if path.suffix.lower() == ".gif" else fps
    command = [_ffmpeg(), "-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}",
               "-r", str(fps), "-i", "-", "-an", *CODECS[path.suffix.lower()],
               str(part.absolute())]  # of a relative path, ffmpeg takes `-a` for an option and `a:` for a protocol
    brightest = 0
    with TemporaryFile() as messages, Popen(command, stdin=PIPE, stdout=DEVNULL, stderr=messages,
                                            start_new_session=True) as process:
        assert process.stdin is not None
        try:
            for frame in (_checked(frame, first.shape, path) for frame in chain([first], frames)):
                brightest = max(brightest, int(frame.max()))
                process.stdin.write(enlarge(frame).tobytes())
            process.stdin.close()
        except BrokenPipeError:  # ffmpeg has ended; its exit status and message say why
            with suppress(BrokenPipeError):  # closing writes what the buffer still holds
                process.stdin.close()
        except BaseException:
            process.kill()
            raise
        if status := process.wait():
            messages.seek(0)
            text = messages.read().decode(errors="replace").strip()
            said = text.splitlines()[0] if text else f"ffmpeg ended with status {status} without a message"
            raise FilesError(f"{path} could not be written ({said}). Check the disk, or choose another place.")
    return brightest


def _ffmpeg() -> str:
    try:
        from imageio_ffmpeg import get_ffmpeg_exe
    except ImportError:
        raise UsageError("videos need ffmpeg: pip install imageio-ffmpeg") from None
    with open(devnull), open(devnull), open(devnull):  # as many files as a first start of ffmpeg opens
        pass  # an error says so; get_ffmpeg_exe would say, and remember, that there is no ffmpeg
    return get_ffmpeg_exe()


def _checked(frame: Any, shape: tuple[int, ...] | None, path: Path) -> np.ndarray:
    """Return a frame as an array; UsageError if it is none, has no pixels, or has not `shape` (None: any)."""
    try:
        frame = np.asarray(frame)
    except Exception as error:  # for example of a tensor on a GPU
        raise UsageError(f"a frame for {path} is no array ({first_line(error)}). Frames must be uint8 (H, W, 3), all "
                         "of the same shape.") from error
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or 0 in frame.shape or \
            frame.shape != (shape or frame.shape):
        raise UsageError(f"a frame for {path} is {frame.dtype} of shape {frame.shape}. Frames must be uint8 (H, W, 3), "
                         "all of the same shape.")
    return frame
