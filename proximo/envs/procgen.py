"""Procgen's sixteen games of generated levels (Cobbe et al. 2020), on EnvPool."""

import difflib
from collections.abc import Sequence
from dataclasses import replace

from proximo.envs.envpool import make_envpool
from proximo.envs.envpool_ids import import_envpool
from proximo.errors import UsageError, notify
from proximo.protocols import VecEnv
from proximo.variants import Procgen

MODES = ("Easy", "Hard", "Extreme", "Memory", "Exploration")
GAMES = ("bigfish", "bossfight", "caveflyer", "chaser", "climber", "coinrun", "dodgeball", "fruitbot", "heist",
         "jumper", "leaper", "maze", "miner", "ninja", "plunder", "starpilot")


def make_procgen(cfg: Procgen, seeds: Sequence[int]) -> VecEnv:
    """One environment a seed, (3, 64, 64) uint8; `cfg.env_id` is a game (starpilot) or EnvPool's id (StarpilotEasy-v0).

    Episodes end by the game's own clock. Raises UsageError for an unknown game or mode, or a missing package.
    """
    if cfg.engine not in ("auto", "envpool"):
        raise UsageError(f"engine={cfg.engine} has no Procgen; use envpool")
    name = procgen_id(cfg.env_id, cfg.distribution_mode, import_envpool().list_all_envs())
    levels = {"num_levels": cfg.num_levels, "start_level": cfg.start_level}
    return make_envpool(replace(cfg, env_id=name), seeds, levels)


def procgen_id(env_id: str, mode: str, all_ids: list[str]) -> str:
    """EnvPool's id of a game in a mode; an id of EnvPool says its own mode, which then holds."""
    game, named = read_procgen_name(env_id)
    if named and named.lower() != mode:
        notify(f"{env_id} is the {named.lower()} mode: --distribution-mode {mode} is not used")
    name = f"{game.capitalize()}{named or mode.capitalize()}-v0"
    if game in GAMES and name in all_ids:
        return name
    if game in GAMES:
        has = [known.lower() for known in MODES if f"{game.capitalize()}{known}-v0" in all_ids]
        raise UsageError(f"{game} has no mode {(named or mode).lower()}; it has {', '.join(has)}")
    near = difflib.get_close_matches(game, GAMES, 3, 0.4) or GAMES
    raise UsageError(f"env_id={env_id} is no game of Procgen; near it: {', '.join(near)}")


def read_procgen_name(env_id: str) -> tuple[str, str | None]:
    """What an id means: `starpilot`, `StarpilotEasy-v0` and `procgen:procgen-starpilot-v0` are all starpilot, the
    second in a mode of its own; whether there is such a game is GAMES' business."""
    game = env_id.lower().removeprefix("procgen:procgen-").removesuffix("-v0")
    named = next((known for known in MODES if game.endswith(known.lower())), None)
    return (game.removesuffix(named.lower()), named) if named else (game, None)
