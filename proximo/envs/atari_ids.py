"""Ids of Atari games: three generations of names for the same games, and their ROMs from the ale-py package."""

import difflib
import re
from pathlib import Path
from typing import NamedTuple, cast

from proximo.errors import UsageError, notify

SEVERAL_PLAYERS = ("Combat", "Joust", "MazeCraze", "Warlords")  # ROMs of ale-py that one player cannot play


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
        UsageError: The game is unknown, or ale-py is not installed.
    """
    game = atari_name(env_id).game
    try:
        from ale_py import roms
    except ImportError as error:
        raise UsageError(f'{env_id} needs ale-py: pip install "proximo[atari]"') from error
    known = games_for_one()
    if game not in known:
        near = difflib.get_close_matches(game, known, 3, 0.5) or ["Breakout", "Pong"]
        raise UsageError(f"env_id={env_id}: there is no Atari game {game}. Did you mean "
                         f"{' or '.join(f'{name}NoFrameskip-v4' for name in near)}?")
    return cast(Path, roms.get_rom_path(known[game]))  # not None, because the id is one of get_all_rom_ids()


def games_for_one() -> dict[str, str]:
    """Return ale-py's name of the ROM of each game for one player; {} if ale-py is not installed."""
    try:
        from ale_py import roms
    except ImportError:
        return {}
    known = {rom.title().replace("_", ""): rom for rom in roms.get_all_rom_ids()}
    return {game: rom for game, rom in known.items() if game not in SEVERAL_PLAYERS}


def is_atari(env_id: str) -> bool:
    """Return whether an id means an Atari game: by its form, and if other environments have the same form, by the game.

    `Ant-v5` has the form of `Breakout-v5`.
    """
    name = read_atari_name(env_id)
    if env_id.startswith("ALE/") or "NoFrameskip" in env_id:
        return True
    return name is not None and (not env_id.endswith("-v5") or name.game in games_for_one())
