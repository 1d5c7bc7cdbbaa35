"""What is known of a variant on torch, from the objects that training makes for it."""

from typing import Any

import proximo.config
from proximo.catalog import VARIANTS, parts_of
from proximo.config import Config
from proximo.eject import torch_main
from proximo.eject.config_class import config_text
from proximo.eject.definition import Definition
from proximo.eject.facts import Facts
from proximo.eject.library import Library, definition_text
from proximo.envs.gym_source import env_source


def torch_facts(cfg: Config, variant: str, library: Library) -> Facts:
    """Make everything that training makes before its first step, and return what it shows."""
    from proximo.on_torch.loss import ppo_loss
    from proximo.on_torch.setup import set_up
    from proximo.on_torch.snapshot import saved_buffers

    parts = parts_of(variant, "torch")
    setup = set_up(cfg, parts.make_envs, parts.make_agent, ppo_loss, None)
    setup.envs.close()
    fields: dict[str, Any] = {}
    dropped_fields = {"Iteration": frozenset(("snapshot", "spec", "players", "statistics", "keeps_state")),
                      "FinishedEpisodes": frozenset(("step", "row", "length"))}
    if setup.carry.mask is None:
        fields |= {"mask": None, "_masks": None, "masked": False, "_mask_methods": ()}
    if not setup.carry.state:
        fields["state"] = ()
    if setup.statistics is None:
        fields["statistics"] = None
    if VARIANTS[variant].head == "plain":
        fields["noise"] = None
    if not setup.envs.metric_names:
        fields["metrics"] = {}
    expressions: dict[str, Any] = {}
    if setup.agent.evaluates_later:
        expressions |= {"acted.value": None, "acted.logprob": None}
        dropped_fields["Acted"] = frozenset(("logprob", "value"))
    present = {"final_obs"} if cfg.autoreset == "same-step" and cfg.engine != "envpool" else set()
    if not setup.agent.evaluates_later:
        present |= {"logprob", "value"}
    results = {"set_up": setup, "join": setup.world, "pick_device": setup.device, "seeded_envs": setup.envs,
               "make_normalizer": setup.normalizer, "seeded_agent": setup.agent, "make_agent": setup.agent,
               "assemble": setup.agent, "first_carry": setup.carry, "Storage": setup.storage,
               "Config": cfg, "config_problems": (), "action_problems": (), "can_compile": False}
    instances = {type(cfg): cfg, Config: cfg, type(setup.envs): setup.envs, type(setup.agent): setup.agent,
                 type(setup.storage): setup.storage, type(setup.storage.buffer): setup.storage.buffer,
                 type(setup.agent.head): setup.agent.head}
    classes = {"VecEnv": setup.envs, "Agent": setup.agent, "Head": setup.agent.head}
    types = {name: library.find(type(one).__module__, type(one).__name__) for name, one in classes.items()}
    if not saved_buffers(setup.agent):
        results["saved_buffers"] = {}
    if setup.statistics is None:
        results["merge_over_ranks"] = None
    named = {"cfg": cfg, "world": setup.world, "device": setup.device, "spec": setup.normalizer.spec,
             "agent": setup.agent, "envs": setup.envs, "normalizer": setup.normalizer}
    space = setup.envs.action_space
    assumed = {("action_writer", "space"): space, ("make_head", "action_space"): space}
    if cfg.limits.gymnasium and type(setup.envs).__name__ == "GymEnvs":
        named["source"] = env_source(cfg)
    if setup.statistics is None:
        dropped_fields["Normalizer"] = frozenset(("start", "reset", "step"))
    dropped_fields["Setup"] = frozenset(("device",))
    if not setup.agent.recurrent:
        dropped_fields |= {"Rollout": frozenset(("first",)), "Batch": frozenset(("first",))}
    dropped_fields["Spec"] = frozenset(("observation_space",))
    return Facts(cfg=cfg, receivers=frozenset(("perturbed",) if VARIANTS[variant].head == "plain" else ()), assumed=assumed, expressions=expressions, dropped_fields=dropped_fields,
                 dropped_calls=frozenset() if setup.carry.mask is not None else frozenset(("_open_masks",)), types=types | {"Array": "Tensor"}, results=results, fields=fields, instances=instances, present=frozenset(present),
                 named=named)


def torch_library(cfg: Config, variant: str) -> Library:
    """Return the library with the program around the training loop, Config and everything that they need."""
    library, chosen = Library(), VARIANTS[variant]
    library.add(Definition("Config", proximo.config, config_text(cfg)))
    make_envs = library.find(chosen.make_envs.__module__, chosen.make_envs.__name__)
    make_box = library.find("proximo.on_torch.box_heads", "make_rpo_head" if chosen.head == "rpo" else "make_box_head")
    for name in ("make_agent", "main"):
        text = definition_text(torch_main.__name__, name).replace("MAKE_ENVS", make_envs).replace("MAKE_BOX", make_box)
        text = "\n".join(line.partition("  # type: ignore")[0] for line in text.split("\n"))
        library.add(Definition(name, torch_main, text))
    return library
