"""Frames to an mp4 that browsers play (H.264, yuv420p), by the ffmpeg inside imageio-ffmpeg, not the system's."""

from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryFile

import numpy as np

from proximo.errors import FilesError, UsageError, notify

SMALLEST_SIDE = 240


def enlarged(frame: np.ndarray) -> np.ndarray:
    """(H, W, 3) uint8: tiny frames grown by a whole factor to about SMALLEST_SIDE pixels, sides made even (H.264 halves
    the colours) by repeating the last row or column."""
    factor = max(1, round(SMALLEST_SIDE / min(frame.shape[:2])))
    frame = frame.repeat(factor, axis=0).repeat(factor, axis=1)
    height, width = frame.shape[:2]
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


def write_video(frames: Iterable[np.ndarray], path: Path, fps: float = 30.0) -> Path:
    """Writes (H, W, 3) uint8 frames of equal size as they come, so a long game needs no memory; returns `path`.

    Raises UsageError without imageio-ffmpeg, without a frame or with a frame of another shape, FilesError where `path`
    cannot be written; then an older file under that name stays as it was. A video that is black throughout is said.
    """
    frames = iter(frames)
    first = next(frames, None)
    if first is None:
        raise UsageError(f"no frame to write to {path}: the environment renders nothing")
    _check(first, np.shape(first), path)
    part = path.with_suffix(".part.mp4")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        brightest = _encode(chain([first], frames), first.shape, path, part, fps)
        part.replace(path)
    except OSError as error:
        raise FilesError(f"the video {path} cannot be written: {error}") from error
    finally:
        with suppress(OSError):
            part.unlink()
    if brightest == 0:
        notify(f"every picture in {path} is black; `proximo doctor` checks how this machine renders")
    return path


def _encode(frames: Iterable[np.ndarray], shape: tuple[int, ...], path: Path, part: Path, fps: float) -> int:
    """Feeds one ffmpeg process; returns the brightest value seen. Raises OSError with ffmpeg's own words.

    It runs in a session of its own: Ctrl-C is for Proximo, which ends it or lets the video become whole.
    """
    height, width = enlarged(np.zeros(shape, np.uint8)).shape[:2]
    command = [_ffmpeg(), "-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}",
               "-r", str(fps), "-i", "-", "-an", "-c:v", "libx264", "-crf", "20", "-pix_fmt", "yuv420p",
               "-movflags", "+faststart", str(part)]
    brightest = 0
    with TemporaryFile() as words, Popen(command, stdin=PIPE, stdout=DEVNULL, stderr=words,
                                         start_new_session=True) as process:
        try:
            for frame in frames:
                _check(frame, shape, path)
                brightest = max(brightest, int(frame.max()))
                process.stdin.write(enlarged(frame).tobytes())
            process.stdin.close()
        except BrokenPipeError:  # ffmpeg gave up; its exit status and words say why
            with suppress(BrokenPipeError):  # what is left in the buffer would break the pipe again
                process.stdin.close()
        except BaseException:
            process.kill()
            raise
        if status := process.wait():
            words.seek(0)
            said = words.read().decode(errors="replace").strip() or f"ffmpeg ended with status {status} and no word"
            raise OSError(said.splitlines()[0])
    return brightest


def _ffmpeg() -> str:
    try:
        from imageio_ffmpeg import get_ffmpeg_exe
    except ImportError:
        raise UsageError("videos need ffmpeg; pip install imageio-ffmpeg") from None
    return get_ffmpeg_exe()


def _check(frame: np.ndarray, shape: tuple[int, ...], path: Path) -> None:
    frame = np.asarray(frame)
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or frame.shape != shape:
        raise UsageError(f"a frame for {path} is {frame.dtype} of shape {frame.shape}; wanted is uint8 (H, W, 3), the "
                         f"same for every frame")
