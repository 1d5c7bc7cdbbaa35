"""What is known of a variant on torch, from the objects that training makes for it."""

import sys
from dataclasses import replace
from functools import partial
from typing import Any

from gymnasium import spaces

from proximo.catalog import VARIANTS, parts_of
from proximo.config import Config
from proximo.envs.arrays.obs_layout import obs_layout
from proximo.envs.atari_ids import is_atari, sticky_chance
from proximo.envs.envpool import PoolEnvs, find_pool
from proximo.envs.envpool_ids import import_envpool
from proximo.envs.gym_source import env_source
from proximo.envs.procgen import procgen_id
from proximo.models.export.eject.definition import Definition
from proximo.models.export.eject.known import Facts
from proximo.models.export.eject.library import Library, definition_text
from proximo.models.export.eject.program_text import add_program
from proximo.models.export.eject.rewrites import (
    CHECKED_CONFIG,
    EVERY_ROW_VALID,
    GAMES_OF_POOL,
    NUMPY_SUITES,
    OPEN_LOSS,
    SELF_PLAY,
    VALID_FIELDS,
    merged,
    rewritten,
)
from proximo.problems import engine_of
from proximo.variants import Atari, Procgen


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
    of_pool = isinstance(setup.envs, PoolEnvs)
    dies = isinstance(setup.envs, PoolEnvs) and "terminated" in setup.envs.pool.reset()[1]
    setup.envs.close()
    agent, space = setup.agent, setup.envs.action_space
    classes = {"VecEnv": setup.envs, "Agent": agent, "Head": agent.head}
    types = {name: library.find(type(one).__module__, type(one).__name__) for name, one in classes.items()}
    types |= {kind.__name__: "Config" for kind in type(cfg).__mro__ if issubclass(kind, Config)}
    named = {"cfg": cfg, "world": setup.world, "device": setup.device, "spec": setup.normalizer.spec, "agent": agent,
             "envs": setup.envs, "normalizer": setup.normalizer, "compiler": None}
    if cfg.limits.gymnasium and type(setup.envs).__name__ == "GymEnvs":
        named["source"] = env_source(cfg)
    plain = VARIANTS[variant].head == "plain"
    return Facts(
        cfg=cfg, results=_results(setup, cfg), fields=_fields(setup, plain), named=named,
        instances={type(one): one for one in (cfg, setup.envs, agent, setup.storage, agent.head)}
        | {Config: cfg},
        present=frozenset(() if of_pool else ("final_obs",))
        | frozenset(() if agent.evaluates_later else ("logprob", "value"))
        | frozenset(("first",) if agent.recurrent else ()),
        assumed={} if isinstance(space, (spaces.Dict, spaces.Tuple)) else  # whose parts are arguments, too
        {("action_writer", "space"): space, ("make_head", "action_space"): space},
        expressions=({"acted.value": None, "acted.logprob": None} if agent.evaluates_later else {}) | (
            {"bootstrapped.any()": False, "'terminated' in info": dies} if of_pool else {}),
        # the file has EnvPool's own ids
        written={"find_pool": f"{{0}}, {isinstance(cfg, Atari)}", "procgen_id": "{0}",
                 "with_usual": "{1}"} if of_pool else {},
        identities=frozenset(("perturbed",) if plain else ()),
        dropped_fields=_dropped_fields(setup, cfg),
        dropped_calls=frozenset(("_open_masks",) if setup.carry.mask is None else ()),
        types=types | {"Array": "Tensor", "HostArray": "np.ndarray", "Layer": "Any"})


def _results(setup: Any, cfg: Config) -> dict[str, Any]:
    """Return what functions of the library return."""
    from proximo.on_torch.snapshot import saved_buffers

    found = {"set_up": setup, "join": setup.world, "pick_device": setup.device, "seeded_envs": setup.envs,
             "make_normalizer": setup.normalizer, "seeded_agent": setup.agent, "make_agent": setup.agent,
             "assemble": setup.agent, "first_carry": setup.carry, "Storage": setup.storage, "Config": cfg,
             "config_problems": (), "action_problems": (), "usable_compiler": None, "is_exporting": False}
    if not saved_buffers(setup.agent):
        found["saved_buffers"] = {}
    if not setup.envs.metric_names:
        found["merge_metrics"] = {}
    if isinstance(setup.envs, PoolEnvs):
        found["death_rule"] = None
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
    if isinstance(setup.envs, PoolEnvs):
        found["final_obs"] = None
    return found if setup.envs.metric_names else found | {"metrics": {}, "metric_rows": {}}


def _dropped_fields(setup: Any, cfg: Config) -> dict[str, frozenset[str]]:
    """Return the fields that only the parts of the library read which the ejected file leaves out."""
    found = {"Iteration": frozenset(("snapshot", "call_envs", "spec", "players", "statistics", "keeps_state")),
             "FinishedEpisodes": frozenset(("step", "row", "length")), "Setup": frozenset(("device",)),
             "AtariName": frozenset(("sticky",)), "Episode": frozenset(("length",))}
    if obs_layout(setup.normalizer.spec.observation_space) is None:  # no Dict or Tuple
        found["Spec"] = frozenset(("observation_space",))
    if cfg.desired_kl is None and cfg.target_kl is None:  # always 1
        found |= {"Adam": frozenset(("scale",)), "Learner": frozenset(("scale",))}
    if every_row_is_valid(cfg):
        found |= {name: found.get(name, frozenset()) | fields for name, fields in VALID_FIELDS.items()}
    if setup.agent.evaluates_later:
        found["Acted"] = frozenset(("logprob", "value"))
    if setup.statistics is None:
        found["Normalizer"] = frozenset(("start", "reset", "step"))
    if not setup.agent.recurrent:
        found |= {name: found.get(name, frozenset()) | {"first"} for name in ("Rollout", "Batch")}
    return found


def torch_program(cfg: Config, variant: str) -> tuple[Library, Facts]:
    """Return the library on torch, and what is known of it."""
    cfg = with_known_task(cfg)
    library = torch_library(cfg, variant)
    return library, torch_facts(cfg, variant, library)


def with_known_task(cfg: Config) -> Config:
    """Return a configuration with the id that its engine uses, and the chance of sticky actions that its id means."""
    if isinstance(cfg, Atari) and is_atari(cfg.env_id):
        cfg = replace(cfg, sticky=sticky_chance(cfg.env_id, cfg.sticky))
    if isinstance(cfg, Procgen):
        all_ids = import_envpool("procgen").list_all_envs()
        return replace(cfg, env_id=procgen_id(cfg.env_id, cfg.distribution_mode, all_ids))
    return replace(cfg, env_id=find_pool(cfg.env_id)[0]) if engine_of(cfg) == "envpool" else cfg


def torch_library(cfg: Config, variant: str) -> Library:
    """Return the library with the program around the training loop, Config and everything that they need."""
    valid = EVERY_ROW_VALID if every_row_is_valid(cfg) else {}
    rewrites = merged(NUMPY_SUITES, GAMES_OF_POOL, SELF_PLAY, CHECKED_CONFIG, OPEN_LOSS, valid)
    library, chosen = Library(partial(rewritten, rewrites)), VARIANTS[variant]
    if isinstance(cfg, Procgen):
        text = definition_text("proximo.models.export.eject.rewrites", "import_envpool")
        library.add(Definition("import_envpool", sys.modules["proximo.envs.envpool_ids"], text))
    make_box = "make_rpo_head" if chosen.head == "rpo" else "make_box_head"
    add_program(library, cfg, make_box, chosen.make_envs)
    return library


def every_row_is_valid(cfg: Config) -> bool:
    """Return whether no step of an environment is spent on a reset or on a player who is out."""
    return cfg.autoreset == "same-step" and engine_of(cfg) in ("gym", "ale") and cfg.limits.max_players == 1
