"""Which environment a configuration names, and which variant suits it."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from proximo.catalog import or_by_file, rows_per_game
from proximo.config import Config
from proximo.envs.arrays.model_fit import LEAST_PIXELS
from proximo.envs.atari_ids import is_atari
from proximo.envs.custom.env_file import name_in_file
from proximo.envs.gym import make_gym
from proximo.envs.gym_ids import current_gym_id, gym_id
from proximo.envs.gym_source import ENV_FIELDS, IMAGES, check_env_fields
from proximo.envs.pettingzoo import is_self_play
from proximo.envs.procgen import GAMES, read_procgen_name
from proximo.errors import UsageError
from proximo.facts import type_problems
from proximo.protocols import VecEnv


class Choice(NamedTuple):
    """The variant that suits an environment."""

    variant: str
    why: str
    settings: dict[str, Any]  # fields that differ from the variant's defaults, for images

    def settings_beside(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of fields that were not given; none if images are to be read as vectors."""
        of_vectors = given.get("model") == "mlp"
        return {} if of_vectors else {name: value for name, value in self.settings.items() if name not in given}


def played_env(cfg: Config) -> dict[str, Any]:
    """Return env_id and env_file as the run records them: a retired id becomes its successor, a file names its class.

    A file gets its absolute path, so that the run can be continued and played from another folder.
    """
    if cfg.env_file:
        try:
            name, path = name_in_file(cfg)
        except UsageError:  # is reported with all other problems, where the environment is made
            return {}
        return {"env_id": name, "env_file": path}
    gym_plays = cfg.engine in ("auto", "gym") and "gym" in cfg.limits.engines and not is_atari(cfg.env_id)
    return {"env_id": gym_id(cfg.env_id)} if gym_plays and current_gym_id(cfg.env_id) != cfg.env_id else {}


def config_of_env(values: dict[str, Any]) -> Config:
    """Return a default configuration with those of `values` that the choice of a variant depends on.

    Raises:
        UsageError: A value has a type that its field does not allow.
    """
    names = ("env_id", "engine", *ENV_FIELDS, *IMAGES)
    cfg = replace(Config(), **{name: values[name] for name in names if name in values})
    if wrong := type_problems(cfg):
        raise UsageError("\n".join(wrong))
    return cfg.resolved()


def check_given_id(values: Mapping[str, Any]) -> None:
    """Raise UsageError if `env_id` and `env_file` were both given and the file has another environment.

    Args:
        values: The fields that were given. A configuration does not say whether its default id was.
    """
    file = values.get("env_file")
    if isinstance(file, (str, os.PathLike)) and os.fspath(file) and "env_id" in values:
        try:
            name, path = name_in_file(config_of_env(dict(values)))
        except UsageError:  # is reported with all other problems, where the environment is made
            return
        if name != values["env_id"]:
            raise UsageError(f"env_file={path} has {name}, and env_id={values['env_id']} was given. Leave env_id out.")


def choose_variant(cfg: Config) -> Choice:
    """Return the variant for an environment: by the id if that says enough, otherwise by the spaces.

    Args:
        cfg: What `config_of_env` returned.

    Raises:
        UsageError: The environment cannot be made.
    """
    check_env_fields(cfg)
    if not cfg.env_file:
        if named := variant_by_name(cfg.env_id):
            return Choice(variant=named[0], why=named[1], settings={})
        if cfg.env_id.startswith("dm_control/"):
            return Choice(variant="ppo_continuous_action", why="an environment of dm_control", settings={})
        if cfg.env_id == "Pusher-v4":  # which EnvPool makes, and Gymnasium cannot
            return Choice(variant="ppo_continuous_action", why="continuous actions", settings={})
        cfg = replace(cfg, env_id=current_gym_id(cfg.env_id))
    else:
        cfg = replace(cfg, **played_env(cfg))  # its name, for messages
    rows = rows_per_game(cfg)
    cfg = replace(cfg, engine="envpool" if cfg.engine == "envpool" else "auto", env_workers=0, num_envs=rows)
    envs = or_by_file(make_gym)(cfg, [0] * rows)
    try:
        return variant_by_spaces(envs)
    finally:
        envs.close()


def variant_by_spaces(envs: VecEnv) -> Choice:
    """Return the variant for the spaces of environments, and for images a convolutional network."""
    images = (len(envs.obs_shape) == 3 and envs.obs_dtype == np.uint8
              and min(envs.obs_shape[1:]) >= LEAST_PIXELS["impala"])
    model = {"model": "cnn" if min(envs.obs_shape[1:]) >= LEAST_PIXELS["cnn"] else "impala"} if images else {}
    if isinstance(envs.action_space, gym.spaces.Box):
        return Choice(variant="ppo_continuous_action", why="continuous actions",
                      settings=model | {"norm_obs": False} if images else {})
    several = isinstance(envs.action_space, (gym.spaces.Dict, gym.spaces.Tuple))
    return Choice(variant="ppo", why="actions of several parts" if several else "discrete actions", settings=model)


def variant_by_name(env_id: str) -> tuple[str, str] | None:
    """Return the variant for an id that is not Gymnasium's, and the reason; None if the spaces have to decide."""
    if is_atari(env_id):
        return "ppo_atari", "an Atari game"
    if is_self_play(env_id):
        return "ppo_pettingzoo_ma_atari", "a game of several players"
    if read_procgen_name(env_id)[0] in GAMES:
        return "ppo_procgen", "a game of Procgen"
    return None
