"""The ejected file of a configuration, or the reason why there is none."""

import textwrap
from dataclasses import replace

from proximo.config import Config
from proximo.envs.atari_ids import is_atari
from proximo.errors import UsageError
from proximo.models.export.eject.layout import WIDTH
from proximo.models.export.eject.specialise import Specialiser
from proximo.models.export.eject.suites import with_known_task
from proximo.models.export.eject.torch_setup import torch_facts, torch_library
from proximo.models.export.eject.write import file_text
from proximo.problems import config_problems, engine_of
from proximo.runs.resolve import resolve

SUPPORTED = ("ppo", "ppo_continuous_action", "rpo_continuous_action", "compact", "ppo_atari", "ppo_atari_lstm",
             "ppo_atari_multigpu", "ppo_atari_envpool", "ppo_procgen", "ppo_pettingzoo_ma_atari")
POOL_VARIANTS = ("ppo_atari_envpool", "ppo_procgen")
DOCSTRING = """{summary}

    python my_ppo.py --seed 2

{text}"""
TEXT = """The Proximo library, reduced to what `{command}` needs. The file trains on the CPU, in one process, to the
same weights as the library, bit for bit. It writes progress.csv and weights.npz. Numbers of details are those of "The
37 Implementation Details of Proximal Policy Optimization" (Huang et al. 2022)."""


def eject(cfg: Config, variant: str, command: str) -> str:
    """Return the text of a standalone program that trains as the library does with a configuration.

    Args:
        cfg: The configuration, as it was given.
        variant: The name of its variant.
        command: The command line, for the docstring of the file.

    Raises:
        UsageError: The configuration has a mistake, or there is no such file for it.
    """
    if refused := refusals(cfg, variant):
        raise UsageError("\n".join(refused))
    cfg = resolve(replace(cfg, env_workers=0, env_groups=1, device="cpu", compile=False), variant, 1, 1)
    if wrong := config_problems(cfg):
        raise UsageError("\n".join(wrong))
    cfg = with_known_task(cfg)
    library = torch_library(cfg, variant)
    Specialiser(library, torch_facts(cfg, variant, library), "main").specialise()
    summary = str(type(cfg).__doc__).split("\n")[0]
    text = textwrap.fill(" ".join(TEXT.split()).format(command=command), WIDTH)
    return file_text(library, DOCSTRING.format(summary=summary, text=text))


def refusals(cfg: Config, variant: str) -> list[str]:
    """Return one sentence for each reason why a configuration cannot be ejected."""
    found = []
    if "torch" not in cfg.limits.frameworks or cfg.framework == "jax":
        found.append(f"{variant} with --framework {cfg.framework} cannot be ejected: only programs for torch are "
                     "supported. Use --framework torch and a variant that trains with it.")
    if cfg.overlap:
        found.append("overlap=True cannot be ejected: the program waits for every update. Leave --overlap out.")
    if variant not in SUPPORTED:
        found.append(f"{variant} cannot be ejected: only {', '.join(SUPPORTED)} are supported.")
    if cfg.env_file or cfg.env_wrappers or cfg.env_kwargs:
        found.append("An environment with --env-file, --env-kwargs or --env-wrappers cannot be ejected. Register it "
                     "under an id and use --env-id module:Env-v0.")
    engine = engine_of(cfg)
    if is_atari(cfg.env_id) and variant in SUPPORTED and not cfg.limits.emulator:
        found.append(f"env_id={cfg.env_id} is an Atari game. Use proximo eject ppo_atari --env-id {cfg.env_id}.")
    if variant in SUPPORTED and engine not in ("gym", "ale") and variant not in POOL_VARIANTS:
        found.append(f"engine={engine} cannot be ejected. Use --engine gym.")
    if cfg.device not in ("auto", "cpu"):
        found.append(f"device={cfg.device}: an ejected file trains on the CPU. Leave --device out.")
    if cfg.autoreset != "same-step":
        found.append(f"autoreset={cfg.autoreset} cannot be ejected. Leave --autoreset out.")
    if cfg.precision != "float32":
        found.append(f"precision={cfg.precision}: an ejected file computes in float32. Leave --precision out.")
    return found
