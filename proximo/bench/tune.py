"""proximo tune: hyper-parameter search by Optuna, an objective over several seeds, gone on with after a kill."""

import csv
import hashlib
import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np

from proximo.bench.jobs import Job
from proximo.bench.process import COMMAND, RunningJob, close_job, is_finished, read_json, start_job, stop_jobs
from proximo.bench.progress import progress
from proximo.bench.runner import bench_lock
from proximo.bench.tune_search import Search, load_search, suggest
from proximo.catalog import VARIANTS
from proximo.errors import UsageError, notify

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.pruners import BasePruner
    from optuna.trial import FrozenTrial

REPORTS_A_RUN = 10
"""reports to the pruner within one run"""


def tune(file: str | Path, workers: int = 1, out: str | Path = "", trials: int | None = None,
         command: Sequence[str] = COMMAND) -> int:
    """Plays the trials that are still missing and prints the best; 0, 1 where no trial got through, 130 when stopped.

    out defaults to runs/tune/NAME; the study lies in OUT/study.db unless the file names a storage (any of Optuna's,
    so optuna-dashboard opens it). workers trials run at once. Raises UsageError with every problem of the file.
    """
    try:
        import optuna
    except ImportError as fault:
        raise UsageError('proximo tune needs Optuna; pip install "proximo[tune]"') from fault
    search = load_search(file)
    place = Path(out or Path("runs") / "tune" / search.name)
    place.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with bench_lock(place), _halting() as halt:
        study = optuna.create_study(
            study_name=search.name, storage=search.storage or f"sqlite:///{(place / 'study.db').resolve()}",
            direction="maximize", load_if_exists=True, pruner=_pruner(search.pruner),
            sampler=optuna.samplers.TPESampler(seed=search.sampler_seed))
        _take_up(study)
        over = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
        left = (trials or search.trials) - len(study.get_trials(deepcopy=False, states=over))
        try:
            if left > 0:
                study.optimize(lambda trial: _objective(trial, search, place, tuple(command), halt), n_trials=left,
                               n_jobs=workers, catch=(TrialRunError,), callbacks=[_tell_trial])
        except TuneHalted:
            notify("stopped; the same command goes on from here")
            return 130
        return _conclude(study, place)


class TrialRunError(Exception):
    """A run of a trial that failed: the trial fails, the search goes on."""


class TuneHalted(Exception):
    """Somebody stopped the search."""


def _objective(trial: "Trial", search: Search, place: Path, command: tuple[str, ...], halt: Event) -> float:
    """Mean over environments and seeds; what is known so far is told to the pruner ten times a run."""
    import optuna
    values = suggest(trial, search.space)
    overrides: dict[str, Any] = search.overrides | values
    config = VARIANTS[search.variant].config(total_timesteps=search.steps, **overrides)
    if problems := config.problems():
        trial.set_user_attr("impossible", problems)
        raise optuna.TrialPruned(problems[0])
    name = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]
    trial.set_user_attr("folder", name)
    scores: list[float] = []
    try:
        for number, (seed, env_id) in enumerate((seed, env_id) for seed in search.seeds for env_id in search.env_ids):
            job = Job(search.variant, env_id, seed, search.steps, name, dict(overrides))
            scores.append(_play_job(trial, search, place, job, command, halt, scores, number))
    except TuneHalted:
        trial.study.enqueue_trial(trial.params)  # whose finished runs are taken as they stand
        raise
    return float(np.mean(scores))


def _play_job(trial: "Trial", search: Search, place: Path, job: Job, command: tuple[str, ...], halt: Event,
              scores: list[float], number: int) -> float:
    """One run to its end; what is finished is taken as it stands, what broke off is gone on with."""
    if halt.is_set():
        raise TuneHalted
    if not is_finished(place, job):
        running = start_job(place, job, 2, command)
        try:
            _watch(trial, search, place, running, halt, scores, number)
        finally:
            stop_jobs([running])
        outcome, lines = close_job(place, running)
        if outcome != "finished":
            trial.set_user_attr("failure", f"{job.folder}: {lines}")
            raise TrialRunError(lines)
    score = read_json(place / job.folder / "summary.json").get(f"{search.metric}_mean")
    if score is None:
        raise TrialRunError(f"{job.folder}: no episode ended, so there is no {search.metric}; give it more steps")
    return _scaled(float(score), search, job.env_id)


def _watch(trial: "Trial", search: Search, place: Path, running: RunningJob, halt: Event, scores: list[float],
           number: int) -> None:
    """Until the process ends. Raises TrialPruned when the pruner gives the trial up, TuneHalted when stopped."""
    import optuna
    job, told = running.job, 0
    while running.process.poll() is None:
        if halt.wait(0.1):
            raise TuneHalted
        done = min(REPORTS_A_RUN, REPORTS_A_RUN * progress(place / job.folder)[0] // job.steps)
        if done > told and (value := _recent(place / job.folder, search, job.env_id)) is not None:
            told = done
            trial.report(float(np.mean([*scores, value])), number * REPORTS_A_RUN + done)
            if trial.should_prune():
                raise optuna.TrialPruned


def _recent(run_dir: Path, search: Search, env_id: str) -> float | None:
    """The last value of the metric in metrics.csv."""
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
            return _scaled(number, search, env_id)
    return None


def _scaled(score: float, search: Search, env_id: str) -> float:
    low, high = search.target_scores.get(env_id, (0.0, 1.0))
    return (score - low) / (high - low)


@contextmanager
def _halting() -> Iterator[Event]:
    """Ctrl-C and SIGTERM set the event, so that every thread stops its own run in order."""
    halt, before = Event(), {}

    def set_halt(*_: object) -> None:
        halt.set()
    try:
        before = {number: signal.signal(number, set_halt) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: whoever runs us there looks after signals
        pass
    try:
        yield halt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _take_up(study: "Study") -> None:
    """Trials that were under way when a search was killed are queued again; their finished runs still count."""
    import optuna
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        if trial.params:
            study.enqueue_trial(trial.params)
            notify(f"trial {trial.number} was broken off and is taken up again")


def _pruner(name: str) -> "BasePruner":
    import optuna
    if name == "hyperband":
        return optuna.pruners.HyperbandPruner()
    return optuna.pruners.NopPruner() if name == "none" else optuna.pruners.MedianPruner(n_startup_trials=5)


def _tell_trial(study: "Study", trial: "FrozenTrial") -> None:
    value = "" if trial.value is None else f" {trial.value:.4g}"
    failure = trial.user_attrs.get("failure", "")
    notify(f"trial {trial.number} {trial.state.name.lower()}{value} {trial.params}" + (f"\n{failure}" if failure else ""))


def _conclude(study: "Study", place: Path) -> int:
    import optuna
    finished = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if not finished:
        notify("no trial got through; the logs lie beside the runs")
        return 1
    best = study.best_trial
    (place / "best.json").write_text(json.dumps({"value": best.value, "params": best.params}, indent=1))
    chosen = " ".join(f"{name}={value}" for name, value in best.params.items())
    print(f"best of {len(finished)} trials: {best.value:.6g} with {chosen}")
    return 0
