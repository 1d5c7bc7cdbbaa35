"""Load the model of a run, and what makes its environments, for commands."""

import os
from dataclasses import replace
from pathlib import Path

from proximo.catalog import Parts, parts_of
from proximo.envs.custom.imports import check_imports, with_moved_script
from proximo.envs.gym_source import joined_kwargs
from proximo.errors import UsageError
from proximo.models.model import Model
from proximo.problems import config_problems
from proximo.runs.folder.run import BEST, check_folder
from proximo.runs.part_names import custom_arguments, custom_env_argument
from proximo.runs.run_group import check_one_run
from proximo.runs.settings.resolve import usage_errors
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
        if path.name == BEST:
            raise UsageError(f"{path} is the best model already. Leave --best out.")
        if (path.parent / BEST).is_dir():
            raise UsageError(f"--best needs the folder of a run. Give {path.parent} instead of {path}.")
        raise UsageError(f"{path} has no {BEST}: no evaluation took place. Train with --eval-every N.")
    if "make_agent" in custom_arguments(path):
        raise UsageError(f"{path} was trained with a network of its own, which only its program has. {_play(path)} The "
                         f"model of {_call('load', path)} can act and export.")
    return load(path / BEST if best else path)


def load_run(path: Path, allow_import: tuple[str, ...], best: bool = False, env_id: str = "",
             env_kwargs: tuple[str, ...] = (), for_card: bool = False) -> tuple[Model, Parts]:
    """Return the model of a run or of a model folder, and what makes its environments.

    Args:
        path: The folder.
        allow_import: The modules and scripts that it may name.
        best: Return the best model of the evaluations during training.
        env_id: Another environment to play in, without the arguments of that of the run; empty: that of the run.
        env_kwargs: Arguments of the environment, key=value; they take precedence over those of the run.
        for_card: A card is to be written, which says how anybody makes the environment.

    Raises:
        UsageError: As for `model_of_run`, or it has an environment of its own, or names a module that is not allowed.
        FilesError: There is no model, or it is damaged.
    """
    if custom_env_argument(custom_arguments(path)) and not env_id:
        advice = "For a card, train with --env-file, or with an id of a module." if for_card else _play(path)
        raise UsageError(f"{path} was trained in an environment of its own, which only its program has. {advice}")
    model = model_of_run(path, best)
    cfg = with_moved_script(replace(model.cfg, env_id="", env_file="") if env_id else model.cfg, allow_import)
    check_imports(cfg, allow_import, path)
    kwargs = joined_kwargs(*(() if env_id else cfg.env_kwargs), *env_kwargs)
    model.cfg = replace(cfg, env_id=env_id or cfg.env_id, env_kwargs=kwargs)
    if (env_id or env_kwargs) and (wrong := config_problems(model.cfg)):
        raise UsageError("\n".join(wrong))
    return model, parts_of(model.variant, "torch")


def _play(path: Path) -> str:
    """Return a sentence with the calls that evaluate and record a run in its program."""
    return f"Use {_call('evaluate', path)} there, or {_call('watch', path, repr('video.mp4'))}."


def _call(function: str, path: Path, *arguments: str) -> str:
    """Return the call of a function of proximo with the parts of a run that its program has to pass again."""
    takes = ("make_agent", "config") if function == "load" else ("env", "make_envs", "make_agent", "config")
    passed = [f"{name}=..." for name in custom_arguments(path) if name in takes]
    folder = repr(os.path.abspath(path))  # the program may run in another folder
    return f"proximo.{function}({', '.join([folder, *arguments, *passed])})"


def missing_run(path: Path) -> list[str]:
    """Return why a path is not one run or model, to be reported together with other mistakes; nothing if it is."""
    return usage_errors(lambda: check_folder(path)) or usage_errors(lambda: check_one_run(path))
