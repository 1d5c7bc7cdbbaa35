"""Modules and scripts that an environment names: who may be imported, importing them, and what is wrong in them.

A name that a user types is imported. A name from a file (config.json of a run, a model, a benchmark file) is refused by
`check_imports`, which every reader of such files calls, unless the user allows it.
"""

import importlib
import importlib.util
import os
import re
import shlex
import sys
import zlib
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path, PureWindowsPath
from types import ModuleType

from proximo.config import Config
from proximo.envs.render import gl_advice, use_egl_when_headless
from proximo.errors import SAVE_AS_UTF8, UsageError, notify, place_of

KNOWN = {"ale_py": "proximo[atari]", "dm_control": "proximo[dm_control]", "gymnasium": "gymnasium",
         "gymnasium_robotics": "gymnasium-robotics", "minigrid": "proximo[minigrid]", "mujoco": "proximo[mujoco]",
         "proximo": "proximo", "shimmy": "proximo[dm_control]"}  # trusted modules, and what pip installs for each
OLD_GYM = ("GymV21Environment", "GymV26Environment")  # of shimmy: gym imports the module that their arguments name


def named_modules(cfg: Config) -> list[str]:
    """Return the modules and the script that a configuration names, without those of KNOWN, in order."""
    texts = (cfg.env_id, *cfg.env_wrappers)
    modules = [text.rpartition(":")[0] for text in texts if ":" in text]
    modules += ["gym"] * cfg.env_id.rpartition(":")[2].startswith(OLD_GYM)
    file, _ = split_file(cfg.env_file)
    found = [module for module in modules if module.partition(".")[0] not in KNOWN and module != file.stem]
    return list(dict.fromkeys([str(file)] * bool(cfg.env_file) + found))


def with_moved_script(cfg: Config, allowed: Collection[str]) -> Config:
    """Return the configuration with a script that the user has named in place of env_file, if their names are the same.

    A run whose project has moved, or that comes from another machine, has a path that leads nowhere.

    Args:
        cfg: The configuration from a file.
        allowed: Names of modules and paths of scripts that the user has given.
    """
    recorded, member = split_file(cfg.env_file)
    name = PureWindowsPath(str(recorded)).name  # of a path of any operating system
    found = {Path(one).absolute() for one in allowed if one.endswith(".py") and PureWindowsPath(one).name == name}
    if not cfg.env_file or len(found) != 1 or recorded.absolute() in found:
        return cfg
    path = found.pop()
    notify(f"env_file={path} takes the place of {recorded}.")
    return replace(cfg, env_file=f"{path}:{member}" if member else str(path))


def check_imports(cfg: Config, allowed: Collection[str], source: object) -> None:
    """Refuse a configuration from a file that names modules or a script which the user has not allowed.

    Args:
        cfg: The configuration.
        allowed: Names of modules, which also allow the modules inside them, and paths of scripts.
        source: The file or folder that it was read from, for the message.

    Raises:
        UsageError: Something is not allowed; one sentence for each.
    """
    refused = [name for name in named_modules(cfg) if not any(_covers(one, name) for one in allowed)]
    if refused:
        raise UsageError("\n".join(_refusal(source, name) for name in refused))


def _refusal(source: object, name: str) -> str:
    """Return why a module or script is refused, and how it is allowed."""
    if name.endswith(".py") and not Path(name).is_file():
        here = f"PATH/{PureWindowsPath(name).name}"
        return (f"{source} names the file {name}, which does not exist on this machine. If you have it in another "
                f"place and trust it, add --allow-import {shlex.quote(here)} (from Python: allow_import=[{here!r}]).")
    kind = "file" if name.endswith(".py") else "module"
    return (f"{source} names the {kind} {name}, whose code would run on this machine. If you trust it, add "
            f"--allow-import {shlex.quote(name)} (from Python: allow_import=[{name!r}]).")


def import_flags(cfg: Config, elsewhere: bool = False) -> list[str]:
    """Return the flags with which a later command may import what a configuration names.

    Args:
        cfg: The configuration.
        elsewhere: The command is one on another machine: a script is named without its folder.
    """
    return [word for name in named_modules(cfg)
            for word in ("--allow-import", PureWindowsPath(name).name if elsewhere and name.endswith(".py") else name)]


def _covers(allowed: str, name: str) -> bool:
    if name.endswith(".py"):
        return Path(allowed).absolute() == Path(name).absolute()
    return name == allowed or name.startswith(f"{allowed}.")


def import_named(module: str, named_by: str) -> ModuleType:
    """Import a module, also from the working directory unless it is one of KNOWN. The import is announced.

    Args:
        module: Its name.
        named_by: Where it was named, for messages, such as `env_id=my_envs:MyEnv-v0`.

    Raises:
        UsageError: It cannot be found, or has an error of its own; the message has file and line.
    """
    if module not in sys.modules and module.partition(".")[0] not in KNOWN:
        notify(f"Importing the module {module} ({named_by}).")
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
    use_egl_when_headless()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise UsageError(_import_fault(module, named_by, error)) from error
        known = KNOWN.get(module.partition(".")[0])
        advice = f'Install it: pip install "{known}"' if known else \
            "Install it, run the command in the folder that holds it, or name its file with --env-file."
        raise UsageError(f"{named_by}: the module {module} cannot be imported ({error}). {advice}") from error
    except (Exception, SystemExit) as error:
        raise UsageError(_import_fault(module, named_by, error)) from error


def _import_fault(what: str, named_by: str, error: BaseException) -> str:
    """Return a sentence with the place where importing failed."""
    if isinstance(error, SyntaxError):
        place = f"{error.filename}, line {error.lineno}" if error.filename else what
        other = "null bytes" in error.msg or "byte 0xff" in error.msg or "byte 0xfe" in error.msg
        cause = f"{error.msg}. It may be UTF-16. {SAVE_AS_UTF8}".removesuffix(".") if other else error.msg
    else:
        place, cause = place_of(error) or "its file", str(error).rstrip(".")
    return f"{named_by}: importing {what} fails in {place} with {type(error).__name__}: {cause}{gl_advice(error)}"


def split_file(text: str) -> tuple[Path, str]:
    """Return the path and the name after it, "" where there is none, of `my_env.py` or `my_env.py:MyEnv`."""
    match = re.fullmatch(r"(.*\.py)(?::([^:/\\]+))?", text)
    return (Path(match[1]), match[2] or "") if match else (Path(text), "")


def load_script(path: Path) -> ModuleType:
    """Import a script by its path. Its folder is searched for what it imports.

    Args:
        path: Its absolute path.

    Raises:
        UsageError: The file does not exist, is not a Python file, or raises an exception.
    """
    if path.suffix != ".py" or not os.path.isfile(path):  # False also for a path that is too long
        wrong = "is not a Python file" if os.path.exists(path) else "does not exist"
        raise UsageError(f"env_file={path} {wrong}. Give the path of a Python file: --env-file my_env.py or --env-file "
                         "my_env.py:MyEnv.")
    name = _module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    notify(f"Running the file {path} (env_file).")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    use_egl_when_headless()
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise UsageError(_import_fault(path.name, f"env_file={path}", error)) from error
    return module


def _module_name(path: Path) -> str:
    """Return the name of the file, by which ids may be registered; another one where a module has that name."""
    other = f"env_file_{zlib.crc32(str(path).encode())}"
    if not path.stem.isidentifier():
        return other
    if path.stem in sys.modules:
        place = getattr(sys.modules[path.stem], "__file__", None)
    else:
        found = importlib.util.find_spec(path.stem)
        place = found.origin if found else str(path)
    return path.stem if place and Path(place).absolute() == path else other
