"""Where the time of an iteration goes: environments, acting, evaluation, learning, logging.

Nothing in the loop measures. The environments and the loss, which are passed to it, note when they are called.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import wraps
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from proximo.catalog import Parts
from proximo.config import Config
from proximo.errors import FilesError, ProximoError
from proximo.runs.clock import Clock
from proximo.runs.folder.run import Run
from proximo.runs.folder.writing import reason
from proximo.runs.interrupts.recent import Content, seconds_between
from proximo.runs.logs.log import Log
from proximo.runs.timing import Recorder, timed
from proximo.runs.watcher import save


class Shares(NamedTuple):
    """Seconds of one iteration, by part, and the speed."""

    seconds: dict[str, float]
    steps: int  # of one iteration
    sps: float  # environment steps per second of training, without set-up
    setup_seconds: float  # set-up and compilation

    def share(self, part: str) -> float:
        """Return the share of a part, 0 for one that there is not."""
        return self.seconds.get(part, 0.0) / sum(self.seconds.values())


def timed_loss(loss_fn: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    """Return a loss that tells a recorder when it is called for the first time."""
    @wraps(loss_fn)
    def loss(*args: Any) -> Any:
        recorder.learning = recorder.learning or perf_counter()
        return loss_fn(*args)

    return loss


def measure_shares(cfg: Config, variant: str, parts: Parts, loss_fn: Callable[..., Any], iterations: int) -> Shares:
    """Train for a few iterations in a temporary folder and measure them; the first, which sets up, does not count.

    Args:
        cfg: The configuration, resolved.
        variant: Its name.
        parts: What trains.
        loss_fn: The loss of the framework.
        iterations: How many are measured.

    Returns:
        Means over the iterations, without --overlap. A checkpoint is written once, and counts as often as a run
        writes one.
    """
    cfg = replace(cfg, logger="none", track=False, overlap=False,
                  total_timesteps=(iterations + 1) * cfg.batch_size)  # JAX would train further ones in the same call
    recorder, total = Recorder(), dict[str, float]()
    clock = Clock()

    with temporary_folder() as place:
        run = Run(folder=place, cfg=cfg, variant=variant)
        training = parts.train(cfg, timed(parts.make_envs, recorder), parts.make_agent,
                               loss_fn=timed_loss(loss_fn, recorder))
        with closing(training), closing(Log(run)) as log:
            began = perf_counter()
            for it in training:
                ended = perf_counter()
                found = recorder.parts(began, ended)
                log.iteration(it.iteration, it.steps, it.stats, it.finished)
                found["logging"] = perf_counter() - ended
                clock.count_iteration(it.steps)
                if it.iteration > 1:
                    total = {part: total.get(part, 0.0) + seconds for part, seconds in found.items()}
                if it.iteration > iterations:
                    began = perf_counter()
                    save(run, Content(it, log.state()), None)
                    saving = perf_counter() - began
                    break
                began = perf_counter()
    seconds = {part: one / iterations for part, one in total.items()}
    due = cfg.checkpoint_every * sum(seconds.values())  # seconds between two that are due
    fewer = max(1, ceil(seconds_between(saving) / due)) if cfg.keep_checkpoints else 1
    seconds["checkpoints"] = saving / cfg.checkpoint_every / fewer
    return Shares(seconds=seconds, steps=cfg.batch_size, sps=cfg.batch_size / sum(seconds.values()),
                  setup_seconds=clock.compile_seconds or 0.0)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Give a temporary folder.

    Raises:
        FilesError: Its files cannot be written. The messages of a run would advise to resume it.
    """
    place = ""
    try:
        with tempfile.TemporaryDirectory() as place:
            yield Path(place)
    except OSError as error:
        if isinstance(error, ProximoError) and place not in str(error):
            raise
        raise FilesError(f"Temporary files could not be written ({reason(error.__cause__ or error)}). Free disk space, "
                         "or set TMPDIR to another folder.") from error

