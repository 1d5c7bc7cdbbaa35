"""What happens around training: the log, checkpoints, videos and signals. Only the first process writes."""

import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from proximo.errors import warn
from proximo.facts import fixed_on_resume
from proximo.processes import world_from_environment
from proximo.runs.callbacks import run_callbacks
from proximo.runs.checkpoint import save_checkpoint
from proximo.runs.csv_file import files_of
from proximo.runs.evaluation import save_latest_model
from proximo.runs.log import Log
from proximo.runs.own_parts import NO_OWN_PARTS, OwnParts
from proximo.runs.run import Run, versions, write_json
from proximo.types import Iteration


class Signals:
    """While entered, SIGINT and SIGTERM request an end after the current iteration; a second one ends at once."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():  # Python delivers signals to this thread only
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = number
        again = "press Ctrl-C again" if number == signal.SIGINT else "send the signal again"
        with suppress(RuntimeError):  # the interrupted code was writing to the same stream
            warn(f"Stopping after this iteration; {again} to stop now.")


class Watcher:
    """Logs one run and saves its checkpoints, models and videos.

    Nothing is written before the first iteration has ended, so that a resume that fails leaves the run as it was.

    Args:
        run: The run; its folder is absolute, because an environment may change the current one.
        own: Its parts, which record videos and evaluate; and the callbacks.
        checkpoint: The checkpoint that the run continues from.
        before_first: Called before anything is written.
    """

    def __init__(self, run: Run, own: OwnParts = NO_OWN_PARTS, checkpoint: dict[str, Any] | None = None,
                 before_first: Callable[[], None] | None = None) -> None:
        self.run, self._checkpoint, self._before_first = run, checkpoint, before_first
        self.stop_reason = ""  # why a callback ends the run; "": none does
        self._record_video, self._evaluator = own.video_recorder(run), own.evaluator(run)
        self._callbacks = own.callbacks
        self._started = time.perf_counter()
        self._log: Log | None = None

    def watch(self, it: Iteration, signals: Signals) -> bool:
        """Evaluate and log an iteration, and save it where a checkpoint is due, at the end, and before leaving if that
        is exact.

        Args:
            it: What training has yielded.
            signals: The signals that the process receives.

        Returns:
            Whether a signal ends the run after this iteration.
        """
        if world_from_environment().rank > 0:
            return signals.received is not None
        log = self._log = self._log or self._open_log(it)
        evaluated = self._evaluator.metrics(it) if self._evaluator else {}
        returned, self.stop_reason = run_callbacks(self._callbacks, it)
        log.iteration(it.iteration, it.steps, it.stats | evaluated | returned, it.finished)
        stopped = signals.received is not None
        cfg, leaving = self.run.cfg, stopped and it.keeps_state
        last = it.iteration == cfg.num_iterations or bool(self.stop_reason)
        due = last or it.iteration % cfg.checkpoint_every == 0
        if leaving or due:
            save(self.run, it, log, last)
        if self._record_video is not None and not leaving and (last or self._video_due(it.iteration, due)):
            if not due:
                save_latest_model(self.run, it)
            self._record_video(self.run.folder, it.steps)
        return stopped

    def _open_log(self, it: Iteration) -> Log:
        with files_of(self.run.folder):
            (self.run.folder / "summary.json").unlink(missing_ok=True)  # of a finished run that is made longer
        if self._before_first is not None:
            self._before_first()
        return Log(self.run, it.players, self._checkpoint["log"] if self._checkpoint else None, self._started)

    def _video_due(self, iteration: int, checkpoint: bool) -> bool:
        """At every checkpoint, or after cfg.video_steps steps of each environment if the variant has that field."""
        every = self.run.cfg.video_steps
        if not every:
            return checkpoint
        num_steps = self.run.cfg.num_steps
        return iteration * num_steps // every > (iteration - 1) * num_steps // every

    def close(self) -> None:
        """Write what is left to the disk."""
        if self._log is not None:
            self._log.close()


def save(run: Run, it: Iteration, log: Log, last: bool) -> None:
    """Save the model, after the last iteration summary.json, then the checkpoint.

    In this order a run whose last checkpoint exists is complete, whenever the process is killed.
    """
    tree = {"state": it.snapshot(), "log": log.state(), "versions": versions(), "fixed": fixed_on_resume(run.cfg)}
    save_latest_model(run, it)
    if last:
        write_json(run.folder / "summary.json", log.summary())
    save_checkpoint(run.folder, it.iteration, tree, run.cfg.keep_checkpoints)
