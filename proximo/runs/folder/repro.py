"""RUN/repro: what an update with numbers that are not finite was computed from, for `proximo doctor RUN/repro`."""

from collections.abc import Iterator
from pathlib import Path

from proximo.catalog import config_class, parts_of
from proximo.errors import FilesError, NumbersError, UsageError
from proximo.models.save_folder import model_tree
from proximo.models.spaces import spec_from
from proximo.processes import world_from_environment
from proximo.runs.command_line import pasted
from proximo.runs.folder.checkpoint import load_tree, save_tree
from proximo.runs.folder.records import ReproFile
from proximo.runs.folder.run import Run, config_from

NAME = "repro"


def save_repro(run: Run, error: NumbersError) -> str:
    """Write the folder, if the error has evidence, and return the sentence that names it, or that the disk is full."""
    if error.evidence is None or world_from_environment().rank > 0:
        return ""
    found = error.evidence()
    tree = model_tree(run.variant, run.cfg, found["spec"], {}, found["weights"], run.custom_parts)
    try:
        save_tree(run.folder / NAME, tree | {name: found[name] for name in ("iteration", "rollout", "state")})
    except FilesError:
        return f" The batch and the weights could not be written to {run.folder / NAME}."
    if custom := [name for name in ("make_agent", "config") if name in run.custom_parts]:
        return (f" The batch and the weights are kept in {run.folder / NAME}. proximo doctor does not explain them, "
                f"because {' and '.join(custom)} {'was' if len(custom) == 1 else 'were'} passed from Python.")
    return f" The batch and the weights are kept: proximo doctor {pasted(run.folder / NAME)} shows where it begins."


def explain_repro(folder: Path) -> Iterator[tuple[bool, str]]:
    """Compute the update in a folder again, and yield its quantities up to the first that is not finite.

    Raises:
        UsageError: There is no such folder.
        FilesError: A file is damaged, or the network is not one of Proximo's own.
    """
    from proximo.on_torch.repro import explain

    if not (folder / "tree.json").is_file():
        raise UsageError(f"{folder} is not the folder of a failed update. A run that ends with exit code 4 writes one: "
                         f"RUN/{NAME}.")
    tree = load_tree(folder, ReproFile)
    cfg = config_from(tree["config"], config_class(tree["variant"]), folder)
    actor = parts_of(tree["variant"], "torch").make_actor(spec_from(tree), cfg, tree["weights"])
    try:
        yield from explain(actor.module, tree, cfg)
    except (LookupError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise FilesError(f"{folder} does not fit together ({type(error).__name__}: {str(error)[:200]}).") from error
