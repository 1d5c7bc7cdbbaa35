"""The program around the training loop, and Config, as definitions of a library."""

import sys
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from proximo.config import Config
from proximo.envs.atari_ids import is_atari, read_atari_name
from proximo.envs.gym_ids import gym_id, make_registered
from proximo.envs.gym_source import env_source
from proximo.models.export.eject import main_program
from proximo.models.export.eject.config_class import config_text
from proximo.models.export.eject.definition import Definition
from proximo.models.export.eject.library import Library, definition_text
from proximo.problems import engine_of

REFUSAL = "    refuse_other_spaces(cfg.env_id)\n"
GAMES_REFUSAL = "    refuse_other_games(cfg.env_id)\n"
TRAINING = "TRAIN(cfg, MAKE_ENVS, make_agent, LOSS, None)"


def add_program(library: Library, cfg: Config, make_box: str, make_envs: Callable[..., Any]) -> None:
    """Add Config and the program.

    Args:
        library: Where they are added.
        cfg: The configuration.
        make_box: The name of the function of box_heads.py that makes heads of Box actions.
        make_envs: Makes the environments.
    """
    library.add(Definition("Config", sys.modules["proximo.config"], config_text(cfg)))
    find_id = getattr(sys.modules[make_envs.__module__], "mujoco_id", gym_id)  # the suite's own, if it has one
    places = {"TRAIN": ("proximo.on_torch.train", "train"), "LOSS": ("proximo.on_torch.loss", "ppo_loss"),
              "ASSEMBLE": ("proximo.on_torch.assemble", "assemble"),
              "MAKE_BOX": ("proximo.on_torch.box_heads", make_box),
              "MAKE_ENVS": (make_envs.__module__, make_envs.__name__),
              "FIND_ID": (find_id.__module__, find_id.__name__)}
    kinds, games = kinds_of_spaces(cfg, find_id), sticky_of_games(cfg)
    for line in kinds + games:
        library.add(Definition(line.split()[0], main_program, line))
    refusal = REFUSAL if kinds else GAMES_REFUSAL if games else ""
    for name in ("make_agent", "main", *(("kind_of", "refuse_other_spaces") if kinds else ()),
                 *(("refuse_other_games",) if games else ())):
        text = program_text(name).replace(REFUSAL, refusal)
        for placeholder, place in places.items():
            text = text.replace(placeholder, library.find(*place))
        library.add(Definition(name, main_program, text))


def sticky_of_games(cfg: Config) -> list[str]:
    """Return the line that says whether the id decides for sticky actions; none where --sticky decides or no game."""
    name = read_atari_name(cfg.env_id) if engine_of(cfg) in ("ale", "envpool") else None
    if name is None or name.sticky != getattr(cfg, "sticky", None):
        return []
    return [f"STICKY = {name.sticky > 0}  # whether the ids of this file mean sticky actions"]


def program_text(name: str) -> str:
    """Return the text of a function of the program, with its placeholders."""
    lines = definition_text(main_program.__name__, name).split("\n")
    return "\n".join(line.partition("  # type: ignore")[0] for line in lines)


def kinds_of_spaces(cfg: Config, find_id: Callable[[str], str]) -> list[str]:
    """Return the lines that say which spaces the file is made for; none for games, which all have the same."""
    if is_atari(cfg.env_id) or engine_of(cfg) != "gym":
        return []
    name = env_source(cfg, find_id).name
    make_registered(name, {}).close()  # UsageError where a package is missing
    env = gym.make(name, disable_env_checker=True)  # its spaces are of the classes that an ejected file finds
    env.close()
    return [f'ACTIONS = "{main_program.kind_of(env.action_space)}"  # the kinds of spaces that this file is made for',
            f'OBSERVATIONS = "{main_program.kind_of(env.observation_space)}"']
