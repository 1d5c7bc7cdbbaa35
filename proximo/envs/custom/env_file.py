"""What a Python file has that `env_file` names: a class, a function or an id of one environment, or make_envs."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import registry

from proximo.config import Config
from proximo.envs.custom.imports import load_script, split_file
from proximo.errors import UsageError

MAKE_ENVS = "make_envs"  # name of the function (cfg, seeds) -> all environments as one object


def name_in_file(cfg: Config) -> tuple[str, str]:
    """Return env_id and env_file as they are recorded: which id, class or function is meant, and the path of the file.

    For the function make_envs the path ends with its name, and the id is that of the configuration or the file's name.

    Raises:
        UsageError: The file cannot be imported, or it is not clear which one is meant.
    """
    path, member = split_file(cfg.env_file)
    path = path.absolute()
    module = load_script(path)
    classes, ids = classes_in(module), ids_in(module)
    asked = "" if cfg.env_id == type(cfg).env_id else cfg.env_id
    has_make_envs = callable(getattr(module, MAKE_ENVS, None))
    if has_make_envs and (member == MAKE_ENVS or not (member or classes or ids)):
        return asked or path.stem, f"{path}:{MAKE_ENVS}"
    for name in (member, cfg.env_id):
        if name in ids or (name and callable(getattr(module, name, None))):
            return name, str(path)
    several = ids or classes
    if len(several) == 1 and not (member or asked or has_make_envs):
        return several[0], str(path)
    found = [*ids, *classes, *[MAKE_ENVS] * has_make_envs]
    asked = member or asked
    wrappers = classes_in(module, wrappers=True)
    makers = [name for name, one in vars(module).items() if isinstance(one, FunctionType)
              and one.__module__ == module.__name__]
    raise UsageError(f"env_file={path} has {', '.join(found) or 'no environment'}" + (
        f", and not {asked}" if asked else "") + (
        f". Name one: --env-file {path.name}:{(classes or ids or found)[0]}." if found else
        f". Name a wrapper that makes its environment itself: --env-file {path.name}:{wrappers[0]}." if wrappers else
        f". If a function of it makes one environment, name it: --env-file {path.name}:{makers[0]}." if makers else
        ". Define a subclass of gymnasium.Env in it, register an id, or define a function make_envs(cfg, seeds), such "
        "as make_envs = from_func_env(MyFuncEnv()) or from_parallel_env(MyGame)."))


def function_in_file(cfg: Config) -> Callable[[Any, Sequence[int]], Any] | None:
    """Return make_envs of the file that a configuration names; None if there is no file, or another thing is meant.

    Raises:
        UsageError: See name_in_file.
    """
    if not cfg.env_file:
        return None
    path, member = split_file(name_in_file(cfg)[1])
    return getattr(load_script(path), MAKE_ENVS) if member == MAKE_ENVS else None


def names_function(env_file: str) -> bool:
    """Return whether a recorded `env_file` names make_envs. The file is not read."""
    return split_file(env_file)[1] == MAKE_ENVS


def played_script(changes: Mapping[str, Any]) -> dict[str, str]:
    """Return what a run records of a script in `changes`: its absolute path, and what is named in it as env_id."""
    given = changes.get("env_file")
    if not given or not isinstance(given, (str, Path)):
        return {}
    path, member = split_file(os.path.expanduser(given))
    if member == MAKE_ENVS:
        return {"env_file": f"{path.absolute()}:{MAKE_ENVS}"}
    return {"env_file": str(path.absolute())} | ({"env_id": member} if member and "env_id" not in changes else {})


def with_function(changes: Mapping[str, Any], cfg: Config) -> dict[str, Any]:
    """Return the changes of a resume: a script that names nothing has make_envs, if the run has trained with it."""
    given = str(changes.get("env_file") or "")
    if given and not split_file(given)[1] and names_function(cfg.env_file):
        return {**changes, "env_file": f"{given}:{MAKE_ENVS}"}
    return dict(changes)


def classes_in(module: ModuleType, wrappers: bool = False) -> list[str]:
    """Return the names of the environment classes that a module defines, without wrappers or these alone."""
    return [name for name, one in vars(module).items() if isinstance(one, type) and issubclass(one, gym.Env)
            and one.__module__ == module.__name__ and issubclass(one, gym.Wrapper) == wrappers]


def ids_in(module: ModuleType) -> list[str]:
    """Return the ids that a module has registered, or whose environments it defines."""
    return [spec.id for spec in registry.values() if str(spec.entry_point).startswith(f"{module.__name__}:")
            or getattr(spec.entry_point, "__module__", "") == module.__name__]
