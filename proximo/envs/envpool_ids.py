"""EnvPool as a package: importing it with the libraries that it needs, and from an id to its name there."""

import ctypes
import difflib
import importlib.util
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from proximo.envs.atari_ids import read_atari_name
from proximo.errors import UsageError, notify


def import_envpool() -> ModuleType:
    """The package. Raises UsageError where it is missing or does not fit the system."""
    libraries_loaded()
    try:
        import envpool
    except ImportError as error:
        raise UsageError(f'EnvPool cannot be imported ({error}); pip install "proximo[envpool]", or '
                         "use another engine (proximo list)") from error
    return envpool


@cache
def libraries_loaded() -> bool:
    """Loads Qt (for Procgen; from PyQt5-Qt5 where that is installed) and EGL (for pictures of MuJoCo) for EnvPool.

    Both help only before EnvPool's first import, so nothing else of ours imports it. False where somebody else did, or
    the system has no EGL: then a picture of MuJoCo would end the interpreter.
    """
    if "envpool" in sys.modules:
        return False
    found = importlib.util.find_spec("PyQt5")
    folders = (found.submodule_search_locations or ()) if found else ()
    qt = [Path(folder) / "Qt5" / "lib" / name for folder in folders for name in ("libQt5Core.so.5", "libQt5Gui.so.5")]
    loaded = [_loads(str(path)) for path in qt if path.exists()]
    return _loads("libEGL.so.1") and all(loaded)


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


def envpool_id(env_id: str, all_ids: list[str]) -> str:
    """The name in EnvPool: its own, or for the ids of Atari games and dm_control that Gymnasium uses. What is another
    name is said. Raises UsageError with the nearest names."""
    if env_id in all_ids:
        return env_id
    atari = read_atari_name(env_id)
    name = f"{atari.game}-v5" if atari else ""
    if env_id.startswith("dm_control/"):
        task = env_id.removeprefix("dm_control/").rpartition("-v")[0].replace("-", "").replace("_", "").lower()
        name = {known.lower(): known for known in all_ids}.get(f"{task}-v1", "")
    if name in all_ids:
        notify_once(f"{env_id} is {name} in EnvPool")
        return name
    near = difflib.get_close_matches(name or env_id, all_ids, 3, 0.5)
    advice = f"; near it: {', '.join(near)}" if near else "; try --engine gym"
    raise UsageError(f"env_id={env_id} is unknown to EnvPool{advice}")


def pool_threads(num_envs: int) -> int:
    """Engine threads of this process: the machine's cores, shared by the processes that torchrun started here."""
    ours = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # Linux only
    return max(1, min(ours // int(os.environ.get("LOCAL_WORLD_SIZE", "1")), num_envs))


@cache
def notify_once(sentence: str) -> None:
    """For what is said when a pool is made: a run makes one anew at every checkpoint."""
    notify(sentence)
