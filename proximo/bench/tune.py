"""proximo tune: search hyper-parameters with Optuna, over several seeds; the same command continues after a stop."""

import csv
import hashlib
import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from proximo.bench.files import lock_folder, read_record
from proximo.bench.jobs import Job
from proximo.bench.process import COMMAND, RunningJob, close_job, is_finished, start_job, stop_jobs
from proximo.bench.progress import progress
from proximo.bench.tune_search import Search, load_search, suggest
from proximo.catalog import VARIANTS
from proximo.errors import UsageError, notify
from proximo.problems import config_problems

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.pruners import BasePruner
    from optuna.trial import FrozenTrial

REPORTS_PER_RUN = 10  # to the pruner


class Context(NamedTuple):
    """What all trials of a search share."""

    search: Search
    folder: Path
    command: tuple[str, ...]
    halt: Event
    """set when the search should stop"""


class TrialRunError(Exception):
    """A run of a trial failed: the trial fails, and the search continues."""


class TuneHaltedError(Exception):
    """The search was interrupted."""


def tune(file: str | Path, workers: int = 1, out: str | Path = "", trials: int | None = None,
         command: Sequence[str] = COMMAND) -> int:
    """Run the trials that a search still lacks, and log the best one.

    Args:
        file: The search file.
        workers: How many trials run at the same time.
        out: The folder of the runs and of study.db (the study, unless the file names another storage of Optuna);
            empty: runs/tune/NAME.
        trials: Trials in total; None: as in the file.
        command: The words that start Proximo.

    Returns:
        The exit code. 0: a best trial was found; 1: no trial has finished; 130: interrupted.

    Raises:
        UsageError: If the file has problems, if Optuna is missing, or if another benchmark is running in the folder.
    """
    try:
        import optuna
    except ImportError as error:
        raise UsageError('proximo tune needs Optuna: pip install "proximo[tune]"') from error
    search = load_search(file)
    folder = Path(out or Path("runs") / "tune" / search.name)
    folder.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with lock_folder(folder), _halt_on_signals() as halt:
        study = optuna.create_study(
            study_name=search.name, storage=search.storage or f"sqlite:///{(folder / 'study.db').resolve()}",
            direction="maximize", load_if_exists=True, pruner=_make_pruner(search.pruner),
            sampler=optuna.samplers.TPESampler(seed=search.sampler_seed))
        _queue_interrupted(study)
        ended = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
        left = (trials or search.trials) - len(study.get_trials(deepcopy=False, states=ended))
        context = Context(search=search, folder=folder, command=tuple(command), halt=halt)
        try:
            if left > 0:
                study.optimize(lambda trial: _run_trial(trial, context), n_trials=left, n_jobs=workers,
                               catch=(TrialRunError,), callbacks=[_report_trial])
        except TuneHaltedError:
            notify("stopped. The same command continues.")
            return 130
        return _report_best(study, folder)


def _run_trial(trial: "Trial", context: Context) -> float:
    """Return the mean score over environments and seeds."""
    import optuna
    search = context.search
    values = suggest(trial, search.space)
    overrides: dict[str, Any] = search.overrides | values
    if problems := config_problems(VARIANTS[search.variant].config(total_timesteps=search.steps, **overrides)):
        trial.set_user_attr("impossible", problems)
        raise optuna.TrialPruned(problems[0])
    name = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]
    trial.set_user_attr("folder", name)
    scores: list[float] = []
    try:
        for seed in search.seeds:
            for env_id in search.env_ids:
                job = Job(variant=search.variant, env_id=env_id, seed=seed, steps=search.steps, label=name,
                          overrides=dict(overrides))
                scores.append(_run_job(trial, context, job, scores))
    except TuneHaltedError:
        trial.study.enqueue_trial(trial.params)  # its finished runs count when the search continues
        raise
    return float(np.mean(scores))


def _run_job(trial: "Trial", context: Context, job: Job, scores: list[float]) -> float:
    """Train or resume one run, unless it has finished, and return its score. `scores` are those before it."""
    search, folder = context.search, context.folder
    if context.halt.is_set():
        raise TuneHaltedError
    if not is_finished(folder, job):
        running = start_job(folder, job, 2, context.command)
        try:
            _watch(trial, context, running, scores)
        finally:
            stop_jobs([running])
        outcome, lines = close_job(folder, running)
        if outcome != "finished":
            trial.set_user_attr("failure", f"{job.folder}: {lines}")
            raise TrialRunError(lines)
    score = read_record(folder / job.folder / "summary.json").get(f"{search.metric}_mean")
    if score is None:
        raise TrialRunError(f"{job.folder}: no episode ended, so there is no {search.metric}. Use more steps.")
    return _scale(float(score), search, job.env_id)


def _watch(trial: "Trial", context: Context, running: RunningJob, scores: list[float]) -> None:
    """Wait for a process, and report the mean score so far to the pruner.

    Raises:
        TrialPruned: If the pruner gives up the trial.
        TuneHaltedError: If the search was interrupted.
    """
    import optuna
    job, reports = running.job, 0
    run_dir = context.folder / job.folder
    while running.process.poll() is None:
        if context.halt.wait(0.1):
            raise TuneHaltedError
        due = min(REPORTS_PER_RUN, REPORTS_PER_RUN * progress(run_dir)[0] // job.steps)
        if due > reports and (value := _latest_score(run_dir, context.search, job.env_id)) is not None:
            reports = due
            trial.report(float(np.mean([*scores, value])), len(scores) * REPORTS_PER_RUN + due)
            if trial.should_prune():
                raise optuna.TrialPruned


def _latest_score(run_dir: Path, search: Search, env_id: str) -> float | None:
    """Return the last value of the metric in metrics.csv, or None if there is none."""
    try:
        with (run_dir / "metrics.csv").open(newline="", encoding="utf-8") as file:
            values = [row.get(f"charts/{search.metric}") for row in csv.DictReader(file)]
    except OSError:
        return None
    for value in reversed(values):
        try:
            number = float(value or "nan")
        except ValueError:
            continue
        if np.isfinite(number):
            return _scale(number, search, env_id)
    return None


def _scale(score: float, search: Search, env_id: str) -> float:
    low, high = search.target_scores.get(env_id, (0.0, 1.0))
    return (score - low) / (high - low)


@contextmanager
def _halt_on_signals() -> Iterator[Event]:
    """Set an event on Ctrl-C and SIGTERM, so that every thread stops its own run in order."""
    halt, before = Event(), {}

    def set_halt(*_: object) -> None:
        halt.set()
    try:
        before = {number: signal.signal(number, set_halt) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # outside the main thread, whose program handles signals
        pass
    try:
        yield halt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _queue_interrupted(study: "Study") -> None:
    """Queue the trials of a search that was killed once more; their finished runs still count."""
    import optuna
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        if trial.params:
            study.enqueue_trial(trial.params)
            notify(f"trial {trial.number} was interrupted. It continues as a new trial.")


def _make_pruner(name: str) -> "BasePruner":
    import optuna
    if name == "hyperband":
        return optuna.pruners.HyperbandPruner()
    return optuna.pruners.NopPruner() if name == "none" else optuna.pruners.MedianPruner(n_startup_trials=5)


def _report_trial(study: "Study", trial: "FrozenTrial") -> None:
    value = "" if trial.value is None else f" {trial.value:.4g}"
    failure = trial.user_attrs.get("failure", "")
    lines = f"\n{failure}" if failure else ""
    notify(f"trial {trial.number} {trial.state.name.lower()}{value} {trial.params}{lines}")


def _report_best(study: "Study", folder: Path) -> int:
    import optuna
    finished = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if not finished:
        notify("no trial has finished. The logs are beside the runs.")
        return 1
    best = study.best_trial
    (folder / "best.json").write_text(json.dumps({"value": best.value, "params": best.params}, indent=1))
    chosen = " ".join(f"{name}={value}" for name, value in best.params.items())
    notify(f"best of {len(finished)} trials: {best.value:.6g} with {chosen}")
    return 0
