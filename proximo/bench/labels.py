"""How runs are named that no benchmark file has named, and the settings by which runs are told apart."""

from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any

from proximo.bench.sets import every_field, label_of, logging_fields
from proximo.catalog import VARIANTS
from proximo.facts import facts
from proximo.runs.folder.run import SWEEP


def swept_names(run: Path) -> list[str]:
    """Return the fields of which a sweep has trained several values, if the run is a member of one."""
    if not (run.parent / SWEEP).exists():
        return []
    return [part.partition("=")[0] for part in run.name.split(",")]


def own_label(variant: str, config: dict[str, Any], custom: dict[str, str], always: Collection[str] = ()) -> str:
    """Name a run that is not of a benchmark: its variant, settings that differ from its defaults, and its own parts.

    Args:
        variant: The variant.
        config: The settings.
        custom: The parts of a program by their argument.
        always: Settings that are named also where they are the default.
    """
    if variant not in VARIANTS:
        return variant
    kind = VARIANTS[variant].config
    skipped = {name for name, fact in facts(kind).items() if fact.chosen} | {"seed", "env_id", "total_timesteps"}
    if config.get("local_num_envs") is not None:
        skipped.add("num_envs")  # follows from it and the number of processes
    defaults = {f.name: list(f.default) if isinstance(f.default, tuple) else f.default for f in fields(kind)}
    named = {name: Path(value).name if name == "env_file" else value for name, value in config.items()
             if name in defaults and name not in skipped and (name in always or value != defaults[name])}
    return label_of(variant, named | custom)


def compared_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings by which runs are told apart: not the seed, what the machine chose, or what only watches."""
    skipped = {name for name, fact in every_field().items() if fact.chosen} | logging_fields() | {"seed", "env_id"}
    if config.get("local_num_envs") is not None:
        skipped.add("num_envs")  # follows from it and the number of processes
    return {name: value for name, value in config.items() if name not in skipped}
