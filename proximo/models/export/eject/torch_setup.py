"""What is known of a variant on torch, from the objects that training makes for it."""

import sys
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from proximo.catalog import VARIANTS, parts_of
from proximo.config import Config
from proximo.envs.atari_ids import is_atari
from proximo.envs.gym_ids import gym_id
from proximo.envs.gym_source import env_source
from proximo.models.export.eject import torch_main
from proximo.models.export.eject.config_class import config_text
from proximo.models.export.eject.definition import Definition
from proximo.models.export.eject.every_row_valid import FIELDS, rewritten
from proximo.models.export.eject.facts import Facts
from proximo.models.export.eject.library import Library, definition_text
from proximo.problems import engine_of

REFUSAL = "    refuse_other_spaces(cfg.env_id)\n"


def torch_facts(cfg: Config, variant: str, library: Library) -> Facts:
    """Make everything that training makes before its first step, and return what it shows."""
    from proximo.on_torch.loss import ppo_loss
    from proximo.on_torch.setup import set_up

    parts = parts_of(variant, "torch")

    def make_envs(cfg: Config, seeds: list[int]) -> Any:
        envs: Any = parts.make_envs(cfg, seeds)
        envs.frames = None  # stacks of frames are stored whole: this is shorter, with the same numbers
        return envs

    setup = set_up(cfg, make_envs, parts.make_agent, ppo_loss, None)
    setup.envs.close()
    agent, space = setup.agent, setup.envs.action_space
    classes = {"VecEnv": setup.envs, "Agent": agent, "Head": agent.head}
    types = {name: library.find(type(one).__module__, type(one).__name__) for name, one in classes.items()}
    types |= {kind.__name__: "Config" for kind in type(cfg).__mro__ if issubclass(kind, Config)}
    named = {"cfg": cfg, "world": setup.world, "device": setup.device, "spec": setup.normalizer.spec, "agent": agent,
             "envs": setup.envs, "normalizer": setup.normalizer}
    if cfg.limits.gymnasium and type(setup.envs).__name__ == "GymEnvs":
        named["source"] = env_source(cfg)
    plain = VARIANTS[variant].head == "plain"
    return Facts(
        cfg=cfg, results=_results(setup, cfg), fields=_fields(setup, plain), named=named,
        instances={type(one): one for one in (cfg, setup.envs, agent, setup.storage, agent.head)}
        | {Config: cfg},
        present=frozenset(("final_obs",) if type(setup.envs).__name__ != "PoolEnvs" else ())
        | frozenset(() if agent.evaluates_later else ("logprob", "value"))
        | frozenset(("first",) if agent.recurrent else ()),
        assumed={("action_writer", "space"): space, ("make_head", "action_space"): space},
        expressions={"acted.value": None, "acted.logprob": None} if agent.evaluates_later else {},
        receivers=frozenset(("perturbed",) if plain else ()), dropped_fields=_dropped_fields(setup, cfg),
        dropped_calls=frozenset(("_open_masks",) if setup.carry.mask is None else ()),
        types=types | {"Array": "Tensor", "Layer": "Any"})


def _results(setup: Any, cfg: Config) -> dict[str, Any]:
    """Return what functions of the library return."""
    from proximo.on_torch.snapshot import saved_buffers

    found = {"set_up": setup, "join": setup.world, "pick_device": setup.device, "seeded_envs": setup.envs,
             "make_normalizer": setup.normalizer, "seeded_agent": setup.agent, "make_agent": setup.agent,
             "assemble": setup.agent, "first_carry": setup.carry, "Storage": setup.storage, "Config": cfg,
             "config_problems": (), "action_problems": (), "can_compile": False, "is_exporting": False}
    if not saved_buffers(setup.agent):
        found["saved_buffers"] = {}
    return found if setup.statistics is not None else found | {"merge_over_ranks": None}


def _fields(setup: Any, plain: bool) -> dict[str, Any]:
    """Return the values of fields that are the same in every record: what is not masked, remembered, normalised."""
    found: dict[str, Any] = {}
    if setup.carry.mask is None:
        found |= {"mask": None, "_masks": None, "masked": False, "_mask_methods": ()}
    if not setup.carry.state:
        found["state"] = ()
    if setup.statistics is None:
        found["statistics"] = None
    if plain:
        found["noise"] = None
    return found if setup.envs.metric_names else found | {"metrics": {}}


def _dropped_fields(setup: Any, cfg: Config) -> dict[str, frozenset[str]]:
    """Return the fields that only the parts of the library read which the ejected file leaves out."""
    found = {"Iteration": frozenset(("snapshot", "spec", "players", "statistics", "keeps_state")),
             "FinishedEpisodes": frozenset(("step", "row", "length")), "Setup": frozenset(("device",)),
             "Spec": frozenset(("observation_space",)), "AtariName": frozenset(("sticky",)),
             "Episode": frozenset(("length",))}
    if cfg.desired_kl is None and cfg.target_kl is None:  # 1 for ever
        found |= {"Adam": frozenset(("scale",)), "Learner": frozenset(("scale",))}
    if every_row_is_valid(cfg):
        found |= {name: found.get(name, frozenset()) | fields for name, fields in FIELDS.items()}
    if setup.agent.evaluates_later:
        found["Acted"] = frozenset(("logprob", "value"))
    if setup.statistics is None:
        found["Normalizer"] = frozenset(("start", "reset", "step"))
    if not setup.agent.recurrent:
        found |= {name: found.get(name, frozenset()) | {"first"} for name in ("Rollout", "Batch")}
    return found


def torch_library(cfg: Config, variant: str) -> Library:
    """Return the library with the program around the training loop, Config and everything that they need."""
    library, chosen = Library(rewritten) if every_row_is_valid(cfg) else Library(), VARIANTS[variant]
    library.add(Definition("Config", sys.modules["proximo.config"], config_text(cfg)))
    make_envs = library.find(chosen.make_envs.__module__, chosen.make_envs.__name__)
    make_box = library.find("proximo.on_torch.box_heads", "make_rpo_head" if chosen.head == "rpo" else "make_box_head")
    find_id = getattr(sys.modules[chosen.make_envs.__module__], "mujoco_id", gym_id)  # the suite's own, if it has one
    kinds = kinds_of_spaces(cfg, find_id)
    for line in kinds:
        library.add(Definition(line.split()[0], torch_main, line))
    for name in ("make_agent", "main", *(("kind_of", "refuse_other_spaces") if kinds else ())):
        text = definition_text(torch_main.__name__, name).replace("MAKE_ENVS", make_envs).replace("MAKE_BOX", make_box)
        text = "\n".join(line.partition("  # type: ignore")[0] for line in text.split("\n"))
        text = text.replace("FIND_ID", library.find(find_id.__module__, find_id.__name__))
        library.add(Definition(name, torch_main, text if kinds else text.replace(REFUSAL, "")))
    return library


def every_row_is_valid(cfg: Config) -> bool:
    """Whether no step of an environment is spent on a reset or on a player who is out."""
    return cfg.autoreset == "same-step" and engine_of(cfg) in ("gym", "ale") and cfg.limits.max_players == 1


def kinds_of_spaces(cfg: Config, find_id: Callable[[str], str]) -> list[str]:
    """Return the lines that say which spaces the file is made for; none for Atari games, which all have the same."""
    if is_atari(cfg.env_id):
        return []
    env = gym.make(env_source(cfg, find_id).name, disable_env_checker=True)
    env.close()
    return [f'ACTIONS = "{torch_main.kind_of(env.action_space)}"  # the kinds of spaces that this file is made for',
            f'OBSERVATIONS = "{torch_main.kind_of(env.observation_space)}"']
