"""The ejected file of a configuration, or the reason why there is none."""

import textwrap
from dataclasses import replace

from proximo.catalog import parts_of
from proximo.config import Config
from proximo.envs.atari_ids import is_atari
from proximo.errors import UsageError, notify
from proximo.models.export.eject.jax_limits import jax_refusals
from proximo.models.export.eject.layout import WIDTH
from proximo.models.export.eject.specialise import Specialiser
from proximo.models.export.eject.torch_setup import torch_program
from proximo.models.export.eject.write import file_text
from proximo.problems import config_problems, engine_of
from proximo.runs.settings.resolve import resolve

SUPPORTED = ("ppo", "ppo_continuous_action", "rpo_continuous_action", "compact", "ppo_atari", "ppo_atari_lstm",
             "ppo_atari_multigpu", "ppo_atari_envpool", "ppo_procgen", "ppo_pettingzoo_ma_atari")
POOL_VARIANTS = ("ppo_atari_envpool", "ppo_procgen")
DOCSTRING = """{summary}

    python my_ppo.py --seed 2

{text}"""
TEXT = """The Proximo library, reduced to what `{command}` needs. The file trains on the CPU, in one process, to the
{weights} It writes progress-SEED.csv and weights-SEED.npz into the current folder. Numbers of details
are those of "The 37 Implementation Details of Proximal Policy Optimization" (Huang et al. 2022)."""

SAME = "same weights as the library for this environment, bit for bit."
SAME_ON_JAX = """weights of the library. They are equal bit for bit where a minibatch has a power of two of rows, and an
iteration at most 1,024 observations with the closing ones: the library adds up other numbers of rows in another order,
which changes the last bits."""


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
    notify(f"{variant} is written as one file; this takes up to half a minute.")
    if cfg.framework == "jax":
        parts_of("ppo", "jax")  # raises UsageError if JAX is not installed
        from proximo.models.export.eject.jax_setup import jax_program

        library, facts = jax_program(cfg)
    else:
        library, facts = torch_program(cfg, variant)
    Specialiser(library, facts, "main").specialise()
    return file_text(library, file_docstring(cfg, command))


def file_docstring(cfg: Config, command: str) -> str:
    """Return what the file says of itself."""
    summary, weights = str(type(cfg).__doc__).split("\n")[0], SAME
    if cfg.framework == "jax":
        summary, weights = f"PPO for {cfg.env_id}, which is simulated in JAX.", SAME_ON_JAX
    text = TEXT.format(command=command, weights=weights)
    return DOCSTRING.format(summary=summary, text=textwrap.fill(" ".join(text.split()), WIDTH, break_on_hyphens=False))


def refusals(cfg: Config, variant: str) -> list[str]:
    """Return one sentence for each reason why a configuration cannot be ejected."""
    on_jax = "torch" not in cfg.limits.frameworks or cfg.framework == "jax"
    found = jax_refusals(cfg, variant) if on_jax else torch_refusals(cfg, variant)
    if cfg.overlap:
        found.append("overlap=True cannot be ejected: the program waits for every update. Leave --overlap out.")
    if cfg.init_from:
        found.append(f"init_from={cfg.init_from} cannot be ejected: the program begins with random weights. Leave "
                     "--init-from out.")
    if cfg.env_file or cfg.env_wrappers or cfg.env_kwargs:
        found.append("An environment with --env-file, --env-kwargs or --env-wrappers cannot be ejected. Register it "
                     "under an id and use --env-id module:Env-v0.")
    if cfg.info_metrics:
        found.append(f"info_metrics={' '.join(cfg.info_metrics)} cannot be ejected: the program logs returns and "
                     "lengths. Leave --info-metrics out.")
    if cfg.device not in ("auto", "cpu"):
        found.append(f"device={cfg.device}: an ejected file trains on the CPU. Leave --device out.")
    if cfg.autoreset != "same-step":
        found.append(f"autoreset={cfg.autoreset} cannot be ejected. Leave --autoreset out.")
    if cfg.precision != "float32":
        found.append(f"precision={cfg.precision}: an ejected file computes in float32. Leave --precision out.")
    return found


def torch_refusals(cfg: Config, variant: str) -> list[str]:
    """Return one sentence for each reason why a variant or its environments cannot be ejected on torch."""
    if variant not in SUPPORTED:
        return [f"{variant} cannot be ejected: only {', '.join(SUPPORTED)} are supported."]
    found, engine = [], engine_of(cfg)
    if is_atari(cfg.env_id) and not cfg.limits.emulator:
        found.append(f"env_id={cfg.env_id} is an Atari game. Use proximo eject ppo_atari --env-id {cfg.env_id}.")
    if engine not in ("gym", "ale") and variant not in POOL_VARIANTS:
        found.append(f"engine={engine} cannot be ejected. Use --engine gym.")
    return found
