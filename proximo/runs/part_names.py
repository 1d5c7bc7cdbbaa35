"""The names of parts that a program passes: how config.json records them, and which arguments pass them again."""

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from proximo.models.read_folder import read_model
from proximo.runs.folder.checkpoint import MANIFEST
from proximo.runs.folder.files import is_folder
from proximo.runs.folder.run import parts_of_run

ARGUMENTS = {"env": "make_envs", "make_envs": "make_envs", "make_agent": "make_agent", "loss_fn": "loss_fn",
             "set_up": "set_up", "config": "config"}


def name_of(part: Any) -> str:
    """Return the name of a function or a class, or that of an object's class."""
    while isinstance(part, partial):
        part = part.func
    return str(getattr(part, "__name__", type(part).__name__))


def readers_among(parts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which of some parts, by argument, are custom functions, which alone can apply settings."""
    return tuple(name for name in ("make_envs", "make_agent")
                 if parts.get(name) is not None and is_of_program(parts[name]))


def is_of_program(part: Any) -> bool:
    """Return whether a function or a class is none of this package."""
    while isinstance(part, partial):
        part = part.func
    return not str(getattr(part, "__module__", "")).startswith("proximo.")


def resume_call(names: Iterable[str]) -> str:
    """Return the call that resumes a run with these arguments; "" without any."""
    return f"proximo.resume('RUN', {', '.join(f'{name}=...' for name in names)})" if names else ""


def custom_env_argument(names: Collection[str]) -> str:
    """Return which of some arguments, env or make_envs, has passed custom environments; "" if neither has."""
    return next((name for name in ("make_envs", "env") if name in names), "")


def custom_arguments(folder: Path) -> list[str]:
    """Return the arguments with which a program passed parts of the run, or of the run of the model, in a folder."""
    if not is_folder(folder):
        return []
    names = parts_of_run(folder)
    if not names and (folder / MANIFEST).exists():
        names = read_model(folder)["own_parts"]
    return [name for name in ARGUMENTS if name in names]
