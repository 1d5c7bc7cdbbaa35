"""Reading models: the folder of a model, of a run, or of a checkpoint, which holds weights and statistics only."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from proximo.config import Config
from proximo.envs.arrays.moments import IN_MODELS
from proximo.envs.machine.memory_needs import network_memory
from proximo.errors import FilesError, reading, warn
from proximo.models.model import Model
from proximo.models.save_folder import moments_of
from proximo.models.spaces import spec_from
from proximo.models.weights import check_numbers, checkpoint_weights
from proximo.runs.folder.checkpoint import MANIFEST, MOST_BYTES, checkpoints, load_tree
from proximo.runs.folder.records import Checkpoint, ModelFile
from proximo.runs.folder.run import BEST, check_folder, parts_of_run
from proximo.runs.folder.version_0_1 import refuse_checkpoint
from proximo.runs.folder.writing import OF_THE_PROCESS, number_of


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
    try:
        state = load_tree(folder, Checkpoint)["state"]
    except FilesError:
        refuse_checkpoint(folder, MOST_BYTES)
        raise
    with reading(f"{folder} does not fit the model of its run", "Use another checkpoint."):
        model = newest | {"weights": checkpoint_weights(state, newest["weights"])}
        for name in moments_of(newest):
            model[f"{name}_moments"] = {field: state["statistics"][f"{name}_{field}"] for field in IN_MODELS}
        return state["steps"], model


def load_model_tree(folder: Path) -> dict[str, Any]:
    """Return what the folder of a model holds; FilesError, with what to do, if it is damaged."""
    try:
        return load_tree(folder, ModelFile)
    except FilesError as error:
        if number_of(error.__cause__) in OF_THE_PROCESS:
            raise
        said = str(error).rstrip(".")
        if isinstance(error.__cause__, PermissionError):
            raise FilesError(f"{said}. Its owner can allow it: chmod -R a+rX {folder}") from error
        advice = [said]
        if "Restore" not in said:
            advice.append("Restore it from a copy")
        if checkpoints(folder.parent):
            advice.append(f"A resume of {folder.parent} that trains longer writes the model again")
        raise FilesError(f"{'. '.join(advice)}.") from error


def without_model(path: Path) -> FilesError:
    """Return the error for a folder that has no model."""
    advice = "It has checkpoints: a resume that trains longer writes the model again" if checkpoints(path) else \
        "Give a run that has reached a checkpoint, or the folder of a model"
    return FilesError(f"{path} contains no model. {advice}.")


def read_model(path: Path) -> dict[str, Any]:
    """Read the folder of a model, of a run that has saved one, or of a checkpoint of a run.

    A model of an earlier version has no `own_parts`: those of the run in whose folder it lies are added.

    Raises:
        UsageError: There is no such folder.
        FilesError: There is no model in it, or it is damaged.
    """
    check_folder(path)
    if is_checkpoint(path):
        return model_of_checkpoint(path, read_model(path.parent.parent))[1]
    for folder in (path, path / "model"):
        if (folder / MANIFEST).exists():
            tree = load_model_tree(folder)
            if "own_parts" not in tree:
                tree["own_parts"] = parts_of_run(folder.parent) if folder.name in ("model", BEST) else {}
            return tree
    raise without_model(path)


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


def model_from(tree: dict[str, Any], cfg: Config, make_actor: Callable[..., Any]) -> Model:
    """Build a model from what `read_model` returned.

    Args:
        tree: The content of a model folder.
        cfg: Its configuration.
        make_actor: `make_actor(spec, cfg, weights)` rebuilds the network.

    Raises:
        FilesError: The weights belong to another network, a number is not finite, a space is impossible, or
            the network does not fit into the memory.
    """
    check_numbers(tree)
    moments, spec = moments_of(tree), spec_from(tree)
    if wrong := network_memory(cfg, spec):
        raise FilesError("\n".join(f"the model has {sentence}" for sentence in wrong))
    custom = [f"{name}=..." for name in ("make_agent", "config") if name in tree["own_parts"]]
    advice = f"Pass {' and '.join(custom)} of its program." if custom else "Use the folder that Proximo wrote."
    with reading("The network of the model cannot be made", advice):
        model = Model(make_actor(spec, cfg, tree["weights"]), spec, cfg, tree["variant"], moments.get("obs"))
    model.custom_parts, model.return_moments = tree["own_parts"], moments.get("ret")
    return model
