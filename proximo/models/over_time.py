"""The models of a run over time: one for each checkpoint."""

from pathlib import Path
from typing import Any

from proximo.envs.moments import Moments
from proximo.errors import FilesError, warn
from proximo.models.model import read_model
from proximo.models.weights import checkpoint_weights
from proximo.runs.checkpoint import checkpoints, load_tree
from proximo.runs.records import Checkpoint


def models_over_time(run: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return (environment steps, model as `read_model` returns it) for each checkpoint of a run, oldest first.

    Damaged checkpoints are left out with a warning.

    Raises:
        FilesError: The run has no model.
    """
    newest, found = read_model(run), []
    for folder in checkpoints(run):
        try:
            state = load_tree(folder, Checkpoint)["state"]
        except FilesError as error:
            warn(f"{error}. This checkpoint is left out.")
            continue
        weights = checkpoint_weights(state, newest["weights"])
        model = newest | {"weights": weights}
        if "obs_moments" in newest:
            model["obs_moments"] = {field: state["statistics"][f"obs_{field}"] for field in Moments._fields}
        found.append((state["steps"], model))
    return found
