"""Ids of Atari games: three generations of names for the same games, and their ROMs from the ale-py wheel."""

import difflib
import re
from pathlib import Path
from typing import NamedTuple

from proximo.errors import UsageError, notify


class AtariName(NamedTuple):
    """What an id means."""

    game: str  # as in ids: Breakout, SpaceInvaders
    sticky: float  # chance that the last action is repeated


def read_atari_name(env_id: str) -> AtariName | None:
    """`BreakoutNoFrameskip-v4`, `BreakoutDeterministic-v4`, `Breakout-v5` (sticky 0), `ALE/Breakout-v5` and the
    `-v0` ids (sticky 0.25, Machado et al. 2018) are all Breakout; None for an id of another form."""
    match = re.fullmatch(r"(ALE/)?([A-Za-z0-9]+?)(NoFrameskip-v4|NoFrameskip-v0|Deterministic-v4|Deterministic-v0|-v5)",
                         env_id)
    if not match:
        return None
    sticky = 0.25 if match[3].endswith("-v0") or (match[1] and match[3] == "-v5") else 0.0
    return AtariName(match[2], sticky)


def sticky_chance(env_id: str, sticky: float | None) -> float:
    """The chance that the last action is repeated: `sticky`, or what the id says, which is said where it is not 0."""
    name = read_atari_name(env_id)
    if sticky is not None:
        return sticky
    if name.sticky:
        notify(f"{env_id} repeats the last action with chance {name.sticky} at every frame (sticky actions); "
            f"{name.game}NoFrameskip-v4 does not, and --sticky sets it")
    return name.sticky


def find_rom(env_id: str) -> Path:
    """The ROM file of a game. Raises UsageError for an unknown game, or where ale-py is missing."""
    name = read_atari_name(env_id)
    if name is None:
        raise UsageError(f"env_id={env_id} is not the name of an Atari game; "
                         "write BreakoutNoFrameskip-v4, Breakout-v5 or ALE/Breakout-v5")
    game = name.game
    try:
        from ale_py import roms
    except ImportError as error:
        raise UsageError(f'{env_id} needs ale-py; pip install "proximo[atari]"') from error
    known = games_for_one()
    if game not in known:
        near = difflib.get_close_matches(game, known, 3, 0.5) or ["Breakout", "Pong"]
        raise UsageError(f"env_id={env_id}: there is no Atari game {game}; near it: "
                         + ", ".join(f"{name}NoFrameskip-v4" for name in near))
    return roms.get_rom_path(known[game])


def games_for_one() -> dict[str, str]:
    """The games that ale-py has for one player, and its name of each one's ROM; none where ale-py is missing."""
    try:
        from ale_py import roms
    except ImportError:
        return {}
    known = {rom.title().replace("_", ""): rom for rom in roms.get_all_rom_ids()}
    return {game: rom for game, rom in known.items() if game not in ("Combat", "Joust", "MazeCraze", "Warlords")}


def is_atari(env_id: str) -> bool:
    """Whether an id means an Atari game: by its form, or, since `Ant-v5` has the form of `Breakout-v5`, by its game."""
    name = read_atari_name(env_id)
    if env_id.startswith("ALE/") or "NoFrameskip" in env_id:
        return True
    return name is not None and (not env_id.endswith("-v5") or name.game in games_for_one())
