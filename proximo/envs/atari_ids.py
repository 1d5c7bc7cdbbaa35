"""Ids of Atari games: three generations of names for the same games, and their ROMs from the ale-py package."""

import difflib
import hashlib
import importlib.util
import json
import os
import re
from pathlib import Path
from typing import NamedTuple, cast

from proximo.errors import FilesError, UsageError, notify, one_line, warn_once

SEVERAL_PLAYERS = {"Combat": "combat_tank_v2", "Joust": "joust_v3", "MazeCraze": "maze_craze_v3",
                   "Warlords": "warlords_v3"}  # ROMs of ale-py that one player cannot play, and PettingZoo's ids
TAILS = ("NoFrameskip-v4", "NoFrameskip-v0", "Deterministic-v4", "Deterministic-v0", "-v5")
REINSTALL = "pip install --force-reinstall --no-deps ale-py"


class AtariName(NamedTuple):
    """What an id means."""

    game: str  # as in ids: Breakout, SpaceInvaders
    sticky: float  # probability that the last action is repeated


def read_atari_name(env_id: str) -> AtariName | None:
    """Return the game that an id means, or None for an id of another form.

    `BreakoutNoFrameskip-v4`, `BreakoutDeterministic-v4`, `Breakout-v5` (sticky 0), `ALE/Breakout-v5` and the `-v0` ids
    (sticky 0.25, Machado et al. 2018) are all Breakout.
    """
    match = re.fullmatch(r"(ALE/)?([A-Za-z0-9]+?)(NoFrameskip-v4|NoFrameskip-v0|Deterministic-v4|Deterministic-v0|-v5)",
                         env_id)
    if not match:
        return None
    sticky = 0.25 if match[3].endswith("-v0") or (match[1] and match[3] == "-v5") else 0.0
    return AtariName(game=match[2], sticky=sticky)


def atari_name(env_id: str) -> AtariName:
    """Return the game that an id means.

    Raises:
        UsageError: It has not the form of an Atari id.
    """
    name = read_atari_name(env_id)
    if name is None:
        check_meant(env_id, f"env_id={env_id} is not the id of an Atari game.")
        raise UsageError(f"env_id={env_id} is not the id of an Atari game. "
                         "Use an id such as BreakoutNoFrameskip-v4, Breakout-v5 or ALE/Breakout-v5.")
    return name


def sticky_chance(env_id: str, sticky: float | None) -> float:
    """Return the probability that the last action is repeated: `sticky`, or if it is None, that of the id."""
    if sticky is not None:
        return sticky
    name = atari_name(env_id)
    if name.sticky:
        notify(f"{env_id} repeats the last action with probability {name.sticky} at every frame (sticky actions). "
               f"{name.game}NoFrameskip-v4 does not, and --sticky sets another probability.")
    return name.sticky


def find_rom(env_id: str) -> Path:
    """Return the path of a game's ROM.

    Raises:
        UsageError: The game is unknown, or ale-py is not installed or does not import.
        FilesError: The ROM is missing or damaged.
    """
    game = atari_name(env_id).game
    try:
        from ale_py import roms
    except ImportError as error:
        raise UsageError(import_problem(env_id, error)) from error
    known = games_for_one()
    if game not in known:
        check_meant(env_id, f"env_id={env_id}: there is no Atari game {game}.")
        raise UsageError(f"env_id={env_id}: there is no Atari game {game}. "
                         "https://ale.farama.org/environments lists them.")
    check_rom(game, known[game])
    return cast(Path, roms.get_rom_path(known[game]))  # not None, because the id is one of get_all_rom_ids()


def import_problem(user: str, error: ImportError) -> str:
    """Return why `user` cannot have ale-py: it is not installed, or it is and does not import."""
    if isinstance(error, ModuleNotFoundError) and error.name == "ale_py":
        return f'{user} needs ale-py: pip install "proximo[atari]"'
    return f"{user} needs ale-py, which is installed and does not import ({one_line(error)}). Reinstall it: {REINSTALL}"


def check_meant(env_id: str, problem: str) -> None:
    """Raise UsageError if an id that cannot be played is similar to one that can, or its game is for several players.

    Args:
        env_id: The id.
        problem: The sentence on it, before the advice.
    """
    prefix = "ALE/" if env_id.lower().startswith("ale/") else ""
    tail = next((tail for tail in TAILS if env_id.lower().endswith(tail.lower())), "-v5" if prefix else TAILS[0])
    name = re.sub("^ale/", "", env_id.lower()).removesuffix(tail.lower())
    name = re.sub(r"-v\d+$", "", name).replace("_", "")
    lower = {game.lower(): game for game in (*games_for_one(), *SEVERAL_PLAYERS)}
    if (several := lower.get(name)) in SEVERAL_PLAYERS:
        raise UsageError(f"env_id={env_id}: {several} is a game of several players only. Use --env-id "
                         f"{SEVERAL_PLAYERS[several]} with ppo_pettingzoo_ma_atari, or a game for one player.")
    near = [name] if name in lower else difflib.get_close_matches(name, lower, 3, 0.7)
    if meant := [f"{prefix}{lower[one]}{tail}" for one in near if lower[one] not in SEVERAL_PLAYERS]:
        raise UsageError(f"{problem} Did you mean {' or '.join(meant)}?")


def check_rom(game: str, rom: str) -> None:
    """Raise FilesError if a ROM is missing or not the one that ale-py expects."""
    from ale_py import roms

    try:
        roms.get_rom_path(rom)
    except OSError as error:
        own = os.environ.get("ALE_ROMS_DIR")
        fault = ("is missing" if isinstance(error, FileNotFoundError) else
                 f"cannot be read ({one_line(error)})" if error.errno or isinstance(error, NotADirectoryError) else
                 "is damaged: its checksum is not the one that ale-py expects")
        advice = "Put ale-py's file into that folder, which ALE_ROMS_DIR names, or unset it" if own else \
            f"It belongs to ale-py. Reinstall it: {REINSTALL}"
        path = Path(own or Path(str(roms.__file__)).parent) / f"{rom}.bin"
        raise FilesError(f"The ROM of {game}, {path}, {fault}. {advice}") from error


def damaged_roms() -> tuple[str, ...]:
    """Return the names of ale-py's ROMs that are missing or damaged, without an import of ale-py."""
    spec = importlib.util.find_spec("ale_py")
    if spec is None or not spec.origin or "ALE_ROMS_DIR" in os.environ:  # that folder may have some of the games only
        return ()
    folder = Path(spec.origin).parent / "roms"
    try:
        sums = json.loads((folder / "md5.json").read_bytes())
    except (OSError, ValueError):
        return ("md5.json",)
    return tuple(name for name, checksum in sums.items() if _checksum(folder / name) != checksum)


def _checksum(path: Path) -> str:
    try:
        return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    except OSError:
        return ""


def games_for_one() -> dict[str, str]:
    """Return ale-py's name of the ROM of each game for one player; {} if ale-py is not installed or does not import."""
    try:
        from ale_py import roms
    except ImportError as error:
        if error.name != "ale_py":
            warn_once(import_problem("Atari", error))
        return {}
    known = {rom.title().replace("_", ""): rom for rom in roms.get_all_rom_ids()}
    return {game: rom for game, rom in known.items() if game not in SEVERAL_PLAYERS}


def is_atari(env_id: str) -> bool:
    """Return whether an id means an Atari game: by its form, and if other environments have the same form, by the game.

    `Ant-v5` has the form of `Breakout-v5`.
    """
    name = read_atari_name(env_id)
    if env_id.startswith("ALE/") or "noframeskip" in env_id.lower():
        return True
    return name is not None and (not env_id.endswith("-v5") or name.game in (*games_for_one(), *SEVERAL_PLAYERS))
