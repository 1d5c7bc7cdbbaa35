"""The ejected file of a configuration, or the reason why there is none."""

from dataclasses import replace

from proximo.catalog import VARIANTS
from proximo.config import Config
from proximo.eject.specialise import Specialiser
from proximo.eject.torch_setup import torch_facts, torch_library
from proximo.eject.write import file_text
from proximo.errors import UsageError
from proximo.problems import config_problems
from proximo.runs.resolve import resolve

DOCSTRING = """{summary}

    python my_ppo.py --seed 2

The Proximo library, reduced to what `{command}` needs. The file trains on the CPU, in
one process, to the same weights as the library, bit for bit. It writes progress.csv and weights.npz."""


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
    cfg = resolve(replace(cfg, env_workers=0, device="cpu", compile=False), variant, 1, 1)
    if wrong := config_problems(cfg):
        raise UsageError("\n".join(wrong))
    library = torch_library(cfg, variant)
    Specialiser(library, torch_facts(cfg, variant, library), "main").specialise()
    summary = str(type(cfg).__doc__).split("\n")[0]
    return file_text(library, DOCSTRING.format(summary=summary, command=command))


def refusals(cfg: Config, variant: str) -> list[str]:
    """Return one sentence for each reason why a configuration cannot be ejected."""
    found = []
    if "torch" not in cfg.limits.frameworks or cfg.framework == "jax":
        found.append(f"{variant} with --framework {cfg.framework} cannot be ejected: only programs for torch are "
                     "supported. Use --framework torch and a variant that trains with it.")
    if cfg.limits.engines[0] == "brax":
        found.append(f"{variant} cannot be ejected: Brax returns JAX arrays, and only environments with numpy arrays "
                     "are supported. Use another variant.")
    if cfg.env_file or cfg.env_wrappers or cfg.env_kwargs:
        found.append("An environment with --env-file, --env-kwargs or --env-wrappers cannot be ejected. Register it "
                     "under an id and use --env-id module:Env-v0.")
    if cfg.device not in ("auto", "cpu"):
        found.append(f"device={cfg.device}: an ejected file trains on the CPU. Leave --device out.")
    if cfg.autoreset != "same-step":
        found.append(f"autoreset={cfg.autoreset} cannot be ejected. Leave --autoreset out.")
    if variant not in VARIANTS:
        found.append(f"{variant} is not a variant.")
    return found
