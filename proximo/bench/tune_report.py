"""The messages of a search: how each trial ended, and the best one."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from proximo.bench.files import write_record
from proximo.bench.jobs import flags_of
from proximo.bench.ranges import Space
from proximo.bench.tune_search import Search, field_values
from proximo.bench.tune_study import REASON
from proximo.errors import notify
from proximo.runs.command_line import pasted

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial


def report_trial(trial: "FrozenTrial", space: Space) -> None:
    """Log how a trial ended, with its values, and why if it failed or is impossible."""
    value = "" if trial.value is None else f" {trial.value:.4g}"
    value = f" (last report{value})" if value and trial.state.name == "PRUNED" else value
    reason = trial.user_attrs.get(REASON, "")
    lines = f"\n{reason}" if reason else ""
    notify(f"trial {trial.number} {_outcome(trial)}{value} {field_values(trial.params, space)}{lines}")


def report_start(search: Search, folder: Path, trials: int) -> None:
    """Log what the search trains, because nothing else is logged until the first trial has ended."""
    runs = len(search.env_ids) * len(search.seeds)
    notify(f"trials: {trials}, runs of each: {runs}, steps of each run: {search.steps:,}, folder: {folder}")


def report_best(study: "Study", folder: Path, search: Search) -> int:
    """Log the best trial and the command that trains it on a new seed; write best.json.

    Returns:
        The exit code: 1 if no trial has finished.
    """
    from optuna.trial import TrialState

    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not finished:
        words = Counter(map(_outcome, study.get_trials(deepcopy=False)))
        counts = ", ".join(f"{count} {word}" for word, count in words.items())
        logs = f" The logs are {folder}/ENV/TRIAL/SEED.log." if words["fail"] else ""
        notify(f"no trial has finished ({counts}).{logs}")
        return 1
    best, params = study.best_trial, field_values(study.best_trial.params, search.space)
    write_record(folder / "best.json", {"value": best.value, "params": params})
    chosen = " ".join(f"{name}={value}" for name, value in params.items())
    train = ["proximo", "train", search.variant, "--env-id", search.env_ids[0], "--total-timesteps", search.steps]
    new_seed = ["--seed", max(search.seeds) + 1]
    notify(f"best of {len(finished)} trials: {best.value:.6g} with {chosen}\n"
           f"Next: {pasted(*train, *new_seed, *flags_of(search.overrides | params))}")
    return 0


def _outcome(trial: "FrozenTrial") -> str:
    word = trial.state.name.lower()
    return "impossible" if word == "pruned" and REASON in trial.user_attrs else word
