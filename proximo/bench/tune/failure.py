"""What a run that failed does to its trial and to the search."""

from pathlib import Path
from typing import TYPE_CHECKING

from proximo.bench.tune.study import NOT_FINITE, has_trained
from proximo.errors import FilesError, NumbersError, UsageError

if TYPE_CHECKING:
    from optuna import Study, Trial


class TrialRefusedError(UsageError):
    """The first trial cannot be trained with its values."""


class TrialRunError(Exception):
    """A run of a trial failed: the trial fails, and the search continues."""


def failure_of(trial: "Trial", study: "Study", code: int | None, folder: Path, lines: str) -> Exception:
    """Return what a failed run raises in the search, by its exit code.

    Numbers that are not finite are a result of the values: the trial is pruned, so that the sampler learns from it as
    from one that is worse than all with a score.

    Args:
        trial: The trial of the run.
        study: All trials.
        code: The exit code of the run.
        folder: The folder of the run.
        lines: The end of its log.
    """
    import optuna

    last = lines.rpartition("\n")[2]
    sentence = f"{folder}: {last or 'its log is empty'}"  # a full disk may leave it empty
    if code == UsageError.exit_code and not has_trained(study):
        return TrialRefusedError(lines)
    if code == FilesError.exit_code:
        return FilesError(f"{sentence}\nThe search has stopped, because its other runs would meet the same fault. The "
                          "same command continues it.")
    if code == NumbersError.exit_code:
        trial.set_user_attr(NOT_FINITE, sentence)
        return optuna.TrialPruned()
    return TrialRunError(f"{folder}: {lines}")
