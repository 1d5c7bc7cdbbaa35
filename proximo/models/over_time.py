"""The models of a run over time: one for each checkpoint."""

from pathlib import Path
from typing import Any

from proximo.errors import FilesError, warn
from proximo.models.read_folder import model_of_checkpoint, read_model
from proximo.runs.folder.checkpoint import checkpoints


def models_over_time(run: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return (environment steps, model as `read_model` returns it) for each checkpoint of a run, oldest first.

    Damaged checkpoints are left out with a warning.

    Raises:
        FilesError: The run has no model.
    """
    newest, found = read_model(run), []
    for folder in checkpoints(run):
        try:
            found.append(model_of_checkpoint(folder, newest))
        except FilesError as error:
            warn(f"{str(error).rstrip('.')}. This checkpoint is left out.")
    return found
