"""What happens around training: the log, checkpoints and videos. Only rank 0 writes."""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from proximo.callbacks import run_callbacks
from proximo.envs.machine.cores import cpu_model
from proximo.errors import FilesError, NumbersError, notify, warn
from proximo.facts import fixed_on_resume
from proximo.processes import world_from_environment
from proximo.runs.check.value_ranges import FirstValues
from proximo.runs.custom_parts import NO_CUSTOM_PARTS, CustomParts
from proximo.runs.evaluation import save_latest_model, set_later_best_aside
from proximo.runs.folder.callback_state import CALLBACK_STATES, load_states, packed_states
from proximo.runs.folder.checkpoint import save_checkpoint
from proximo.runs.folder.csv_file import files_of, removed
from proximo.runs.folder.files import read_json
from proximo.runs.folder.records import SummaryFile
from proximo.runs.folder.repro import save_repro
from proximo.runs.folder.run import Run, versions
from proximo.runs.folder.writing import write_json
from proximo.runs.interrupts.recent import Content
from proximo.runs.interrupts.signals import Signals
from proximo.runs.logs.log import Log, summary_from_state
from proximo.runs.logs.trackers import End
from proximo.runs.timing import Recorder
from proximo.types import Iteration

Call = Callable[..., None]  # (function, *arguments)


def call_now(function: Callable[..., None], *arguments: Any) -> None:
    """Call a function."""
    function(*arguments)


@contextmanager
def calls_together(number: int) -> Iterator[Call]:
    """Yield a function that calls a function, in its own thread if `number` > 1. At the end all calls have returned.

    Saving ten runs one after another takes four times as long, because most of that is waiting for the disk.

    Raises:
        Exception: What the first function that failed has raised.
    """
    if number == 1:
        yield call_now
        return
    futures: list[Future[None]] = []
    with ThreadPoolExecutor(number) as threads:
        yield lambda function, *arguments: futures.append(threads.submit(function, *arguments))
    for future in futures:
        future.result()


class Watcher:
    """Logs one run and saves its checkpoints, models and videos.

    Nothing is written before the first iteration has ended, so that a resume that fails leaves the run as it was.

    Args:
        run: The run; its folder is absolute, because an environment may change the current one.
        custom: Its parts, which record videos and evaluate; and the callbacks.
        checkpoint: The checkpoint that the run continues from.
        before_first: Called before anything is written.
        recorder: Notes the steps of the environments of training.
        meter: Whether progress is shown; of several runs that train together only the last one shows that of all.
        group: All runs that train together, in the order in which they are logged; None: this one alone.
    """

    def __init__(self, run: Run, custom: CustomParts = NO_CUSTOM_PARTS, checkpoint: dict[str, Any] | None = None,
                 before_first: Callable[[], None] | None = None, recorder: Recorder | None = None,
                 meter: bool = True, group: Sequence["Watcher"] | None = None) -> None:
        self.run, self._checkpoint, self._before_first = run, checkpoint, before_first
        self._recorder, self._meter, self._group = recorder or Recorder(), meter, (self,) if group is None else group
        self.stop_reason = ""  # why a callback ends the run; "": none does
        self._record_video, self._evaluator = custom.video_recorder(run), custom.evaluator(run)
        self._custom, self.callbacks = custom, custom.callbacks
        load_states(self.callbacks, checkpoint)
        self._started = time.perf_counter()
        self.log: Log | None = None  # None: no iteration has ended, or another rank writes
        self.saved_iteration = checkpoint["state"]["iteration"] if checkpoint else 0  # the newest that is on the disk
        self.save_seconds = 0.0  # how long that took
        self._told = False  # whether this process has said that no episode has ended

    def watch(self, it: Iteration, signals: Signals, call: Call, spare: bool) -> bool:
        """Evaluate and log an iteration; save it where a checkpoint is due, at the end, and to leave if that is exact.

        Args:
            it: What training has yielded.
            signals: The signals that the process receives.
            call: What saves: see calls_together. It calls at once where a video follows, which needs what was saved.
            spare: Whether a checkpoint that is due may be left out, unless all are kept: the last one is new.

        Returns:
            Whether a signal ends the run after this iteration.
        """
        if world_from_environment().rank > 0:
            return signals.received is not None
        first, shares = self._recorder.first, self._recorder.shares()
        if self.log is None and self._evaluator is not None:
            self._evaluator.check_envs(self._custom.with_model(it, self.run.cfg, self.run.variant))
        begins, log = self.log is None, self.log or self._open_log(it)
        self.log = log
        evaluated = self._evaluator.metrics(it) if self._evaluator else {}
        it = self._custom.with_model(it._replace(stats=it.stats | shares | evaluated), self.run.cfg, self.run.variant)
        returned, self.stop_reason = run_callbacks(self.callbacks, it)
        if begins:
            self._tell_of_values(first)
            packed_states(self.callbacks)  # one that cannot be saved is an error now, not at the first checkpoint
        if self.stop_reason:
            log.end_early(self.stop_reason)
        last = it.iteration == self.run.cfg.num_iterations or bool(self.stop_reason)
        log.iteration(it.iteration, it.steps, it.stats | returned, it.finished, last)
        cfg, leaving = self.run.cfg, (stopped := signals.received is not None) and it.keeps_state
        due = it.iteration % cfg.checkpoint_every == 0
        self._tell_of_no_episode(it, last)
        saving = last or leaving or (due and (stopped or not (spare and cfg.keep_checkpoints)))
        if saving:
            call = call if self._record_video is None else call_now
            call(self.save, Content(it, log.state(), packed_states(self.callbacks)), log.summary() if last else None)
        if self._record_video is not None and not leaving and (last or self._video_due(it.iteration, due)):
            if not saving:
                save_latest_model(self.run, it)
            self._record_video(self.run.folder, it.steps)
        if stopped and not saving:
            save_latest_model(self.run, it)  # it can be used, although a resume plays these iterations again
        return stopped

    def _tell_of_values(self, first: FirstValues | None) -> None:
        """Warn of large numbers in the first iteration of a run with the variant's network."""
        if first is not None and self._checkpoint is None and self._custom.make_agent is None:
            for remark in first.remarks(self.run.cfg):
                warn(remark)

    def _tell_of_no_episode(self, it: Iteration, last: bool) -> None:
        """Warn if no episode has ended: once where environments are made again, and after the last iteration."""
        cfg = self.run.cfg
        each, every = cfg.num_steps, cfg.checkpoint_every
        remade = not it.keeps_state and it.iteration >= every
        now = remade and it.iteration % every == 0 and not self._told
        if not self._meter or self.log is None or self.log.episodes or not (last or now):
            return
        self._told = True
        done = (f"No episode has ended in {it.iteration} iteration{'s' * (it.iteration > 1)} "
                f"({it.iteration * each:,} steps of each environment)")
        warn(f"{done}. The environments are made again every {every} iterations, because checkpoints cannot contain "
             f"them: episodes of more than {every * each:,} steps never end, and the log has no returns. Use a larger "
             "--checkpoint-every (checkpoint_every), which a resume may change, or a time limit." if remade else
             f"{done}: the log has no returns. Train longer, or give the environment a time limit.")

    def save(self, content: Content, summary: dict[str, Any] | None) -> None:
        """Save an iteration; see save().

        Raises:
            FilesError: It cannot be written, or the folder of the run is gone, which must not begin again without its
                config.json.
        """
        if not os.path.isfile(self.run.folder / "config.json") and not os.path.isdir(self.run.folder / "checkpoints"):
            raise removed(self.run.folder)
        begin = time.perf_counter()
        save(self.run, content, summary)
        self.saved_iteration, self.save_seconds = content.it.iteration, time.perf_counter() - begin

    def save_repro(self, error: NumbersError) -> str:
        """Keep what a failed update was computed from; see `repro.save_repro`.

        The log is written first: one that is newer than RUN/repro is that of a run that has continued.
        """
        if self.log is not None:
            with suppress(FilesError):  # a full disk
                self.log.state()
        return save_repro(self.run, error)

    def _open_log(self, it: Iteration) -> Log:
        with files_of(self.run.folder):
            for name in ("summary.json", "eval.json"):  # of a finished run that is made longer
                (self.run.folder / name).unlink(missing_ok=True)
            set_later_best_aside(self.run.folder, it.iteration)
        if self._before_first is not None:
            self._before_first()
        kept = self._checkpoint["log"] if self._checkpoint else None
        return Log(self.run, it.players, kept, self._started, self._meter,
                   lambda: [one.log for one in self._group if one.log is not None])

    def _video_due(self, iteration: int, checkpoint: bool) -> bool:
        """Where a checkpoint is due, or after cfg.video_steps steps of each environment if a variant has that field."""
        every = self.run.cfg.video_steps
        if not every:
            return checkpoint
        num_steps = self.run.cfg.num_steps
        return iteration * num_steps // every > (iteration - 1) * num_steps // every

    def last_return(self) -> float:
        """Return the mean return of the newest episodes; -inf where none has ended or nothing was trained."""
        found = self.log.summary()["episodic_return_mean"] if self.log is not None else None
        return -math.inf if found is None or math.isnan(found) else float(found)

    def close(self, end: End = "FINISHED") -> None:
        """Write what is left to the disk, and tell a tracker how the run has ended."""
        if self.log is not None:
            self.log.close(end)


def save(run: Run, content: Content, summary: dict[str, Any] | None) -> None:
    """Save the model, after the last iteration summary.json, then the checkpoint.

    In this order a run whose last checkpoint exists is complete, whenever the process is killed.

    Args:
        run: The run.
        content: The iteration, and the state of the log after it.
        summary: The content of summary.json after the last iteration.
    """
    it = content.it
    tree = {"state": it.snapshot(), "log": content.log, "versions": versions(), "cpu": cpu_model(),
            "fixed": fixed_on_resume(run.cfg), "processes": world_from_environment().size}
    tree |= {CALLBACK_STATES: content.callbacks} if content.callbacks else {}
    save_latest_model(run, it)
    if summary is not None:
        write_json(run.folder / "summary.json", summary, "")
    save_checkpoint(run.folder, it.iteration, tree, run.cfg.keep_checkpoints)


def restore_summaries(runs: Sequence[Run], checkpoints: Sequence[dict[str, Any] | None]) -> None:
    """Write the summary.json of finished runs again where it is missing or damaged, from their last checkpoints."""
    for run, checkpoint in zip(runs, checkpoints, strict=True):
        path = run.folder / "summary.json"
        try:
            read_json(path, SummaryFile)
        except (FileNotFoundError, FilesError):
            if checkpoint is not None and world_from_environment().rank == 0:
                write_json(path, summary_from_state(run, checkpoint["log"]))
                notify(f"{path} was missing or damaged. It was written again.")
