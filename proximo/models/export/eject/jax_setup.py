"""What is known of `ppo` on JAX with its environments inside the compiled function."""

import sys
from functools import partial
from typing import Any

from proximo.catalog import parts_of
from proximo.config import Config
from proximo.models.export.eject import jax_main, main_program
from proximo.models.export.eject.config_class import config_text
from proximo.models.export.eject.definition import Definition
from proximo.models.export.eject.jax_rewrites import jax_rewrites
from proximo.models.export.eject.known import Facts
from proximo.models.export.eject.library import Library
from proximo.models.export.eject.program_text import REFUSAL, TRAINING, program_text
from proximo.models.export.eject.rewrites import VALID_FIELDS, rewritten

# Fields that the file does not need: every row is valid, and nothing is masked, remembered, normalised or saved.
GONE = {
    "Iteration": ("snapshot", "call_envs", "spec", "players", "statistics", "keeps_state"),
    "FinishedEpisodes": ("step", "row", "length"), "Episode": ("length",), "Adam": ("scale",), "Carry": ("first",),
    "Rollout": ("first",), "Batch": ("first",), "Step": ("first",), "PlayedStep": ("logprob", "value", "final"),
    "Metrics": ("valid",), "Minibatches": ("count",), "LossInputs": ("count",)}


def jax_program(cfg: Config) -> tuple[Library, Facts]:
    """Return the library on JAX, and what is known of it."""
    library = jax_library(cfg)
    return library, jax_facts(cfg, library)


def jax_library(cfg: Config) -> Library:
    """Return the library with the program around the training loop, Config and everything that they need."""
    library = Library(partial(rewritten, jax_rewrites(cfg)))
    library.add(Definition("Config", sys.modules["proximo.config"], config_text(cfg)))
    for module, name in (("proximo.on_jax.loss", "ppo_loss"), ("proximo.on_jax.gae", "estimate_advantages"),
                         ("proximo.on_jax.learner", "update"), ("proximo.envs.jax_control", "ControlState")):
        library.find(module, name)  # rewrites name them
    train = library.find(jax_main.__name__, "train")
    text = program_text("main").replace(TRAINING, f"{train}(cfg)").replace(REFUSAL, "")
    library.add(Definition("main", main_program, text))
    return library


def jax_facts(cfg: Config, library: Library) -> Facts:
    """Make everything that training makes before its first step, and return what it shows."""
    from proximo.on_jax.loss import ppo_loss
    from proximo.on_jax.setup import make_inside_player

    parts = parts_of("ppo", "jax")
    player = make_inside_player(cfg, parts.make_envs, parts.make_agent, ppo_loss)
    envs, agent = player.envs.pure, player.agent
    classes = {"PureEnv": envs, "Agent": agent, "Head": agent.head}
    types = {name: library.find(type(one).__module__, type(one).__name__) for name, one in classes.items()}
    fields: dict[str, Any] = {"mask": None, "state": (), "statistics": None, "noise": None, "metrics": {}, "charts": {}}
    return Facts(
        cfg=cfg, named={"cfg": cfg, "envs": envs, "agent": agent}, fields=fields, results={"bind": agent},
        instances={type(one): one for one in (cfg, agent, agent.head, envs)} | {Config: cfg},
        present=frozenset(("final_obs",)), assumed={}, expressions={}, written={}, identities=frozenset(("perturbed",)),
        dropped_calls=frozenset(),
        dropped_fields={name: VALID_FIELDS.get(name, frozenset()).union(GONE.get(name, ()))
                        for name in {*GONE, *VALID_FIELDS}},
        types=types | {"Array": "jax.Array", "HostArray": "jax.Array"})
