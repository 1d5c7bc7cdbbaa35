"""The study of a search: a file that any number of processes and machines share, and who works on which trial."""

import hashlib
import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from proximo.bench.sets import logging_fields
from proximo.bench.tune.halt import Halt
from proximo.bench.tune.journal import journal
from proximo.bench.tune.search import EVALUATION, Search
from proximo.errors import UsageError, notify, warn
from proximo.runs.folder.lock import locked

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

WORKERS = "workers"  # folder with one folder for each process, which holds its lock while it works
WORKER = "worker"  # attribute of a trial: the name of that folder
REASON = "reason"  # attribute of a trial that failed or is impossible
NOT_FINITE = "not finite"  # attribute of a trial that has such a run: its folder, and the end of its log
FOLDER = "folder"  # attribute of a trial: the name of its runs
REPORTS = "reports"  # attribute of a trial that continues another one: what that one has reported, by step
SEARCH = "search"  # attribute of a study: what the scores of its trials depend on


class SharedStudy(NamedTuple):
    """A study, and this process among those that work on it."""

    study: "Study"
    folder: Path
    worker: str
    halt: Halt
    """set when this process should stop"""
    first: int
    """number of the first trial that began after this process"""

    def next_trial(self, trials: int) -> "Trial | None":
        """Return a new trial, or one that a process which was killed has left; None if there are enough.

        Args:
            trials: Trials in total that end with a value, are pruned, or whose run fails while this process works.
        """
        from optuna.trial import TrialState

        with locked_when_free(self.folder, self.halt):
            if self.halt.is_set():
                return None
            self._queue_abandoned()
            states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
            failed = [trial for trial in self.study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
                      if REASON in trial.user_attrs and trial.number >= self.first]
            if len(self.study.get_trials(deepcopy=False, states=states)) + len(failed) >= trials:
                return None
            trial = self.study.ask()
            trial.set_user_attr(WORKER, self.worker)
            return trial

    def _queue_abandoned(self) -> None:
        """Queue the trials of processes that have ended; their finished runs still count."""
        from optuna.trial import TrialState

        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            worker = str(trial.user_attrs.get(WORKER, ""))
            if worker == self.worker or not _has_ended(self.folder / WORKERS / Path(worker).name):
                continue
            self.study.tell(trial.number, state=TrialState.FAIL)
            if trial.params:
                queue_again(self.study, trial)
                notify(f"trial {trial.number} was interrupted. It continues as a new trial.")


def queue_again(study: "Study", trial: "FrozenTrial") -> None:
    """Queue a trial that was interrupted: its finished runs count, and so does what it has reported to the pruner."""
    reports = {str(step): value for step, value in trial.intermediate_values.items()}
    study.enqueue_trial(trial.params, user_attrs={REPORTS: reports})


@contextmanager
def shared_study(search: Search, folder: Path, halt: Halt) -> Iterator[SharedStudy]:
    """Open or create the study of a search, and be one of its workers.

    Raises:
        UsageError: The study is that of another search, whose scores mean something else.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    worker = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
    with locked(folder / WORKERS / worker, new=True):
        with locked_when_free(folder, halt):
            storage = search.storage or journal(folder)
            if not search.storage and (names := optuna.get_all_study_names(storage)) and search.name not in names:
                raise UsageError(_other_search(search, folder, [f"title={names[0]!r} instead of {search.name!r}"]))
            study = optuna.create_study(
                study_name=search.name, storage=storage, direction="maximize", load_if_exists=True,
                pruner=make_pruner(search.pruner), sampler=make_sampler(search.sampler_seed))
            check_same_search(study, search, folder)
        yield SharedStudy(study=study, folder=folder, worker=worker, halt=halt,
                          first=len(study.get_trials(deepcopy=False)))


def check_same_search(study: "Study", search: Search, folder: Path) -> None:
    """Record in a new study what its scores depend on, and compare a study that exists with it.

    Raises:
        UsageError: They differ.
    """
    content = json.loads(json.dumps(_meaning(search)))
    recorded = study.user_attrs.get(SEARCH)
    if recorded is None:
        if study.get_trials(deepcopy=False):
            warn(f"The study {search.name!r} was begun by an earlier version, which did not record what its scores "
                 "mean. If the file has changed since then, choose another folder with --out.")
        study.set_user_attr(SEARCH, content)
        return
    names = [*recorded, *(content.keys() - recorded.keys())]
    different = [f"{name}={_text(recorded, name)} instead of {_text(content, name)}" for name in names
                 if _text(recorded, name) != _text(content, name)]
    redefined = [name for name in content if name.startswith("space.") and _text(recorded, name) not in (
        "nothing", _text(content, name))]  # Optuna does not take another range of the same name
    if different and (redefined or _has_scores(study)):
        raise UsageError(_other_search(search, folder, different))
    if different:
        study.set_user_attr(SEARCH, content)  # the first trial was refused, and the file was corrected


def _has_scores(study: "Study") -> bool:
    """Return whether a trial has ended with a result, or may still do so."""
    from optuna.trial import TrialState

    return bool(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING,
                                                         TrialState.WAITING)))


def outcome(trial: "FrozenTrial") -> str:
    """Return how a trial has ended: a word of Optuna, `impossible`, `not finite`, or `stopped`: it was interrupted."""
    word, attributes = trial.state.name.lower(), trial.user_attrs
    if word == "fail" and REASON not in attributes:
        return "stopped"
    if word != "pruned":
        return word
    return NOT_FINITE if NOT_FINITE in attributes else "impossible" if REASON in attributes else word


def has_trained(study: "Study") -> bool:
    """Return whether a trial has trained: it has a score, was given up, or was not finite. Impossible ones have not."""
    return any(outcome(trial) in ("complete", "pruned", NOT_FINITE) for trial in study.trials)


def _meaning(search: Search) -> dict[str, Any]:
    """Return what the scores of trials depend on: all but how trials are chosen, given up, counted and logged."""
    skipped = {name for name in logging_fields() if search.metric != EVALUATION or not name.startswith("eval_")}
    tables = {"overrides": {name: value for name, value in search.overrides.items() if name not in skipped},
              "space": search.space, "target_scores": search.target_scores}
    return {"variant": search.variant, "env_ids": search.env_ids, "steps": search.steps, "seeds": search.seeds,
            "metric": search.metric,
            **{f"{table}.{name}": value for table, content in tables.items() for name, value in content.items()}}


def _text(content: dict[str, Any], name: str) -> str:
    return json.dumps(content[name], sort_keys=True) if name in content else "nothing"


def _other_search(search: Search, folder: Path, different: list[str]) -> str:
    where, advice = (f"The study {search.name!r} of the storage", "Choose another title.") if search.storage else (
        str(folder), "Choose another folder with --out.")
    return f"{where} contains another search: {', '.join(different)}. {advice}"


@contextmanager
def locked_when_free(folder: Path, halt: Halt) -> Iterator[None]:
    """Hold the lock of a folder, which is waited for; without it only if `halt` is set."""
    with ExitStack() as held:
        while not halt.is_set():
            try:
                held.enter_context(locked(folder, new=True))
                break
            except UsageError:
                halt.wait(0.1)
        yield


def _has_ended(folder: Path) -> bool:
    try:
        with locked(folder):
            pass
    except UsageError:
        return False
    with suppress(OSError):
        folder.rmdir()
    return True


def make_sampler(seed: int) -> "BaseSampler":
    """Return Optuna's TPE, whose draws are keyed by seed, trial and parameter.

    A search that continues, and processes that share a study, draw what no other trial has drawn.
    """
    from optuna.samplers import BaseSampler, TPESampler

    def tpe(trial: Any, name: str = "") -> TPESampler:
        digest = hashlib.sha256(f"{seed} {trial.number} {name}".encode()).digest()
        return TPESampler(seed=int.from_bytes(digest[:4], "little"))

    class KeyedSampler(BaseSampler):
        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            return tpe(trial).infer_relative_search_space(study, trial)

        def sample_relative(self, study: Any, trial: Any, search_space: dict[str, Any]) -> dict[str, Any]:
            return tpe(trial).sample_relative(study, trial, search_space)

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            return tpe(trial, param_name).sample_independent(study, trial, param_name, param_distribution)

    return KeyedSampler()


def make_pruner(name: str) -> "BasePruner":
    """Return the pruner of a search file."""
    import optuna

    if name == "hyperband":
        return optuna.pruners.HyperbandPruner()
    return optuna.pruners.NopPruner() if name == "none" else optuna.pruners.MedianPruner(n_startup_trials=5)
