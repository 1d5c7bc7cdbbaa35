"""Load the model of a run, and what makes its environments, for commands."""

from pathlib import Path

from proximo.catalog import Parts, parts_of
from proximo.envs.imports import check_imports, with_moved_script
from proximo.errors import UsageError
from proximo.models.model import Model
from proximo.runs.own_parts import own_arguments, own_env_argument
from proximo.runs.resolve import usage_errors
from proximo.runs.run import BEST, check_folder
from proximo.runs.run_group import check_one_run
from proximo.runs.trained import load


def model_of_run(path: Path, best: bool = False) -> Model:
    """Return the model of a run or of a model folder.

    Args:
        path: The folder.
        best: Return the best model of the evaluations during training.

    Raises:
        UsageError: It is the folder of several runs, has no best model, or has a network of its own.
        FilesError: There is no model, or it is damaged.
    """
    check_one_run(path)
    if best and not (path / BEST).is_dir():
        raise UsageError(f"{path} has no {BEST}: no evaluation took place. Train with --eval-every N.")
    if "make_agent" in own_arguments(path):
        raise UsageError(f"{path} was trained with a network of its own, which only its program has. Use proximo.load("
                         f"{str(path)!r}, make_agent=...) there: its model can act and export, and proximo.evaluate "
                         "and proximo.watch play with it.")
    return load(path / BEST if best else path)


def load_run(path: Path, allow_import: tuple[str, ...], best: bool = False) -> tuple[Model, Parts]:
    """Return the model of a run or of a model folder, and what makes its environments.

    `allow_import` has the modules and scripts that it may name; otherwise as for `model_of_run`.

    Raises:
        UsageError: As for `model_of_run`, or it has an environment of its own, or names a module that is not allowed.
        FilesError: There is no model, or it is damaged.
    """
    if argument := own_env_argument(own_arguments(path)):
        raise UsageError(f"{path} was trained in an environment of its own, which only its program has. Use "
                         f"proximo.evaluate({str(path)!r}, {argument}=...) or proximo.watch there. For a card, train "
                         "with --env-file, or with an id of a module.")
    model = model_of_run(path, best)
    model.cfg = with_moved_script(model.cfg, allow_import)
    check_imports(model.cfg, allow_import, path)
    return model, parts_of(model.variant, "torch")


def missing_run(path: Path) -> list[str]:
    """Return why a path is not one run or model, to be reported together with other mistakes; nothing if it is."""
    return usage_errors(lambda: check_folder(path)) or usage_errors(lambda: check_one_run(path))
