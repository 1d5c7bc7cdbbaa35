"""EnvPool as a package: its import with the libraries that it needs, its names of environments, its threads."""

import ctypes
import difflib
import importlib.util
import os
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from proximo.envs.atari_ids import read_atari_name
from proximo.envs.machine.cores import usable_cores
from proximo.errors import UsageError, notify_once


def import_envpool(extra: str = "envpool") -> ModuleType:
    """Import EnvPool.

    Args:
        extra: The extra of Proximo that installs what is needed of it.

    Raises:
        UsageError: EnvPool is not installed, or does not fit the system.
    """
    load_libraries()
    try:
        import envpool
    except ImportError as error:
        other = ", or use another engine (proximo list)" if extra == "envpool" else ""
        raise UsageError(f'EnvPool cannot be imported ({error}). Install it with pip install "proximo[{extra}]"'
                         f"{other}.") from error
    return envpool


@cache
def load_libraries() -> bool:
    """Load Qt (for Procgen; from PyQt5-Qt5 if that is installed) and EGL (for pictures of MuJoCo) for EnvPool.

    Both must be loaded before the first import of EnvPool, therefore only import_envpool imports it.

    Returns:
        False if EnvPool was imported before or the system has no EGL. A picture of MuJoCo would then end the
        interpreter.
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
    """Return EnvPool's name for an id of EnvPool, or with a message for Gymnasium's ids of Atari games and dm_control.

    Args:
        env_id: The id.
        all_ids: All names of EnvPool.

    Raises:
        UsageError: EnvPool does not have the environment; the message has the nearest names.
    """
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
    advice = nearest_ids(name or env_id, all_ids) or ("Use the name of a game, such as Breakout-v5." if atari else
                                                      "Use --engine gym for Gymnasium's environments.")
    raise UsageError(f"env_id={env_id} is unknown to EnvPool. {advice}")


def nearest_ids(env_id: str, all_ids: list[str]) -> str:
    """Return "Did you mean X?" for the ids of which the name without the version is near, or "" if none is."""
    by_name = {one.rpartition("-v")[0].lower(): one for one in sorted(all_ids)}  # of several versions the last
    given = re.sub(r"-v\d+$", "", env_id).lower()
    near = [by_name[name] for name in difflib.get_close_matches(given, by_name, 3, 0.75)]
    return f"Did you mean {' or '.join(near)}?" if near else ""


def pool_threads(num_envs: int) -> int:
    """Return the number of threads: the cores, divided by the processes that torchrun started on this machine."""
    return min(usable_cores(int(os.environ.get("LOCAL_WORLD_SIZE", "1"))), num_envs)
