"""Starting and resuming runs: what the command line and the Python API share."""

import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from proximo.catalog import Parts, config_class
from proximo.config import Config
from proximo.errors import PeerError, ProximoError, UsageError, notify, warn
from proximo.processes import world_from_environment
from proximo.runs.announce import announce_changes, announce_resume, announce_start
from proximo.runs.checkpoint import find_checkpoint
from proximo.runs.own_parts import NO_OWN_PARTS, OwnParts
from proximo.runs.resolve import problems_of, problems_of_parts, resolve, with_changes
from proximo.runs.run import (
    Run,
    forget_run,
    read_config,
    read_record,
    resume_command,
    run_folder,
    write_config,
)
from proximo.runs.seed_runs import check_group, one_run_per_seed, same_iteration, seed_folders, warn_if_one_of_several
from proximo.runs.watcher import Signals, Watcher
from proximo.types import Iteration

Iterations = Generator[Sequence[Iteration | None], None, None]


class Session:
    """A run, or the runs of several seeds, ready to train.

    Iterating trains: each step yields one Iteration per run after it was logged and saved, None for a run that has
    stopped. `folder` is that of the run, or of the runs of all seeds. `exit_status` is 0, or 128 plus the number of the
    signal that ended training.
    """

    def __init__(self, folder: Path, watchers: Sequence[Watcher], iterations: Iterations,
                 withdraw: Callable[[], list[str]] | None = None) -> None:
        """Store what trains and what watches it.

        Args:
            folder: See above.
            watchers: One per run.
            iterations: The training.
            withdraw: Called after a UsageError: removes a new run, and returns further problems.
        """
        self.folder, self.exit_status = folder, 0
        self._watchers, self._iterations, self._withdraw = watchers, iterations, withdraw

    def __iter__(self) -> Iterator[Sequence[Iteration | None]]:
        with Signals() as signals:
            try:
                for its in self._iterations:
                    pairs = zip(self._watchers, its, strict=True)
                    stopped = [watcher.watch(it, signals) for watcher, it in pairs if it is not None]
                    yield its
                    if any(stopped) and not self._is_last(its):
                        self._stop(signals, its)
                        return
            except UsageError as error:
                problems = [*str(error).splitlines(), *(self._withdraw() if self._withdraw else [])]
                raise UsageError("\n".join(dict.fromkeys(problems))) from error
            except (RuntimeError, ValueError) as error:
                if isinstance(error, ProximoError) or not is_of_another_process(error):
                    raise
                raise PeerError("Another process of this run has ended or cannot be reached "
                                f"({str(error).splitlines()[0]}). Resume with: {self._resume_line()}") from error
            finally:
                for watcher in self._watchers:
                    watcher.close()
                self._iterations.close()
        if self._watchers:
            notify(f"Done: {self.folder}")

    def play(self) -> int:
        """Train to the end or to a signal, and return `exit_status`.

        Raises:
            UsageError, EnvError, NumbersError, FilesError: Training failed.
            PeerError: Another process of a distributed run was lost.
        """
        for _ in self:
            pass
        return self.exit_status

    def _is_last(self, its: Sequence[Iteration | None]) -> bool:
        return any(it is not None and it.iteration == watcher.run.cfg.num_iterations
                   for watcher, it in zip(self._watchers, its))

    def _stop(self, signals: Signals, its: Sequence[Iteration | None]) -> None:
        number = signals.received or signal.SIGINT
        self.exit_status = 128 + number
        iteration = max(it.iteration for it in its if it is not None)
        warn(f"Stopped by {signal.Signals(number).name} after iteration {iteration}. "
             f"Resume with: {self._resume_line()}")

    def _resume_line(self) -> str:
        several = len(self._watchers) > 1
        return resume_command(self.folder) if several else self._watchers[0].run.resume_line


def start(cfg: Config, variant: str, own: OwnParts = NO_OWN_PARTS, wrong: Sequence[str] = ()) -> Session:
    """Create the folder of a new run, or of one run per seed.

    Args:
        cfg: The configuration as given; what it leaves open is filled in.
        variant: The name of its variant.
        own: Parts that take the place of the variant's.
        wrong: Problems that were found already; they are reported together with the others.

    Raises:
        UsageError: The run cannot work, or the folder contains a run already.
        FilesError: The folder cannot be written.
    """
    world = world_from_environment()
    cfg = resolve(cfg, variant, world.size, world.local_size, own_env=own.make_envs is not None)
    share_cores(cfg)
    parts = own.parts(variant, cfg.framework)
    if problems := [*wrong, *problems_of(cfg, world.size)]:
        raise UsageError("\n".join([*problems, *problems_of_parts(cfg, parts)]))
    folder = run_folder(cfg)
    runs = [Run(folder, cfg, variant, own.resume_with)]
    if cfg.num_seeds > 1:
        own.check_several_seeds()
        runs = one_run_per_seed(folder, cfg, variant)
    announce_start(cfg, world.size)
    for run in runs:
        write_config(run)
    watchers = [Watcher(run, own.video_recorder(run)) for run in runs]
    return Session(folder, watchers, train_together(cfg, parts), partial(withdraw, folder, cfg, parts, runs))


def resume(folder: Path, changes: dict[str, Any], own: OwnParts = NO_OWN_PARTS) -> Session:
    """Continue a run, or the runs of several seeds together, from the newest checkpoint.

    Nothing changes in the folder before the first iteration has ended.

    Args:
        folder: The folder of a run, or of the runs of a --num-seeds command.
        changes: Fields of the configuration that change from here on.
        own: Parts that take the place of the variant's, as they did at the start of the run.

    Raises:
        UsageError: There is no run, or it cannot continue with these changes and parts.
        FilesError: Its files are damaged.
    """
    seeds = seed_folders(folder)
    if not seeds:
        warn_if_one_of_several(folder)
    before = [read_config(each, lambda variant: own.config or config_class(variant)) for each in seeds or [folder]]
    runs = [run._replace(cfg=with_changes(run.cfg, changes)) for run in before]
    own.check_resume(before[0])
    cfg = runs[0].cfg
    if seeds:
        own.check_several_seeds()
        check_group(folder, [run.cfg for run in runs])
        cfg = replace(cfg, num_seeds=len(runs))
    if problems := problems_of(cfg):
        raise UsageError("\n".join(problems))
    checkpoints = same_iteration(runs, [find_checkpoint(run) for run in runs])
    if not announce_resume(folder, cfg, checkpoints[0]):
        return Session(folder, [], train_nothing())
    announce_changes(before[0].cfg, runs[0].cfg)
    share_cores(cfg)
    parts = own.parts(runs[0].variant, cfg.framework)
    watchers = [Watcher(run, own.video_recorder(run), kept, partial(write_config, run) if run.cfg != old.cfg else None)
                for run, old, kept in zip(runs, before, checkpoints)]
    states = [kept["state"] for kept in checkpoints if kept is not None]
    return Session(folder, watchers, train_together(cfg, parts, states or None))


def recorded_class(folder: Path) -> type[Config]:
    """Return the configuration class of a run, or of the runs of several seeds; raises what `read_config` raises."""
    first = (seed_folders(folder) or [folder])[0]
    return config_class(str(read_record(first).get("variant")))


def train_together(cfg: Config, parts: Parts, states: list[dict[str, Any]] | None = None) -> Iterations:
    """Yield the iterations of one run as a list of one, or those of cfg.num_seeds runs.

    Args:
        cfg: The configuration; with several seeds, that of the first one.
        parts: What trains.
        states: The snapshot of each run to continue from.
    """
    if cfg.num_seeds > 1:
        from proximo.on_jax.train_seeds import train_seeds

        yield from train_seeds(cfg, parts.make_envs, parts.make_agent, states=states)
        return
    iterations = parts.train(cfg, parts.make_envs, parts.make_agent, state=states[0] if states else None)
    try:
        for it in iterations:
            yield [it]
    finally:
        iterations.close()


def train_nothing() -> Iterations:
    """Yield nothing: the run has finished."""
    yield from ()


def withdraw(folder: Path, cfg: Config, parts: Parts, runs: Sequence[Run]) -> list[str]:
    """Remove runs that could not start, and return the problems of their device, environment and network."""
    if world_from_environment().rank == 0:
        for run in runs:
            forget_run(run.folder)
        if len(runs) > 1 and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    return problems_of_parts(cfg, parts)


def share_cores(cfg: Config) -> None:
    """Before torch is imported: make its threads sleep between two products where worker processes need the cores.

    By default they spin (docs/performance.md).
    """
    if cfg.env_workers and cfg.threads > 1:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def is_of_another_process(error: Exception) -> bool:
    """Return whether the communication of torch or JAX with other processes broke off."""
    means = ("gloo", "nccl", "connection", "coordination")
    return world_from_environment().size > 1 and any(name in str(error).lower() for name in means)
