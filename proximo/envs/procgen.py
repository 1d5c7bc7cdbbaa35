"""Procgen's sixteen games of generated levels (Cobbe et al. 2020), on EnvPool."""

import difflib
from collections.abc import Sequence
from dataclasses import replace

from proximo.envs.envpool import make_envpool
from proximo.envs.envpool_ids import import_envpool
from proximo.errors import UsageError, warn
from proximo.protocols import VecEnv
from proximo.variants import Procgen

MODES = ("Easy", "Hard", "Extreme", "Memory", "Exploration")
GAMES = ("bigfish", "bossfight", "caveflyer", "chaser", "climber", "coinrun", "dodgeball", "fruitbot", "heist",
         "jumper", "leaper", "maze", "miner", "ninja", "plunder", "starpilot")


def make_procgen(cfg: Procgen, seeds: Sequence[int]) -> VecEnv:
    """Make environments of a Procgen game. An episode has no time limit other than that of the game.

    Args:
        cfg: Its `env_id` is a game (starpilot) or an id of EnvPool (StarpilotEasy-v0); its `distribution_mode`,
            `num_levels` and `start_level` describe the levels.
        seeds: One seed per environment.

    Returns:
        The environments, without normalisation. Observations are (3, 64, 64) uint8.

    Raises:
        UsageError: The game or its mode is unknown, or a package is missing.
    """
    name = procgen_id(cfg.env_id, cfg.distribution_mode, import_envpool("procgen").list_all_envs())
    levels = {"num_levels": cfg.num_levels, "start_level": cfg.start_level}
    return make_envpool(replace(cfg, env_id=name), seeds, levels)


def procgen_id(env_id: str, mode: str, all_ids: list[str]) -> str:
    """Return EnvPool's id of a game in a mode.

    Args:
        env_id: The game, or an id. An id of EnvPool names its own mode, which is used instead of `mode`.
        mode: "easy", "hard", ...
        all_ids: All ids of EnvPool.

    Raises:
        UsageError: The game is unknown, or does not have the mode.
    """
    game, named = read_procgen_name(env_id)
    if named and named.lower() != mode:
        warn(f"{env_id} is the {named.lower()} mode: --distribution-mode {mode} is not used.")
    name = f"{game.capitalize()}{named or mode.capitalize()}-v0"
    if game in GAMES and name in all_ids:
        return name
    if game in GAMES:
        modes = [known.lower() for known in MODES if f"{game.capitalize()}{known}-v0" in all_ids]
        raise UsageError(f"{game} has no mode {(named or mode).lower()}. Use {', '.join(modes)}.")
    near = difflib.get_close_matches(game, GAMES, 3, 0.4)
    advice = f"Did you mean {' or '.join(near)}?" if near else f"Use {', '.join(GAMES)}."
    raise UsageError(f"env_id={env_id} is not a game of Procgen. {advice}")


def read_procgen_name(env_id: str) -> tuple[str, str | None]:
    """Return the game that an id means, and its mode or None.

    `starpilot`, `StarpilotEasy-v0` and `procgen:procgen-starpilot-v0` are all starpilot; the second one has a mode. The
    game may be unknown: GAMES has all known ones.
    """
    game = env_id.lower().removeprefix("procgen:procgen-").removesuffix("-v0")
    named = next((known for known in MODES if game.endswith(known.lower())), None)
    return (game.removesuffix(named.lower()), named) if named else (game, None)
