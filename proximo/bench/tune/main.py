"""proximo tune: search hyper-parameters with Optuna, over several seeds; the same command continues after a stop."""

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from proximo.bench.jobs import Job
from proximo.bench.names import folder_name
from proximo.bench.places.choice import open_place, where_problems
from proximo.bench.process import COMMAND, RunningJob, Work, close_job, record_if_finished, start_jobs
from proximo.bench.progress import progress
from proximo.bench.space_values import trial_problems
from proximo.bench.task import HERE, PATIENCE, Ended, Where, stop_all
from proximo.bench.tune.failure import TrialRefusedError, TrialRunError, failure_of
from proximo.bench.tune.halt import halt_on_signals
from proximo.bench.tune.messages import report_best, report_start, report_trial
from proximo.bench.tune.search import (
    EVALUATION,
    Search,
    final_score,
    is_evaluated,
    latest_score,
    load_search,
    never_evaluated,
    suggest,
)
from proximo.bench.tune.study import (
    FOLDER,
    REASON,
    REPORTS,
    SharedStudy,
    locked_when_free,
    queue_again,
    shared_study,
)
from proximo.bench.tune.trial_table import write_trials
from proximo.errors import FilesError, UsageError, notify

if TYPE_CHECKING:
    from optuna import Trial

REPORTS_PER_RUN = 10  # to the pruner


class Context(NamedTuple):
    """What all trials of a search share."""

    search: Search
    work: Work
    shared: SharedStudy
    trials: int


class TuneHaltedError(Exception):
    """The search was interrupted."""


def tune(file: str | Path, where: Where = HERE, out: str | Path = "", trials: int | None = None,
         command: Sequence[str] = COMMAND) -> int:
    """Run the trials that a search still lacks, and log the best one.

    Several processes, also on several machines, may run the same command: they share the trials.

    Args:
        file: The search file.
        where: Where runs are trained; `workers` is the number of trials at the same time.
        out: The folder of the runs and of study.journal (the study, unless the file names another storage of Optuna);
            empty: runs/tune/NAME.
        trials: Trials in total; None: as in the file.
        command: The words that start Proximo.

    Returns:
        The exit code. 0: a best trial was found; 1: no trial has finished; 130 or 143: interrupted.

    Raises:
        UsageError: The file or an argument has problems, the folder contains another search, Optuna is missing, or
            the first trial cannot be trained, for example because its environment does not exist.
    """
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise UsageError('proximo tune needs Optuna: pip install "proximo[tune]"') from error
    search = load_search(file)
    total = search.trials if trials is None else trials
    if problems := where_problems(where) + [f"trials={total} must be at least 1."] * (total < 1):
        raise UsageError("\n".join(problems))
    where = replace(where, workers=where.workers or 1)
    folder = Path(out or Path("runs") / "tune" / folder_name(search.name))
    folder.mkdir(parents=True, exist_ok=True)
    with halt_on_signals() as halt, shared_study(search, folder, halt) as shared:
        with closing(open_place(where, folder)) as place:
            work = Work(folder=folder, place=place, where=where, command=tuple(command))
            report_start(search, folder, total)
            _run_trials(Context(search=search, work=work, shared=shared, trials=total))
        if halt.is_set():
            notify("stopped. The same command continues.")
            return 128 + halt.number
        with locked_when_free(folder, halt):  # other processes may write best.json at the same time
            return report_best(shared.study, folder, search)


def _run_trials(context: Context) -> None:
    """Run trials in as many threads as there are workers; a fault of one of them stops all."""
    count = context.work.where.workers or 1
    with ThreadPoolExecutor(count) as pool:
        for thread in [pool.submit(_run_worker, context) for _ in range(count)]:
            thread.result()


def _run_worker(context: Context) -> None:
    """Run trials; whatever ends one worker early ends the others too."""
    try:
        _run_until_enough(context)
    except BaseException:
        context.shared.halt.set()
        raise


def _run_until_enough(context: Context) -> None:
    import optuna
    from optuna.trial import TrialState

    study = context.shared.study
    while (trial := context.shared.next_trial(context.trials)) is not None:
        try:
            study.tell(trial, _run_trial(trial, context))
        except optuna.TrialPruned:
            study.tell(trial, state=TrialState.PRUNED)
        except TrialRunError as error:
            trial.set_user_attr(REASON, str(error))
            study.tell(trial, state=TrialState.FAIL)
        except BaseException as error:
            with suppress(FilesError):  # the disk is full: the trial is taken over as that of a process that was killed
                study.tell(trial, state=TrialState.FAIL)
                if trial.params and not isinstance(error, TrialRefusedError):
                    queue_again(study, study.trials[trial.number])
            if isinstance(error, TuneHaltedError):
                return
            raise
        report_trial(study.trials[trial.number], context.search.space)
        with locked_when_free(context.shared.folder, context.shared.halt):
            write_trials(study, context.shared.folder, context.search)


def _run_trial(trial: "Trial", context: Context) -> float:
    """Return the mean score over environments and seeds."""
    import optuna
    search = context.search
    values = suggest(trial, search.space)
    overrides: dict[str, Any] = search.overrides | values
    if problems := trial_problems(search.row, values) or never_evaluated(search, overrides):
        trial.set_user_attr(REASON, "\n".join(problems))
        raise optuna.TrialPruned(problems[0])
    name = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]
    trial.set_user_attr(FOLDER, name)
    for step, value in trial.user_attrs.get(REPORTS, {}).items():  # of the trial that this one continues
        trial.report(value, int(step))
    scores: list[float] = []
    compared: list[float | None] = []  # what the pruner sees of finished runs; None: no evaluation
    evaluated = is_evaluated(search, overrides)
    for seed in search.seeds:
        for env_id in search.env_ids:
            job = Job(variant=search.variant, env_id=env_id, seed=seed, steps=search.steps, label=name,
                      overrides=dict(overrides))
            with locked_when_free((context.work.folder / job.folder).parent, context.shared.halt):  # of equal trials
                scores.append(_run_job(trial, context, job, compared))
                run_dir = context.work.folder / job.folder
                compared.append(latest_score(run_dir, search, env_id, True) if evaluated else scores[-1])
    return float(np.mean(scores))


def _run_job(trial: "Trial", context: Context, job: Job, compared: list[float | None]) -> float:
    """Train or resume one run, unless it has finished, and return its score."""
    search, work = context.search, context.work
    while not record_if_finished(work.folder, job):
        if context.shared.halt.is_set():
            raise TuneHaltedError
        (running,) = start_jobs(work, [job])
        try:
            ended = _watch(trial, context, running, compared)
        finally:
            stop_all([running.handle], PATIENCE)
        outcome, lines = close_job(work.folder, running, ended)
        if outcome == "failed":
            raise failure_of(trial, context.shared.study, ended.code, job.folder, lines)
        if outcome == "lost":
            notify(f"again {job.folder} ({lines}): it continues from its newest checkpoint")
    score = final_score(work.folder / job.folder, search, job.env_id)
    if score is None:
        lack, more = ("evaluation", "") if search.metric == EVALUATION else ("episode", f' or metric = "{EVALUATION}"')
        raise TrialRunError(f"{job.folder}: no {lack} has ended, so there is no score. Use more steps{more}.")
    return score


def _watch(trial: "Trial", context: Context, running: RunningJob, compared: list[float | None]) -> Ended:
    """Wait for a task, and report the mean so far to the pruner: of evaluations or of training scores, never of both.

    Raises:
        TrialPruned: If the pruner gives up the trial.
        TuneHaltedError: The search was interrupted.
    """
    import optuna
    job, run_dir = running.job, context.work.folder / running.job.folder
    evaluated = is_evaluated(context.search, job.overrides)
    reports = _reports_due(run_dir, job)  # what a run that continues has reported before
    while (ended := running.handle.poll()) is None:
        if context.shared.halt.wait(0.1):
            raise TuneHaltedError
        due = _reports_due(run_dir, job)
        if due <= reports or None in compared:
            continue
        if (value := latest_score(run_dir, context.search, job.env_id, evaluated)) is not None:
            reports = due
            step, runs = len(compared) * REPORTS_PER_RUN + due, len(context.search.seeds) * len(context.search.env_ids)
            trial.report(float(np.mean([*compared, value])), step)
            if step < runs * REPORTS_PER_RUN and trial.should_prune():  # otherwise it has trained everything
                raise optuna.TrialPruned
    return ended


def _reports_due(run_dir: Path, job: Job) -> int:
    return min(REPORTS_PER_RUN, REPORTS_PER_RUN * progress(run_dir)[0] // job.steps)
