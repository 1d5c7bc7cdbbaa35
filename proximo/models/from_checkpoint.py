"""The model that a checkpoint holds: its weights and statistics, and all else from the newest model of the run."""

from pathlib import Path
from typing import Any

from proximo.envs.moments import Moments
from proximo.errors import FilesError, reading
from proximo.models.save_folder import moments_of
from proximo.models.weights import checkpoint_weights
from proximo.runs.checkpoint import MANIFEST, checkpoints, load_tree
from proximo.runs.records import Checkpoint, ModelFile


def is_checkpoint(folder: Path) -> bool:
    """Return whether a folder is RUN/checkpoints/ITERATION."""
    return folder.name.isdigit() and folder.parent.name == "checkpoints" and (folder / MANIFEST).is_file()


def model_of_checkpoint(folder: Path, newest: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the environment steps of a checkpoint, and its model as `read_model` returns it.

    Args:
        folder: The checkpoint.
        newest: What `read_model` returns for its run.

    Raises:
        FilesError: It is damaged, or belongs to another network.
    """
    state = load_tree(folder, Checkpoint)["state"]
    with reading(f"{folder} does not fit the model of its run", "Use another checkpoint."):
        model = newest | {"weights": checkpoint_weights(state, newest["weights"])}
        for name in moments_of(newest):
            model[f"{name}_moments"] = {field: state["statistics"][f"{name}_{field}"] for field in Moments._fields}
        return state["steps"], model


def load_model_tree(folder: Path) -> dict[str, Any]:
    """Return what the folder of a model holds; FilesError, with what to do, if it is damaged."""
    try:
        return load_tree(folder, ModelFile)
    except FilesError as error:
        advice = [str(error).rstrip(".")]
        if "Restore" not in advice[0]:
            advice.append("Restore it from a copy")
        if checkpoints(folder.parent):
            advice.append(f"A resume of {folder.parent} that trains longer writes the model again")
        raise FilesError(f"{'. '.join(advice)}.") from error


def without_model(path: Path) -> FilesError:
    """Return the error for a folder that has no model."""
    advice = "It has checkpoints: a resume that trains longer writes the model again" if checkpoints(path) else \
        "Give a run that has reached a checkpoint, or the folder of a model"
    return FilesError(f"{path} contains no model. {advice}.")
