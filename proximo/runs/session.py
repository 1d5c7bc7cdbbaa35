"""The loop around training: a run, or several runs at once, from the first iteration to the last."""

import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from proximo.catalog import Parts
from proximo.config import Config
from proximo.envs.custom.imports import import_flags
from proximo.errors import (
    EnvError,
    FilesError,
    NumbersError,
    PeerError,
    ProximoError,
    UsageError,
    first_line,
    notify,
    warn,
)
from proximo.processes import is_of_another_process
from proximo.runs.command_line import pasted
from proximo.runs.folder.checkpoint import checkpoints
from proximo.runs.folder.writing import named_faults
from proximo.runs.interrupts.recent import Recent
from proximo.runs.interrupts.signals import Signals
from proximo.runs.logs.trackers import end_of
from proximo.runs.watcher import Watcher, calls_together
from proximo.types import Iteration

Iterations = Generator[Sequence[Iteration | None], None, None]


class Session:
    """A run, or the runs of one command, ready to train.

    Iterating trains: each step yields one Iteration per run after it was logged and saved, None for a run that has
    stopped. `folder` is that of the run, or of all runs. `exit_status` is 0, or 128 plus the number of the
    signal that ended training.
    """

    def __init__(self, folder: Path, watchers: Sequence[Watcher], iterations: Iterations,
                 forget: Callable[[], None] | None = None, problems: Callable[[], list[str]] | None = None,
                 release: Callable[[], None] | None = None) -> None:
        """Store the parts of training and its watchers.

        Args:
            folder: See above.
            watchers: One per run.
            iterations: The training.
            forget: Removes a new run that could not start: nothing once an iteration was logged.
            problems: Called after a UsageError: returns further problems.
            release: Called at the end: frees the folder for other processes.
        """
        self.folder, self.exit_status = folder, 0
        self._watchers, self._iterations, self._release = watchers, iterations, release
        self._forget, self._problems = forget or (lambda: None), problems or (list)
        self._recent = Recent()
        self.ends_process = True  # see Signals; False for a call of a program

    def __iter__(self) -> Iterator[Sequence[Iteration | None]]:
        with self._attended() as signals:
            try:
                with self._keeping(signals):
                    for its in self._iterations:
                        signals.iteration_ended()
                        pairs = zip(self._watchers, its, strict=True)
                        spare = self._recent.saved_just_now()  # one answer for all runs, which continue together
                        with calls_together(len(self._watchers)) as call:
                            stopped = [watcher.watch(it, signals, call, spare) for watcher, it in pairs
                                       if it is not None]
                        self._copy(its)
                        yield its
                        if any(stopped) and not self._is_last(its):
                            self._stop(signals, its)
                            return
                        if self._is_ended_early(its):
                            break
            except KeyboardInterrupt as error:
                if signals.received is None:
                    raise self._exit_fault("raised KeyboardInterrupt") from error
                signals.abandon_once(error)
                return
            except SystemExit as error:
                raise self._exit_fault(f"called sys.exit({error.code!r})") from error
            except UsageError as error:
                problems = [*str(error).splitlines(), *self._problems()]
                raise UsageError("\n".join(dict.fromkeys(problems))) from error
            except NumbersError as error:
                saved = self._watchers[0].save_repro(error) if len(self._watchers) == 1 else ""
                raise NumbersError(f"{error}{saved}", error.evidence) from error
            except PeerError as error:
                raise PeerError(f"{error} Resume with: {self._resume_line()}") from error
            except (RuntimeError, ValueError) as error:
                if isinstance(error, ProximoError) or not is_of_another_process(error):
                    raise
                raise PeerError("Another process of this run has ended or cannot be reached "
                                f"({first_line(error)}). Resume with: {self._resume_line()}") from error
        if self._watchers:
            self._say_done()

    @contextmanager
    def _attended(self) -> Iterator[Signals]:
        """Receive signals until the run is closed. It is closed, too, where they cannot be received."""
        with ExitStack() as stack:
            try:
                with named_faults(self.folder):
                    signals = stack.enter_context(Signals(self._abandon, self.ends_process))
            finally:
                stack.push(self._close)
            yield signals

    @contextmanager
    def _keeping(self, signals: Signals) -> Iterator[None]:
        """After a fault, save the copy of the newest iteration of a run; after a signal, the caller does so.

        Without a logged iteration, free the folder for the mended program, unless it has evidence of the fault.
        """
        try:
            yield
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            if isinstance(error, (KeyboardInterrupt, EnvError)) and signals.received is not None:
                signals.raise_interrupt(error)
            if not isinstance(error, (NumbersError, PeerError)) and not is_of_another_process(error):
                self._forget()
            with suppress(Exception):  # a full disk or memory may be the fault itself, which is what must be seen
                if len(self._watchers) == 1 and (number := self._save_recent()):
                    notify(f"Iteration {number} was saved. Resume with: {self._resume_line()}")
            if isinstance(error, FilesError) and (self._watchers[0].run.folder / "config.json").exists():
                raise FilesError(f"{error} {self._last_checkpoint()[1]} Resume with: {self._resume_line()}") from error
            raise

    def _copy(self, its: Sequence[Iteration | None]) -> None:
        ended = {number: (it, one.log, one.callbacks) for number, (one, it) in enumerate(zip(self._watchers, its))
                 if it is not None and one.log is not None and one.saved_iteration < it.iteration}
        if ended:
            self._recent.offer(ended)
        else:
            self._recent.forget(max(watcher.save_seconds for watcher in self._watchers))

    def _save_recent(self) -> int | None:
        """Save the newest iteration that was copied, if no newer one is on the disk. Returns its number; None: none."""
        saved = None
        for number, content in self._recent.contents.items():
            if content.it.iteration > self._watchers[number].saved_iteration:
                self._watchers[number].save(content, None)
                saved = content.it.iteration
        return saved

    def _exit_fault(self, what: str) -> EnvError:
        return EnvError(f"The environment, the network, the loss or a callback {what} while it trained. Resume with: "
                        f"{self._resume_line()}. (A callback ends a run by proximo.StopTraining.)")

    def _say_done(self) -> None:
        run = max(self._watchers, key=Watcher.last_return).run
        one = self.folder / run.folder.name if len(self._watchers) > 1 else self.folder
        words = pasted(one, *import_flags(run.cfg))
        lacking = run.custom_parts.keys() - {"loss_fn", "set_up"}  # parts that commands need and do not have
        play = "" if lacking else f"proximo eval {words}, proximo watch {words}, "
        notify(f"Done: {self.folder}")
        notify(f"Next: {play}proximo plot {pasted(self.folder)}")

    def train_to_end(self) -> int:
        """Train to the end or to a signal, and return `exit_status`.

        Raises:
            UsageError, EnvError, NumbersError, FilesError: Training failed.
            PeerError: Another process of a distributed run was lost.
        """
        for _ in self:
            pass
        return self.exit_status

    def _is_last(self, its: Sequence[Iteration | None]) -> bool:
        return any(it is not None and (it.iteration == watcher.run.cfg.num_iterations or bool(watcher.stop_reason))
                   for watcher, it in zip(self._watchers, its))

    def _is_ended_early(self, its: Sequence[Iteration | None]) -> bool:
        for watcher, it in zip(self._watchers, its):
            if watcher.stop_reason and it is not None:
                notify(f"Ended after iteration {it.iteration} of {watcher.run.cfg.num_iterations}: "
                       f"{watcher.stop_reason}. To train longer: {self._resume_line()}")
                return True
        return False

    def _stop(self, signals: Signals, its: Sequence[Iteration | None]) -> None:
        number = signals.received or signal.SIGINT
        self.exit_status = 128 + number
        iteration = max(it.iteration for it in its if it is not None)
        newest, left = self._last_checkpoint()
        left = f"{left} This run is saved at scheduled checkpoints only; its model is newer. " * (newest < iteration)
        warn(f"Stopped by {signal.Signals(number).name} after iteration {iteration}. {left}"
             f"Resume with: {self._resume_line()}")

    def _abandon(self, number: int) -> None:
        """Save the copy of the newest iteration, because a signal ends the process during the next one."""
        self.exit_status = 128 + number
        self._save_recent()
        warn(f"Stopped by {signal.Signals(number).name} before the iteration had ended. "
             f"{self._last_checkpoint()[1]} Resume with: {self._resume_line()}")

    def _last_checkpoint(self) -> tuple[int, str]:
        """Return the iteration of the newest checkpoint, 0 if there is none, and a sentence about it."""
        try:
            numbers = [{int(path.name) for path in checkpoints(each.run.folder)} for each in self._watchers]
        except OSError:  # no more files can be opened, to list them
            numbers = [{each.saved_iteration} for each in self._watchers]
        if newest := max(set.intersection(*numbers), default=0):  # runs continue together
            return newest, f"The newest checkpoint is of iteration {newest}."
        return 0, "No checkpoint exists: a resume begins with the first iteration."

    def _resume_line(self) -> str:
        return self._watchers[0].run._replace(folder=self.folder).resume_line

    def _close(self, kind: object, error: object, trace: object) -> None:
        """Close the run. A full disk is a fault here too, but hides no error that has ended the run."""
        with suppress(*[OSError] * isinstance(error, Exception)), ExitStack() as closing:
            if self._release is not None:
                closing.callback(self._release)
            closing.callback(self._iterations.close)
            for watcher in self._watchers:
                closing.callback(watcher.close, end_of(error, self.exit_status))


def train_together(cfgs: Sequence[Config], parts: Parts, states: list[dict[str, Any]] | None = None) -> Iterations:
    """Yield the iterations of one run as a list of one, or those of several runs that one compiled function trains.

    Args:
        cfgs: The configuration of each run.
        parts: What trains.
        states: The snapshot of each run to continue from.
    """
    if len(cfgs) > 1:
        assert parts.train_group is not None, "several runs at once need --framework jax, which was checked"
        yield from parts.train_group(cfgs, parts.make_envs, parts.make_agent, states=states)
        return
    cfg = cfgs[0]
    iterations = parts.train(cfg, parts.make_envs, parts.make_agent, state=states[0] if states else None)
    try:
        for it in iterations:
            yield [it]
    finally:
        iterations.close()


def train_nothing() -> Iterations:
    """Yield nothing: the run has finished."""
    yield from ()
