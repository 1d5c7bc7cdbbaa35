"""The messages of a search: how each trial ended, and the best one."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proximo.bench.files import write_record
from proximo.bench.jobs import flags_of
from proximo.bench.space import Space, combinations
from proximo.bench.text import count_text
from proximo.bench.tune.search import Search, field_values
from proximo.bench.tune.study import NOT_FINITE, REASON, outcome
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
    if outcome(trial) == NOT_FINITE:
        reason = f"It counts as worse than all trials with a score. {trial.user_attrs[NOT_FINITE]}"
    lines = f"\n{reason}" if reason else ""
    notify(f"trial {trial.number} {outcome(trial)}{value} {_values_text(field_values(trial.params, space))}{lines}")


def _values_text(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={f'{one:.4g}' if isinstance(one, float) else one}" for name, one in values.items())


def report_start(search: Search, folder: Path, trials: int) -> None:
    """Log what the search trains, because nothing else is logged until the first trial has ended; and what repeats."""
    runs = len(search.env_ids) * len(search.seeds)
    notify(f"trials: {trials}, runs of each: {runs}, steps of each run: {search.steps:,}, folder: {folder}")
    if (count := combinations(search.space)) < trials:
        notify(f"[space] has {count_text(int(count), 'combination')} of values for {trials} trials: the other trials "
               "repeat values, and take over the runs that have finished with them.")


def report_best(study: "Study", folder: Path, search: Search) -> int:
    """Log the best trial and the commands that train it on a new seed; write best.json.

    Returns:
        The exit code: 1 if no trial has finished.
    """
    from optuna.trial import TrialState

    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not finished:
        words = Counter(map(outcome, study.get_trials(deepcopy=False)))
        counts = ", ".join(f"{count} {word}" for word, count in words.items())
        logs = f" The logs are {folder}/ENV/TRIAL/SEED.log." if words["fail"] or words[NOT_FINITE] else ""
        narrow = (" Narrow the ranges of [space], such as the largest learning_rate, and choose another folder with "
                  "--out.")
        notify(f"no trial has finished ({counts}).{narrow * (set(words) == {NOT_FINITE})}{logs}")
        return 1
    best, params = study.best_trial, field_values(study.best_trial.params, search.space)
    write_record(folder / "best.json", {"value": best.value, "params": params})
    rest = ["--total-timesteps", search.steps, "--seed", max(search.seeds) + 1, *flags_of(search.overrides | params)]
    commands = [pasted("proximo", "train", search.variant, "--env-id", env_id, *rest) for env_id in search.env_ids]
    if others := len(study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))):
        notify(f"{count_text(others, 'trial')} of other processes {'are' if others > 1 else 'is'} still training. The "
               "last process writes best.json again.")
    notify("\n".join([f"best of {len(finished)} trials: {best.value:.6g} with {_values_text(params)}",
                      *(f"Next: {command}" for command in commands)]))
    return 0
